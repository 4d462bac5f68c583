"""What a worker notes of one request where profiles are on, and that it notes nothing where they are off."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.profiles.report import FLOW_FIELDS, STEP_FIELDS, columns
from walkserve.worker.profile import RequestProfile
from walkserve_sdk.runtime import Stop

Bench = Callable[..., Any]


class Call:
    """As much of a call as a profile looks at."""

    def __init__(self, **changes: Any) -> None:
        self.op = SimpleNamespace(
            component="lm", reads=("words",), streams=(("id", "codes"),), outputs=(("text", "said"),)
        )
        live = SimpleNamespace(opened=SimpleNamespace(outputs=("said",)))
        self.run = SimpleNamespace(track="writing", walk=2, is_closed=False, live=live)
        self.frame = SimpleNamespace(turn=4, is_dropped=False)
        self.helpings = [SimpleNamespace(fresh=3)]
        self.done, self.tokens = 0, 1
        for name, value in changes.items():
            setattr(self, name, value)


class Clock:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def work(*calls: Any, began: int, ended: int) -> Any:
    return SimpleNamespace(key=("lm", "next"), calls=list(calls), began_ns=began, ended_ns=ended)


def gave(stop: Stop | None = None, **gives: Any) -> Any:
    return SimpleNamespace(gives=gives, stop=stop)


def told(profile: RequestProfile) -> m.Profiled:
    return profile.told(7, "pipe.rank0", "pipe.rank0.1")


def steps(profile: RequestProfile) -> dict[str, list[int]]:
    return columns(told(profile).steps, STEP_FIELDS)


def test_a_call_is_noted_from_when_it_was_ready_to_when_its_batch_ended() -> None:
    clock, call = Clock(), Call()
    profile = RequestProfile(clock)
    for now, event in (
        (100, profile.offered),
        (130, lambda one: profile.parked(one, "words")),
        (170, profile.offered),
    ):
        clock.now = now
        event(call)
    clock.now = 180
    profile.queued(call)
    profile.ran(call, 1, work(call, "another", began=200, ended=260), gave(id=1))
    assert steps(profile) == {
        "method": [0],
        "track": [0],
        "walk": [2],
        "turn": [4],
        "tokens": [1],
        "rows": [2],
        "ready_ns": [100],
        "queued_ns": [180],
        "began_ns": [200],
        "ended_ns": [260],
        "stream": [0],
        "stream_wait_ns": [40],
    }
    message = told(profile)
    assert (message.tracks, message.streams) == (("writing",), ("words",))
    assert message.methods == (
        m.MethodTotal(
            *("lm", "next"),
            calls=1,
            rows=2,
            tokens=1,
            busy_ns=60,
            cost_ns=30,
            stream_wait_ns=40,
            branch_wait_ns=40,
            batch_wait_ns=20,
        ),
    )


def test_two_rows_of_one_request_in_a_batch_take_its_time_once() -> None:
    profile, one, other = RequestProfile(Clock()), Call(), Call()
    both = work(one, other, began=10, ended=30)
    profile.ran(one, 1, both, gave())
    profile.ran(other, 1, both, gave())
    (total,) = told(profile).methods
    assert (total.calls, total.busy_ns, total.cost_ns) == (2, 20, 20)


def test_what_it_gave_and_read_is_counted_by_edge() -> None:
    profile, call = RequestProfile(Clock()), Call()
    profile.offered(call)
    profile.queued(call)
    profile.ran(call, 1, work(call, began=10, ended=30), gave(id=5, text="ab"))
    message = told(profile)
    assert message.edges == (
        m.EdgeTotal("stream", "words", "lm", True, 3, 0),
        m.EdgeTotal("stream", "codes", "lm", False, 1, 8),
        m.EdgeTotal("output", "said", "lm", False, 1, 2),
    )
    assert columns(message.flows, FLOW_FIELDS) == {
        "edge": [0, 1, 2],
        "at_ns": [0, 30, 30],
        "items": [3, 1, 1],
    }


@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({"frame": SimpleNamespace(turn=4, is_dropped=True)}, None),  # computed one turn late, thrown away
        ({}, Stop("stop")),  # a stop without keep gives nothing
    ],
)
def test_what_is_thrown_away_took_its_time_and_gave_nothing(
    changes: dict[str, Any], stop: Stop | None
) -> None:
    profile, call = RequestProfile(Clock()), Call(**changes)
    profile.ran(call, 1, work(call, began=10, ended=30), gave(stop, id=5, text="ab"))
    message = told(profile)
    assert message.methods[0].calls == 1
    assert [edge for edge in message.edges if not edge.is_read] == []


def test_an_output_that_nobody_asked_for_is_no_edge() -> None:
    profile, call = RequestProfile(Clock()), Call()
    call.run.live.opened.outputs = ()
    profile.ran(call, 1, work(call, began=10, ended=30), gave(text="ab"))
    assert [edge.kind for edge in told(profile).edges] == ["stream"]


def test_the_rest_of_a_long_row_is_ready_when_the_piece_before_it_is_done() -> None:
    profile, call = RequestProfile(Clock()), Call(tokens=10)
    profile.ran(call, 6, work(call, began=10, ended=30), gave(id=1))
    call.done = 6
    profile.ran(call, 4, work(call, began=50, ended=60), gave(id=1))
    found = steps(profile)
    assert (found["tokens"], found["ready_ns"], found["began_ns"]) == ([6, 4], [10, 30], [10, 50])
    assert [edge.items for edge in told(profile).edges if edge.name == "codes"] == [1]  # once, at its end


def test_of_many_calls_the_first_are_kept_and_all_are_counted() -> None:
    profile = RequestProfile(Clock(), most=3)
    for n in range(5):
        profile.ran(call := Call(), 1, work(call, began=n, ended=n + 1), gave(id=1))
    message = told(profile)
    assert len(steps(profile)["turn"]) == 3 and message.uncounted == 2
    assert message.methods[0].calls == 5
    assert len(message.flows) == 3 * len(FLOW_FIELDS) * 8


def run_pipe(bench: Bench, *, profiles: bool, client: str = "http") -> dict[str, list[m.Message]]:
    """Both ends of a stream on one worker, from open to closed; all that was said."""
    worker = bench("pipe.rank0")
    worker.state.profiles = profiles
    said: dict[str, list[m.Message]] = {}

    def add(more: dict[str, list[m.Message]]) -> None:
        for address, messages in more.items():
            said.setdefault(address, []).extend(messages)

    worker.open(0, client=client)
    add(worker.hear(m.StartWalk(0, "writing", 0, "write", {"n": 0, "most": 3})))
    add(worker.hear(m.StartWalk(0, "reading", 0, "read", {})))
    add(worker.run())
    add(worker.hear(m.EndStream(0, "items", 3)))
    add(worker.run())
    add(worker.hear(m.CloseRequest(0)))
    return said


def test_where_profiles_are_off_no_message_differs(bench: Bench) -> None:
    off, on = run_pipe(bench, profiles=False), run_pipe(bench, profiles=True)
    assert not any(isinstance(one, m.Profiled) for messages in off.values() for one in messages)
    (profiled,) = [one for one in on["http"] if isinstance(one, m.Profiled)]
    on["http"].remove(profiled)
    assert on == off


def test_a_profile_is_told_before_the_request_is_closed(bench: Bench) -> None:
    worker = bench("pipe.rank0")
    worker.state.profiles = True
    worker.open(0)
    worker.hear(m.StartWalk(0, "writing", 0, "write", {"n": 0, "most": 3}))
    worker.run()
    said = worker.hear(m.CloseRequest(0))
    assert [type(one) for messages in said.values() for one in messages] == [m.Profiled, m.RequestClosed]
    (profiled,) = said["http"]
    (total,) = profiled.methods
    assert (profiled.tag, total.component, total.method, total.calls) == (100, "lm", "next", 2)


def test_a_writer_that_waits_for_room_in_its_stream_is_told_to_have_waited(bench: Bench) -> None:
    said = run_pipe(bench, profiles=True)
    (profiled,) = [one for one in said["http"] if isinstance(one, m.Profiled)]
    found = columns(profiled.steps, STEP_FIELDS)
    method = {f"{one.component}.{one.method}": n for n, one in enumerate(profiled.methods)}
    assert found["method"].count(method["lm.next"]) == 3
    assert found["method"].count(method["codec.decode"]) >= 3
    assert profiled.streams == ("items",)
    assert {edge.name: edge.items for edge in profiled.edges if not edge.is_read}["items"] == 3
    for ready, queued, wait in zip(
        found["ready_ns"], found["queued_ns"], found["stream_wait_ns"], strict=True
    ):
        assert 0 <= wait <= queued - ready


def test_nothing_is_noted_of_a_warm_up_which_nobody_will_read(bench: Bench) -> None:
    said = run_pipe(bench, profiles=True, client="")
    assert not any(isinstance(one, m.Profiled) for messages in said.values() for one in messages)
