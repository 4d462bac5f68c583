"""Streams that a request's client writes: what the conductor passes on, counts, and refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.streams.client import MOST_BYTES

HOST, RANK0 = "speaker.host.1", "speaker.rank0.1"
CLIENT = "http"
Desk = Any


def ended(number: int, track: str, walk: int = 0, **more: Any) -> m.WalkEnded:
    filled: dict[str, Any] = {"ended_by": "stop", "turns": 0, "sampled": 0, "values": {}, "wrote": {}}
    return m.WalkEnded(number, track, walk, **(filled | {"emitted": {}, "counts": {}} | more))


ENCODED = ended(0, "prepare", values={"ids": [1], "length": 1})


def write(first: int, *items: m.Value, stream: str = "cues") -> m.WriteStream:
    return m.WriteStream(CLIENT, 7, stream, first, list(items))


def finish(total: int, stream: str = "cues") -> m.FinishStream:
    return m.FinishStream(CLIENT, 7, stream, total)


def asked(desk: Callable[..., Desk], *, writes: tuple[str, ...] = ("cues",), text: str = "hello") -> Desk:
    """A request that is prepared."""
    it = desk(hears=True)
    it.submit(7, text, writes=writes)
    return it


def running(desk: Callable[..., Desk], **how: Any) -> Desk:
    it = asked(desk, **how)
    it.hear(ENCODED)
    return it


def fault_of(said: dict[str, list[m.Message]]) -> m.Fault:
    (failed,) = (one for one in said[CLIENT] if isinstance(one, m.RequestFailed))
    return failed.fault


def test_what_a_client_writes_goes_to_the_worker_that_reads_it_in_order_and_numbered(
    desk: Callable[..., Desk],
) -> None:
    it = running(desk)
    image = m.Blob(b"a picture")
    assert it.hear(write(0, "left", 3)) == {RANK0: [m.StreamItems(0, "cues", 0, ["left", 3])]}
    assert it.hear(write(2, image)) == {RANK0: [m.StreamItems(0, "cues", 2, [image])]}
    assert it.hear(finish(3)) == {RANK0: [m.EndStream(0, "cues", 3)]}


def test_it_may_write_before_its_request_runs_as_well(desk: Callable[..., Desk]) -> None:
    it = desk(hears=True, pages=16)
    it.submit(6, "hello", max_tokens=20)
    it.hear(ENCODED)  # and has all the pages
    it.submit(7, "hello", max_tokens=20, writes=("cues",))
    assert it.hear(write(0, 1)) == {RANK0: [m.StreamItems(1, "cues", 0, [1])]}  # while it is prepared
    it.hear(ended(1, "prepare", values={"ids": [1], "length": 1}))
    assert len(it.served["speaker"].queue) == 1
    assert it.hear(write(1, 2)) == {RANK0: [m.StreamItems(1, "cues", 1, [2])]}  # while it waits for room
    assert it.hear(finish(2)) == {RANK0: [m.EndStream(1, "cues", 2)]}


def test_a_stream_that_its_client_does_not_write_has_ended_at_once(desk: Callable[..., Desk]) -> None:
    it = desk(hears=True)
    said = it.submit(7, "hello")
    assert said[RANK0] == [
        m.OpenRequest(0, CLIENT, 7, said[RANK0][0].options, 3, ("speech",)),
        m.EndStream(0, "cues", 0),
    ]


def test_a_client_that_would_write_what_there_is_not_is_refused(desk: Callable[..., Desk]) -> None:
    it = desk(hears=True)
    fault = fault_of(it.submit(7, "hello", writes=("cuse",)))
    assert (fault.status, fault.param) == (400, "cuse")
    assert fault.message == "speaker takes no stream 'cuse' from its client; did you mean 'cues'?"
    it = desk()
    fault = fault_of(it.submit(7, "hello", writes=("codes",)))
    assert fault.message == (
        "speaker takes no stream 'codes' from its client; it has no stream that a client writes"
    )


def test_its_client_is_told_what_was_taken(desk: Callable[..., Desk]) -> None:
    it = running(desk)
    it.hear(write(0, 1, 2, 3))
    assert it.hear(m.StreamTaken(0, "cues", 2)) == {CLIENT: [m.ItemsTaken(7, "cues", 2)]}
    assert it.hear(write(3, 4, 5)) == {RANK0: [m.StreamItems(0, "cues", 3, [4, 5])]}
    it.hear(finish(5))
    assert it.hear(m.StreamTaken(0, "cues", 5)) == {}, "it has nothing to wait for any more"


def test_when_the_track_that_reads_has_returned_what_is_written_goes_nowhere(
    desk: Callable[..., Desk],
) -> None:
    it = running(desk)
    it.hear(write(0, 1, 2))
    said = it.hear(ended(0, "listening"))
    assert said[CLIENT] == [m.ItemsTaken(7, "cues", 2, is_discarded=True)]
    assert it.hear(write(2, *range(50))) == {}
    assert it.hear(m.StreamTaken(0, "cues", 1)) == {}  # it crossed the end
    assert it.hear(finish(52)) == {}


def test_a_track_that_needs_no_stream_discards_it(desk: Callable[..., Desk]) -> None:
    it = asked(desk, text="silence")
    said = it.hear(ENCODED)
    assert m.ItemsTaken(7, "cues", 0, is_discarded=True) in said[CLIENT]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ([write(0, 1, 2, 3), write(3, 4)], "cues: 3 items (24 bytes) are unread, and 3 items or 67,108,864"),
        ([write(0, *range(9))], "cues: 3 items (24 bytes) are unread"),
        (
            [write(0, m.Blob(b" " * MOST_BYTES)), write(1, m.Blob(b"1"))],
            "cues: 1 items (67,108,864 bytes) are unread",
        ),
        ([write(1, 1)], "cues: item 1 came where 0 was due"),
        ([write(0, 1), finish(2)], "cues: item 2 came where 1 was due"),
        ([finish(0), write(0, 1)], "cues: the stream has ended, and takes no more"),
        ([finish(0), finish(0)], "cues: the stream has ended, and takes no more"),
        (
            [write(0, 1, stream="codes")],
            "speaker takes no stream 'codes' from its client; did you mean 'cues'?",
        ),
        ([finish(0, stream="nothing")], "speaker takes no stream 'nothing' from its client; known: cues"),
    ],
)
def test_what_cannot_be_written_fails_its_request_alone_and_says_why(
    desk: Callable[..., Desk], written: list[m.Message], told: str
) -> None:
    it = running(desk)
    it.submit(8, "hello", writes=("cues",))
    *before, last = written
    for message in before:
        assert CLIENT not in it.hear(message)
    said = it.hear(last)
    fault = fault_of(said)
    assert fault.status == 400 and fault.message.startswith(told)
    assert m.CloseRequest(0) in said[RANK0]
    assert it.hear(write(0, 1)) == {}  # it is closing
    other = m.WriteStream(CLIENT, 8, "cues", 0, ["go on"])
    assert it.hear(other) == {RANK0: [m.StreamItems(1, "cues", 0, ["go on"])]}


def test_a_worker_that_says_more_was_taken_than_was_written_fails_the_request(
    desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    it = running(desk)
    assert fault_of(it.hear(m.StreamTaken(0, "cues", 9))).status == 500
    it = running(desk)
    assert fault_of(it.hear(m.StreamTaken(0, "nothing", 0))).status == 500


def test_when_the_worker_that_reads_is_lost_the_request_fails_and_what_is_written_goes_nowhere(
    desk: Callable[..., Desk],
) -> None:
    it = running(desk)
    it.hear(write(0, 1))
    assert fault_of(it.hear(m.WorkerLost("speaker.rank0", RANK0, "was killed"))).code == "worker_lost"
    assert it.hear(write(1, 2), finish(2)) == {}
    it.hear(m.RequestClosed(0, "speaker.host", HOST))
    assert it.state.open_requests == 0
    assert it.hear(write(1, 2), finish(2)) == {}


def test_what_is_written_to_a_request_that_was_refused_goes_nowhere(desk: Callable[..., Desk]) -> None:
    it = asked(desk, text="refuse")
    assert it.hear(write(0, 1), finish(1)) == {}


def test_a_warm_up_writes_nothing(desk: Callable[..., Desk]) -> None:
    it = desk(hears=True)
    said = it.submit(1, "warm", client="")
    assert said[RANK0][-1] == m.EndStream(0, "cues", 0)
