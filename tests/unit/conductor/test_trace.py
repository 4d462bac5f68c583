"""What the conductor notes of a request where profiles are on; where they are off it says none of it."""

from collections.abc import Callable
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.conductor.trace import Trace

HOST, RANK0 = "speaker.host.1", "speaker.rank0.1"
Desk = Any


def ended(number: int, track: str, turns: int = 0, **values: m.Value) -> m.WalkEnded:
    return m.WalkEnded(number, track, 0, "end", turns, turns, values, {}, {}, {})


def traced(desk: Desk, *messages: m.Message) -> list[m.Traced]:
    said = desk.hear(*messages).get("http", [])
    return [one for one in said if isinstance(one, m.Traced)]


@pytest.fixture
def profiling(desk: Callable[..., Desk]) -> Desk:
    made = desk()
    made.served["speaker"].profiles = True
    return made


PREPARED = ended(0, "prepare", ids=[1, 2, 3], length=3)


def test_a_request_that_ends_well_is_told_with_its_phases_and_walks_right_after_its_end(
    profiling: Desk,
) -> None:
    profiling.submit(7)
    profiling.hear(PREPARED, ended(0, "writing", 5))
    said = profiling.hear(ended(0, "sounding", 6))["http"]
    assert [type(one) for one in said] == [m.RequestEnded, m.Traced]
    told = said[1]
    assert (told.tag, set(told.workers)) == (7, {HOST, RANK0})
    assert [what for what, _ in told.marks] == ["submitted", "prepared", "admitted", "ended"]
    assert [at for _, at in told.marks] == sorted(at for _, at in told.marks)
    walks = [
        (walk.track, walk.graph, walk.worker, walk.turns, walk.bytes_in, walk.bytes_out)
        for walk in told.walks
    ]
    assert walks == [
        ("prepare", "encode", HOST, 0, 5, 32),  # "hello"; three numbers and a length
        ("writing", "write", RANK0, 5, 32, 0),
        ("sounding", "vocode", RANK0, 6, 0, 0),
    ]
    assert all(walk.began_ns <= walk.ended_ns for walk in told.walks)


def test_a_request_that_is_cancelled_or_fails_is_told_too(profiling: Desk) -> None:
    profiling.submit(7)
    (told,) = traced(profiling, m.Cancel("http", 7))
    assert told.marks[-1][0] == "cancelled" and told.walks[0].ended_ns == 0
    profiling.submit(8)
    (told,) = traced(profiling, m.WalkBroke(1, "prepare", 0, m.Fault("no")))
    assert told.marks[-1][0] == "failed" and told.walks[0].ended_by == "failed"


def test_a_request_is_told_once(profiling: Desk) -> None:
    profiling.submit(7)
    assert len(traced(profiling, m.Cancel("http", 7), m.Cancel("http", 7))) == 1


def test_where_profiles_are_off_no_message_differs(desk: Callable[..., Desk], profiling: Desk) -> None:
    off = desk()
    for message in (PREPARED, ended(0, "writing", 5), ended(0, "sounding", 6)):
        if message is PREPARED:
            assert off.submit(7) == profiling.submit(7)
        with_profile = profiling.hear(message)
        without = off.hear(message)
        assert not any(isinstance(one, m.Traced) for said in without.values() for one in said)
        kept = {
            to: [one for one in said if not isinstance(one, m.Traced)] for to, said in with_profile.items()
        }
        assert kept == without


def test_of_many_walks_the_first_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walkserve.conductor.trace.MOST_WALKS", 2)
    trace = Trace([HOST])
    for walk in range(3):
        trace.walk_started("writing", walk, "write", RANK0, {})
        trace.walk_ended(m.WalkEnded(0, "writing", walk, "end", 1, 1, {}, {}, {}, {}))
    assert [walk.walk for walk in trace.told(1).walks] == [0, 1]
