"""A client that falls silent while all of its request waits for it: on a clock that the test sets."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.conductor.deadlines import Deadlines
from walkserve_sdk.stalls import StreamWait

HOST, RANK0 = "speaker.host.1", "speaker.rank0.1"
CLIENT = "http"
IDLE_S = 10.0  # of the family
LOOK_S = 1.0
WAITS = StreamWait("listening", "cues", for_room=False)


def ended(number: int, track: str, **more: Any) -> m.WalkEnded:
    filled: dict[str, Any] = {"walk": 0, "ended_by": "stop", "turns": 0, "sampled": 0, "values": {}}
    return m.WalkEnded(number, track, **(filled | {"wrote": {}, "emitted": {}, "counts": {}} | more))


class Watched:
    """A request whose client writes, which only ``RANK0`` holds, and a clock."""

    def __init__(self, desk: Callable[..., Any], writes: tuple[str, ...] = ("cues",)) -> None:
        self.now = 100.0
        self.desk = desk(hears=True)
        self.deadlines = Deadlines(self.desk.state, lambda: self.now)
        self.round = 0
        self.desk.submit(7, "hello", writes=writes)
        self.tick()

    def begin(self) -> None:
        self.hear(ended(0, "prepare", values={"ids": [1], "length": 1}))
        self.hear(m.RequestClosed(0, "speaker.host", HOST))

    def hear(self, *messages: m.Message) -> dict[str, list[m.Message]]:
        said = self.desk.hear(*messages)
        for address, more in self.tick().items():
            said.setdefault(address, []).extend(more)
        return said

    def tick(self, seconds: float = 0) -> dict[str, list[m.Message]]:
        """Time goes on; the loop comes round as often as it would."""
        said: dict[str, list[m.Message]] = {}
        until = self.now + seconds
        for _ in range(1000):
            for address, more in self.desk.hear_of(lambda state: self.deadlines.keep()).items():
                said.setdefault(address, []).extend(more)
            wait_s = self.deadlines.wait_s()
            if wait_s is None or self.now + wait_s > until:
                self.now = until
                return said
            self.now += wait_s
        raise AssertionError("the loop does not come to rest")

    def rests(self, said: dict[str, list[m.Message]]) -> dict[str, list[m.Message]]:
        """The worker answers that all it runs waits for its client."""
        (watch,) = (one for one in said[RANK0] if isinstance(one, m.Watch))
        return self.hear(m.Stuck(0, watch.round, RANK0, {}, {}, (WAITS,)))


@pytest.fixture
def it(desk: Callable[..., Any]) -> Watched:
    made = Watched(desk)
    made.begin()
    return made


SILENT = m.Fault(
    "nothing was written to 'cues' for 10 s, and all of the request waits for it; write within that time, or "
    "end the stream",
    408,
    "timeout",
    "client_idle",
)


def test_a_client_that_writes_nothing_for_too_long_is_told_so(it: Watched) -> None:
    asked = it.tick(LOOK_S)
    assert asked == {RANK0: [m.Watch(0, 1)]}
    assert it.rests(asked) == {}
    assert it.tick(IDLE_S - 0.1) == {}
    assert it.tick(0.1) == {CLIENT: [m.RequestFailed(7, SILENT)], RANK0: [m.CloseRequest(0)]}
    it.hear(m.RequestClosed(0, "speaker.rank0", RANK0))
    assert it.tick(IDLE_S) == {} and it.deadlines.wait_s() is None and len(it.deadlines) == 0


def test_while_its_last_item_is_worked_at_a_client_is_not_silent_however_long_that_takes(it: Watched) -> None:
    asked = it.tick(LOOK_S)
    assert it.tick(50 * IDLE_S) == {}  # the worker does not answer: it is busy
    it.rests(asked)  # now it is done
    assert it.tick(IDLE_S - 0.1) == {}
    assert CLIENT in it.tick(0.1)


@pytest.mark.parametrize(
    "goes_on",
    [
        m.WriteStream(CLIENT, 7, "cues", 0, [1]),
        ended(0, "sounding"),
    ],
    ids=["its client writes", "a Walk ends"],
)
def test_whatever_goes_on_begins_its_time_anew(it: Watched, goes_on: m.Message) -> None:
    it.rests(it.tick(LOOK_S))
    it.tick(IDLE_S - 0.1)
    it.hear(goes_on)
    asked = it.tick(IDLE_S)
    assert [type(one) for one in asked[RANK0]] == [m.Watch] and CLIENT not in asked
    it.rests(asked)
    assert it.tick(IDLE_S - 0.1) == {}
    assert CLIENT in it.tick(0.1)


def test_an_answer_from_before_the_client_wrote_counts_no_more(it: Watched) -> None:
    asked = it.tick(LOOK_S)
    it.hear(m.WriteStream(CLIENT, 7, "cues", 0, [1]))
    it.rests(asked)  # it crossed the item
    assert not next(iter(it.desk.state.lives)).rests


def test_who_has_ended_its_streams_is_not_waited_for(it: Watched) -> None:
    it.tick(LOOK_S)
    it.hear(m.FinishStream(CLIENT, 7, "cues", 0))
    assert it.tick(100 * IDLE_S) == {} and it.deadlines.wait_s() is None


def test_one_whose_items_nobody_reads_any_more_is_not_waited_for(it: Watched) -> None:
    it.hear(ended(0, "listening"))
    assert it.tick(100 * IDLE_S) == {} and it.deadlines.wait_s() is None


def test_a_request_that_does_not_run_yet_waits_for_nobody(desk: Callable[..., Any]) -> None:
    made = Watched(desk)
    assert made.tick(100 * IDLE_S) == {}
    made.begin()
    assert RANK0 in made.tick(LOOK_S)


def test_who_never_said_it_would_write_is_not_waited_for(desk: Callable[..., Any]) -> None:
    made = Watched(desk, writes=())
    made.begin()
    assert made.tick(100 * IDLE_S) == {} and made.deadlines.wait_s() is None


def test_a_stream_may_wait_for_as_long_as_its_request_may_take(
    desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Watched(desk)
    monkeypatch.setattr(made.desk.served["speaker"].model.spec.streams["cues"], "idle_s", inf)
    made.begin()
    assert made.tick(1e9) == {} and made.deadlines.wait_s() is None


def test_a_request_that_hangs_beside_its_client_is_found_when_it_is_looked_at(it: Watched) -> None:
    (watch,) = it.tick(LOOK_S)[RANK0]
    waits = (StreamWait("writing", "codes", for_room=True),)
    said = it.hear(m.Stuck(0, watch.round, RANK0, {"codes": (8, 3)}, {"codes": (8, 3)}, waits))
    assert said[CLIENT][0].fault.code == "stalled"


def test_who_ticks_faster_than_it_is_looked_at_is_never_asked_about(it: Watched) -> None:
    for count in range(200):
        it.tick(LOOK_S / 2)
        said = it.hear(m.WriteStream(CLIENT, 7, "cues", count, [1]), m.StreamTaken(0, "cues", count + 1))
        assert said == {
            RANK0: [m.StreamItems(0, "cues", count, [1])],
            CLIENT: [m.ItemsTaken(7, "cues", count + 1)],
        }
    assert len(it.deadlines) == 1


def test_long_silences_of_requests_that_have_ended_do_not_pile_up(desk: Callable[..., Any]) -> None:
    made = Watched(desk)
    made.begin()
    for number in range(1, 1500):
        made.desk.submit(100 + number, "hello", writes=("cues",))
        made.desk.hear(ended(number, "prepare", values={"ids": [1], "length": 1}))
        made.desk.hear(m.Cancel(CLIENT, 100 + number))
        made.desk.hear(m.RequestClosed(number, "speaker.host", HOST))
        made.desk.hear(m.RequestClosed(number, "speaker.rank0", RANK0))
        made.desk.hear_of(lambda state: made.deadlines.keep())
    assert len(made.deadlines) < 300
