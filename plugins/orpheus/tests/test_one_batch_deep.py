"""Results that come late, as from a device: the next batch is under way before the last one is known.

The arithmetic is the engine's own. Only its results are held back, until they were asked for so many times:
once when the batch is submitted, and once in the loop's next round, before it submits another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from walkserve import Engine
from walkserve.engine.local import LocalEngine
from walkserve.engine.rows import Pending, Row, RowResult
from walkserve.worker import assemble
from walkserve_sdk.results import Result

HERE = Path(__file__).parent
GOLDEN = HERE / "data" / "golden"
DELAYS = {"a-round": (1,), "until-the-next-is-under-way": (2,), "now-and-then": (0, 2, 1, 2, 0, 0, 2)}


class LateEngine:
    """Runs batches as ``LocalEngine`` does, and lets nobody know.

    While a row is under way its branch keeps its pages, and nothing is added to it: that is watched. It may
    be taken back to where it was some turns ago, if these had run ahead of a stop.
    """

    delays: tuple[int, ...] = ()
    """Of one batch after the other, and again from the first."""

    def __init__(self, held: Any, *, deterministic: bool) -> None:
        self._engine = LocalEngine(held, deterministic=deterministic)
        self._held = held
        self.submitted = 0
        self.deepest = 0
        self.in_flight = 0
        self.changed: list[str] = []

    def submit(self, key: tuple[str, str], rows: Sequence[Row]) -> Pending:
        pending = self._engine.submit(key, rows)
        self.submitted += 1
        self.in_flight += 1
        self.deepest = max(self.deepest, self.in_flight)
        return Late(self, pending, key, rows)


class Late:
    """A batch of it."""

    def __init__(
        self, engine: LateEngine, pending: Pending, key: tuple[str, str], rows: Sequence[Row]
    ) -> None:
        self._engine = engine
        self._pending = pending
        self._key = key
        self._rows = rows
        self._asks = engine.delays[engine.submitted % len(engine.delays)]
        self._before = [standing(row) for row in rows]

    def is_ready(self) -> bool:
        self._asks -= 1
        return self._asks < 0

    def finish(self) -> list[RowResult]:
        self._engine.in_flight -= 1
        for row, (length, pages) in zip(self._rows, self._before, strict=True):
            now = standing(row)
            if now[0] > length or now[1] != pages:
                self._engine.changed.append(f"{self._key}: {length} tokens in {pages} became {now}")
        return self._pending.finish()


def standing(row: Row) -> tuple[int, list[int]]:
    """How many tokens its branch has, and where."""
    table = row.branch.table
    return (table.length, list(table.pages)) if table is not None else (0, [])


def rows_of_a_batch(engine: Engine, rows: int) -> None:
    """So few that they do not all fit into one: else there is never another to submit."""
    for worker in engine.workers:
        limits = worker.loop.state.scheduler.limits
        limits |= {key: replace(one, rows=min(one.rows, rows)) for key, one in limits.items()}


@pytest.fixture(params=DELAYS)
def late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every engine that is opened meanwhile is late."""
    monkeypatch.setattr(LateEngine, "delays", DELAYS[request.param])
    monkeypatch.setattr(assemble, "LocalEngine", LateEngine)
    yield


def engines(engine: Engine) -> list[LateEngine]:
    found = [worker.loop.engine for worker in engine.workers if worker.loop is not None]
    assert all(isinstance(one, LateEngine) for one in found)
    return found  # type: ignore[return-value]


def check_it_was_late(engine: Engine) -> None:
    """Two batches were under way at once, where results came late enough, and neither noticed."""
    found = engines(engine)
    assert all(one.changed == [] and one.in_flight == 0 for one in found)
    assert max(one.deepest for one in found) == (2 if 2 in LateEngine.delays else 1)


def eventually(question: Callable[[], bool]) -> bool:
    import time

    until = time.monotonic() + 20
    while not question() and time.monotonic() < until:
        time.sleep(0.005)
    return question()


def check_nothing_is_held(engine: Engine) -> None:
    """Pages are given back when the last row of a request has landed, which may be after its end."""
    for worker in engine.workers:
        state = worker.loop.state
        assert eventually(lambda state=state: state.open_requests == 0), worker.name
        for cache in state.caches.values():
            assert cache.pool.held == 0
            cache.pool.check([])


ASKED: list[dict[str, Any]] = [
    {"text": text, "voice": voice, "seed": seed, "max_tokens": 56 + 7 * seed, "constrain": seed % 2 == 0}
    for seed, (text, voice) in enumerate(
        [
            ("Hello there, how are you?", "tara"),
            ("a", "leah"),
            ("The quick brown fox jumps over the lazy dog", "jess"),
            ("<laugh> ok " * 12, "zoe"),  # longer than one piece of prefill
            ("Why?", "leo"),
            ("Numbers 1 2 3", "dan"),
        ]
    )
]


def sound_of(generation: Any) -> np.ndarray:
    pieces = [event.data.samples for event in generation]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


@pytest.fixture(scope="module")
def alone(engine: Engine) -> list[Result]:
    """What each says by itself, with results that come at once."""
    return [engine.generate(**asked) for asked in ASKED]


def test_late_results_change_no_token_and_no_sample_also_where_others_leave(
    alone: list[Result], late: None
) -> None:
    with Engine(f"orpheus={GOLDEN}", device="cpu", dtype="float32", deterministic=True) as behind:
        rows_of_a_batch(behind, 3)
        running = [behind.stream(**asked) for asked in ASKED]
        leaving = [behind.stream(**asked | {"max_tokens": 400}) for asked in ASKED[:3]]
        leaving[0].close()  # before anything of it ran
        next(leaving[1])
        leaving[1].close()  # while it speaks
        sounds = [sound_of(generation) for generation in running]
        leaving[2].close()
        for generation, sound, expected in zip(running, sounds, alone, strict=True):
            assert generation.ended.usage == expected.usage
            assert generation.ended.finish_reason == expected.finish_reason
            assert np.array_equal(sound, expected.speech.samples)
        check_nothing_is_held(behind)
        check_it_was_late(behind)


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a family whose loop is stopped by a node that trails."""
    for folder in (HERE, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    import judged_family

    judged_family.install(tmp_path)
    yield f"judged={GOLDEN}"
    sys.modules.pop("judged_family", None)


STOPPED: list[dict[str, Any]] = [
    {"seed": 1, "enough": 12},
    {"seed": 2, "enough": 5},
    {"seed": 3, "enough": 99, "max_tokens": 20},  # nobody stops it
    {"seed": 4, "enough": 0},
]


def test_what_a_stopped_row_has_run_ahead_is_not_there(judged: str, late: None) -> None:
    """Not in the cache either: the next Walk writes what it writes where nothing had run ahead."""
    how = {"device": "cpu", "dtype": "float32", "deterministic": True}
    with Engine(judged, **how) as behind:
        running = [behind.stream(**asked) for asked in STOPPED]
        given = [[event.data for event in generation] for generation in running]
        check_nothing_is_held(behind)
        check_it_was_late(behind)
    assert [generation.ended.finish_reason for generation in running] == [
        "12 enough, 12 enough", "5 enough, 5 enough", "20 times, 20 times", "0 enough, 0 enough",
    ]  # fmt: skip
    assert [len(tokens) for tokens in given] == [24, 10, 40, 0]
    with pytest.MonkeyPatch.context() as now:
        now.setattr(assemble, "LocalEngine", LocalEngine)
        with Engine(judged, **how) as engine:
            for asked, tokens in zip(STOPPED, given, strict=True):
                with engine.stream(**asked) as generation:
                    assert [event.data for event in generation] == tokens
