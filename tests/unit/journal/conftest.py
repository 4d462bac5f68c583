"""A request as the conductor tells a journal of it, without a conductor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from walkserve import messages as m
from walkserve.journal.entries import Origin
from walkserve.journal.folder import JournalFolder, usable_folder
from walkserve.journal.recorder import Recorder
from walkserve_sdk import Options, Part, Request

ORIGIN = Origin("speaker", "walk-plugin-speaker", "2.0", "speaker:toy")
POOLS = {"lm": m.PoolInfo(40, 4, 64)}


@dataclass(frozen=True)
class Chosen(Options):
    warmth: float = 1.0
    word: object = "yes"


@pytest.fixture
def folder(tmp_path: Path) -> JournalFolder:
    """One that is not there yet."""
    return JournalFolder(usable_folder(tmp_path / "new" / "journals"), {"speaker:toy": ORIGIN})


Begin = Callable[..., Recorder]


@pytest.fixture
def begin(folder: JournalFolder) -> Begin:
    """A request of this label and number."""

    def begins(
        label: str = "", number: int = 7, *, parts: tuple[Part, ...] = (), **options: object
    ) -> Recorder:
        parts = parts or (Part("text", "hello"),)
        request = Request(parts, ("speech",), Chosen(**options), 3, frozenset(options))  # type: ignore[arg-type]
        submit = m.Submit(
            "http",
            1,
            "speaker:toy",
            tuple(map(m.SentPart.of, parts)),
            ("speech",),
            request.options,
            3,
            label=label,
        )
        recorder = folder.begin(number, submit, request, POOLS)
        assert recorder is not None
        return recorder

    return begins


def ended(finish_reason: str = "stop") -> m.RequestEnded:
    return m.RequestEnded(1, finish_reason, 3, {"speech": 2}, {"output_tokens": 5}, {})
