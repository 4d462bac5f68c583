"""Guidance on an Engine: equal rows are computed once, prompts are read once, and nothing is copied."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.families import trial

from walkserve import Engine
from walkserve.worker.state import WorkerState
from walkserve_sdk.errors import ContextLengthExceeded

PAGE = 4
TEXT = "a cat on a mat!"  # 15 tokens: three pages full, and one begun
ASKED = {"text": TEXT, "seed": 3}


@pytest.fixture(scope="module")
def _family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = trial.install(tmp_path_factory.mktemp("plugins") / "guided", "guided").split(":")
    yield
    sys.path[:] = before


@contextmanager
def opened(pages: int) -> Iterator[Engine]:
    with Engine(
        "guided", device="cpu", dtype="float32", deterministic=True, cache_tokens=pages * PAGE
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def wide(_family: None) -> Iterator[Engine]:
    """With pages for everything."""
    with opened(1000) as engine:
        yield engine


def state_of(engine: Engine) -> WorkerState:
    (state,) = [
        worker.loop.state for worker in engine.workers if worker.loop and "lm" in worker.loop.state.caches
    ]
    return state


class Watch:
    """What an engine has run: rows and tokens by method, and pages held at most when it painted."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.pages = 0


@contextmanager
def watched(engine: Engine) -> Iterator[Watch]:
    watch, state = Watch(), state_of(engine)
    (loop,) = [worker.loop for worker in engine.workers if worker.loop and worker.loop.state is state]
    submit = loop.engine.submit

    def watching(key: Any, rows: Any) -> Any:
        pending = submit(key, rows)
        watch.rows[key[1]] += len(rows)
        watch.tokens[key[1]] += sum(row.tokens for row in rows)
        if key[1] == "velocity":
            watch.pages = max(watch.pages, state.caches["lm"].pool.held)
        return pending

    loop.engine.submit = watching  # type: ignore[method-assign]
    try:
        yield watch
    finally:
        loop.engine.submit = submit  # type: ignore[method-assign]


def spared(engine: Engine) -> int:
    return sum(one.spared for one in state_of(engine).tally.report("", "", {}, {}).methods)


def paint(engine: Engine, **asked: Any) -> np.ndarray:
    return np.asarray(engine.generate(**{**ASKED, **asked}).picture)


def test_rows_that_are_equal_are_computed_once_and_those_without_guidance_never(wide: Engine) -> None:
    """49 steps, 41 of them with guidance, in which no_image is what main is."""
    before = spared(wide)
    with watched(wide) as watch:
        paint(wide)
    assert watch.rows["velocity"] == 49 + 41
    assert spared(wide) - before == 41


def test_the_same_that_came_about_otherwise_is_computed_again_and_gives_the_same(wide: Engine) -> None:
    """Nobody compares tensors: a branch that has read the same text by itself is another one."""
    before = spared(wide)
    with watched(wide) as watch:
        again = paint(wide, way="read")
    assert watch.rows["velocity"] == 49 + 2 * 41
    assert spared(wide) == before
    assert np.array_equal(again, paint(wide))


def test_one_bit_of_the_prompt_makes_it_another(wide: Engine) -> None:
    with watched(wide) as watch:
        changed = paint(wide, way="changed")
    assert watch.rows["velocity"] == 49 + 2 * 41
    assert not np.array_equal(changed, paint(wide))


def test_without_guidance_one_branch_is_asked(wide: Engine) -> None:
    with watched(wide) as watch:
        paint(wide, guided=0)
    assert watch.rows["velocity"] == 49


def test_a_prompt_is_read_once_for_all_branches_and_its_pages_are_never_copied(wide: Engine) -> None:
    with watched(wide) as watch:
        paint(wide)
    assert watch.tokens["read"] == len(TEXT)
    assert watch.pages == 4 + 1  # those of the prompt, and the one that no_text and main part in
    with watched(wide) as watch:
        paint(wide, way="read")
    assert watch.tokens["read"] == 2 * len(TEXT)
    assert watch.pages == 4 + 1 + 4


def test_requests_beside_each_other_paint_what_each_does_alone(wide: Engine) -> None:
    ways = ("forked", "read", "changed", "forked")
    alone = [paint(wide, way=way, seed=seed) for seed, way in enumerate(ways)]
    with ThreadPoolExecutor(len(ways)) as pool:
        running = [pool.submit(paint, wide, way=way, seed=seed) for seed, way in enumerate(ways)]
    for one, picture in zip(running, alone, strict=True):
        assert np.array_equal(one.result(), picture)


def test_branches_that_share_the_prompt_need_no_room_for_it_each(_family: None) -> None:
    """Three contexts of four pages are twelve; of their own they have four, and a page for either fork."""
    with opened(6) as engine:
        paint(engine)
        with pytest.raises(
            ContextLengthExceeded, match="15 tokens of lm to begin with, and one request may have 8"
        ):
            paint(engine, sizes=False)
