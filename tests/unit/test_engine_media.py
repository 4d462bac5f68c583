"""walkserve.Engine takes images and videos as a server does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.dot import DOT
from tests.families import trial

from walkserve import Engine
from walkserve_sdk import BadRequest, MediaTooLarge


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    trial.install(tmp_path / "site", "album")
    monkeypatch.syspath_prepend(str(trial.HERE))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with Engine("album", device="cpu") as engine:
        yield engine


def test_media_reach_the_component_and_what_it_refuses_is_raised_as_what_it_is(engine: Engine) -> None:
    result = engine.generate(image=DOT, video=DOT)
    assert (result.picture, result.clip) == ("1x1 [0, 0, 0]\n", "1 of 1x1 at [0.0]\n")
    with pytest.raises(BadRequest, match="image: an image is PNG, JPEG, WebP, GIF; this is none of them"):
        engine.generate(image=b"hello")
    huge = DOT[:6] + b"\xff\x7f" * 2 + DOT[10:]
    with pytest.raises(MediaTooLarge, match="image: 32767 x 32767 are 1,073,676,289 pixels"):
        engine.generate(image=huge)
    assert engine.generate(image=DOT).picture == "1x1 [0, 0, 0]\n"
