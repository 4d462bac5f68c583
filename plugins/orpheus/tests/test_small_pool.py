"""A cache of eight pages and six requests that need three each: all end, and each says what it says alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from walk_plugin_orpheus import Orpheus
from walkserve import Engine
from walkserve_sdk import ContextLengthExceeded

GOLDEN = Path(__file__).parent / "data" / "golden"
PAGE = Orpheus.llama.kv.page_size
TEXTS = ("Hello there", "Why not?", "Zebra", "Numbers 1 2", "ok ok ok", "a b c d")
VOICES = ("tara", "leah", "jess", "leo", "dan", "mia")


def asked(index: int, prompt: int, *, pages: int = 3) -> dict:
    """A request that fills so many pages with what it has to begin with and what it adds."""
    most = pages * PAGE - prompt
    return {
        "text": TEXTS[index],
        "voice": VOICES[index],
        "seed": index,
        "max_tokens": most,
        "temperature": 1.0,
    }


@contextmanager
def small(overcommit: float, pages: int = 8) -> Iterator[Engine]:
    how = {"device": "cpu", "dtype": "float32", "deterministic": True}
    with Engine(f"orpheus={GOLDEN}", cache_tokens=pages * PAGE, overcommit=overcommit, **how) as engine:
        yield engine


def heard(generation) -> np.ndarray:
    pieces = [event.data.samples for event in generation]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def room(engine: Engine):
    """Of the worker with the language model."""
    (worker,) = [worker for worker in engine.workers if worker.name == engine.config.ranks["llama"]]
    return worker.loop.state.room


@pytest.fixture(scope="module")
def alone(engine, _tap):
    """Of each of the six: what is asked, its tokens and its sound, from an engine with room for all."""
    found = []
    for index in range(len(TEXTS)):
        generation = engine.stream(text=TEXTS[index], voice=VOICES[index], max_tokens=1)
        heard(generation)
        asking = asked(index, generation.ended.usage["input_tokens"])
        _tap.clear()
        generation = engine.stream(**asking)
        sound = heard(generation)
        usage = generation.ended.usage
        assert 2 * PAGE < usage["input_tokens"] + usage["output_tokens"] <= 3 * PAGE, "it does need three"
        found.append((asking, list(_tap.last), sound))
    return found


@pytest.mark.parametrize("overcommit", [1.0, 2.0])
def test_six_requests_of_three_pages_share_eight_and_equal_themselves_alone(alone, overcommit, make_tap):
    with small(overcommit) as engine:
        tap = make_tap(engine)
        running = [engine.stream(**asking) for asking, _, _ in alone]
        sounds = [heard(generation) for generation in running]
        for generation, sound, (_, tokens, expected) in zip(running, sounds, alone, strict=True):
            assert tap.tokens[generation.tag] == tokens
            assert np.array_equal(sound, expected)
        moved = room(engine).moves["llama"]
        if overcommit == 1.0:
            assert moved.caches_out == 0 and max(tap.batches) <= 2
        else:
            assert moved.caches_out > 0 and moved.pages_back == moved.pages_out > 0
            assert max(tap.batches) > 2


@pytest.mark.parametrize("overcommit", [1.0, 2.0])
def test_one_that_needs_nine_pages_is_refused_at_once_with_both_numbers(overcommit):
    with small(overcommit) as engine:
        with pytest.raises(ContextLengthExceeded) as refused:
            engine.generate(**asked(0, 0, pages=9))
        assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
        assert f"one request may have {8 * PAGE}" in str(refused.value)
        assert refused.value.param == "max_tokens"
