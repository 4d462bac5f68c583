"""Eight voices at once, joined at different times: each says what it says alone."""

from __future__ import annotations

import time

import numpy as np

TEXTS = (
    "Hello there, how are you?",
    "a",
    "The quick brown fox jumps over the lazy dog and runs away",
    "Numbers 1 2 3",
    "Why?",
    "Some more text to speak for a while, please",
    "Zebra",
    "<laugh> ok " * 12,  # longer than one piece of prefill
)
VOICES = ("tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe")
ASKED = [
    {"text": text, "voice": voice, "seed": index, "max_tokens": 160 + 7 * index, "constrain": index % 2 == 0}
    for index, (text, voice) in enumerate(zip(TEXTS, VOICES, strict=True))
]


def _collect(generation) -> np.ndarray:
    pieces = [event.data.samples for event in generation]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def test_eight_requests_that_join_at_different_times_equal_themselves_alone(engine, tap):
    alone = []
    for asked in ASKED:
        tap.clear()
        sound = _collect(engine.stream(**asked))
        alone.append((list(tap.last), sound))
    tap.clear()
    running = []
    for index, asked in enumerate(ASKED):
        running.append(engine.stream(**asked))
        tap.wait_for_tokens(running[0].tag, 1 + 3 * index)
    sounds = [_collect(generation) for generation in running]
    assert np.mean(tap.batches) >= 6
    for generation, sound, (tokens, expected) in zip(running, sounds, alone, strict=True):
        assert tap.tokens[generation.tag] == tokens
        assert sound.shape == expected.shape
        assert np.abs(sound - expected).max() <= 1e-4


def test_a_batch_is_not_what_decides_a_sampled_token(engine, tap):
    """Another seed, another utterance: the equality above is not that of a constant."""
    first, second = (_collect(engine.stream(**ASKED[0] | {"seed": seed})) for seed in (1, 2))
    assert first.shape != second.shape or not np.array_equal(first, second)


def test_after_all_of_it_nothing_is_held(engine):
    for generation in [engine.stream(**asked) for asked in ASKED]:
        next(generation)
        generation.close()
    engine.generate(**ASKED[1])
    states = [worker.loop.state for worker in engine.workers]
    until = time.monotonic() + 20  # an end is told before the workers have let go
    while any(state.open_requests for state in states) and time.monotonic() < until:
        time.sleep(0.005)
    assert [state.open_requests for state in states] == [0, 0]
    for state in states:
        state.check()
