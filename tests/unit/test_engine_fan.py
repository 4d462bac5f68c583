"""A Fan on an Engine: futures from one context, each what it is alone, in no more pages than there are."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.families import trial

from walkserve import Engine
from walkserve.api import OutputEvent
from walkserve_sdk import WalkserveError

SOON_S = 20
PAGE = 4
TEXT = "what was seen"  # 13 tokens: three pages full, and one begun


@pytest.fixture(scope="module")
def _family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = trial.install(tmp_path_factory.mktemp("plugins") / "futures", "futures").split(":")
    yield
    sys.path[:] = before


@contextmanager
def opened(pages: int, **settings: Any) -> Iterator[Engine]:
    with Engine(
        "futures", device="cpu", dtype="float32", deterministic=True, cache_tokens=pages * PAGE, **settings
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def wide(_family: None) -> Iterator[Engine]:
    """With pages for everything."""
    with opened(1000) as engine:
        yield engine


@contextmanager
def watched(engine: Engine) -> Iterator[Callable[[], int]]:
    """Within, how many pages are held at most is counted, whenever a batch is about to run."""
    loops = [worker.loop for worker in engine.workers if worker.loop and "world" in worker.loop.state.caches]
    (loop,) = loops
    pool, submit, most = loop.state.caches["world"].pool, loop.engine.submit, [0]

    def counting(key: Any, rows: Any) -> Any:
        pending = submit(key, rows)
        most[0] = max(most[0], pool.held)
        return pending

    loop.engine.submit = counting  # type: ignore[method-assign]
    try:
        yield lambda: most[0]
    finally:
        loop.engine.submit = submit  # type: ignore[method-assign]


def test_each_future_is_to_the_bit_what_it_is_alone(wide: Engine) -> None:
    """Only its index may differ, which random draws depend on: so it stands where it stood."""
    plans = ("abc", "bcd", "cde", "abc", "xyz", "zzz", "aaa")
    whole = wide.generate(text=TEXT, plans=plans, seed=3)
    assert whole.latents.shape == (7, 3, 2, 16)
    for row, plan in enumerate(plans):
        alone = wide.generate(text=TEXT, plans=("",) * row + (plan,), seed=3)
        assert np.array_equal(alone.latents[row], whole.latents[row])
        assert alone.notes[row] == whole.notes[row] == plan
    assert not np.array_equal(whole.latents[0], whole.latents[3])  # the same plan, another row's noise


def test_rows_go_on_from_what_was_seen(wide: Engine) -> None:
    one, other = (wide.generate(text=text, plans=("a",), seed=3).latents for text in ("seen", "been"))
    assert one.shape == other.shape and not np.array_equal(one, other)


def test_events_say_which_row_they_are_of_and_those_of_a_row_are_in_order(wide: Engine) -> None:
    with wide.stream(text=TEXT, plans=("abc", "bc"), seed=3) as generation:
        events = list(generation)
    assert {type(event) for event in events} == {OutputEvent}
    notes = [(event.index, event.data) for event in events if event.output == "notes"]
    assert [data for index, data in notes if index == 0] == ["a", "b", "c"]
    assert [data for index, data in notes if index == 1] == ["b", "c"]
    assert [event.index for event in events if event.output == "weights"] == [None]


def test_rows_that_end_apart_are_a_list(wide: Engine) -> None:
    result = wide.generate(text=TEXT, plans=("abc", "b.x", "", "c"), seed=3)
    assert [getattr(one, "shape", one) for one in result.latents] == [(3, 2, 16), (1, 2, 16), [], (1, 2, 16)]
    assert result.notes == ["abc", "b", "", "c"]
    assert len(result.weights) == 4


def test_no_futures_are_an_empty_answer(wide: Engine) -> None:
    result = wide.generate(text=TEXT, plans=(), seed=3)
    assert result.latents is None and result.weights.tolist() == []


def test_every_round_fans_out_anew_from_a_longer_context(wide: Engine) -> None:
    once = wide.generate(text=TEXT, plans=("ab", "bc"), seed=3)
    twice = wide.generate(text=TEXT, plans=("ab", "bc"), rounds=2, seed=3)
    assert np.array_equal(twice.latents[:, :2], once.latents)
    assert twice.latents.shape == (2, 4, 2, 16) and len(twice.weights) == 2


def test_rows_share_the_pages_of_the_context(wide: Engine) -> None:
    with watched(wide) as most:
        wide.generate(text="x" * 401, plans=("a",) * 50, seed=3)
    assert most() == 101 + 50  # the context's, and a copy of its last page for each row: 401 + 3 tokens


def test_sixty_four_rows_in_a_pool_for_few_run_in_waves_to_the_same_bits(_family: None, wide: Engine) -> None:
    plans = tuple("abcdefgh"[row % 8] * 4 for row in range(64))
    expected = wide.generate(text=TEXT, plans=plans, seed=3)
    with opened(32) as narrow, watched(narrow) as most:
        result = narrow.generate(text=TEXT, plans=plans, seed=3)
        assert most() <= 32 and most() > 24
        assert np.array_equal(result.latents, expected.latents)
        assert np.array_equal(result.weights, expected.weights)


@pytest.mark.parametrize("overcommit", [1.0, 2.0])
def test_two_requests_that_fan_out_in_a_small_pool_both_end(
    _family: None, wide: Engine, overcommit: float
) -> None:
    asks = [
        {"text": TEXT[:length], "plans": (plan,) * 12, "rounds": 2, "seed": 3}
        for length, plan in [(13, "abcd"), (9, "bb"), (5, "xyzxyz"), (12, "a")]
    ]
    expected = [wide.generate(**ask) for ask in asks]
    with opened(26, overcommit=overcommit) as narrow, ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(narrow.generate, **ask) for ask in asks * 2]
        for future, whole in zip(futures, expected * 2, strict=True):
            assert np.array_equal(future.result(SOON_S).latents, whole.latents)


def test_a_row_that_raises_fails_its_request_and_no_other(_family: None, wide: Engine) -> None:
    expected = wide.generate(text=TEXT, plans=("abc",) * 9, seed=3)
    with opened(32) as narrow, ThreadPoolExecutor(2) as pool:
        good = pool.submit(narrow.generate, text=TEXT, plans=("abc",) * 9, seed=3)
        with pytest.raises(WalkserveError, match="world.step failed"):
            narrow.generate(text=TEXT, plans=("abc", "abc", "a!c", "abc"), seed=3)
        assert np.array_equal(good.result(SOON_S).latents, expected.latents)


def test_a_request_that_is_cancelled_in_the_middle_gives_everything_back(wide: Engine) -> None:
    for _ in range(3):
        with wide.stream(text=TEXT, plans=("abcdef",) * 20, turn_ms=5, seed=3) as generation:
            next(generation)
    loops = [worker.loop for worker in wide.workers if worker.loop is not None]
    gone = threading.Event()
    for _ in range(1000):
        if not any(loop.state.open_requests for loop in loops):
            break
        gone.wait(0.01)
    assert all(cache.pool.held == 0 for loop in loops for cache in loop.state.caches.values())
