"""Whether a request hangs is asked in rounds, and only where a stream was full."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from walkserve import messages as m
from walkserve_sdk.stalls import StreamWait

HOST, RANK0 = "speaker.host.1", "speaker.rank0.1"
CLIENT = "http"
Desk = Any

WRITER = StreamWait("writing", "codes", for_room=True)
READER = StreamWait("sounding", "codes", for_room=False)


def ended(number: int, track: str, **more: Any) -> m.WalkEnded:
    filled: dict[str, Any] = {"walk": 0, "ended_by": "stop", "turns": 0, "sampled": 0, "values": {}}
    return m.WalkEnded(number, track, **(filled | {"wrote": {}, "emitted": {}, "counts": {}} | more))


def stuck(
    round: int,
    *waits: StreamWait,
    address: str = RANK0,
    wrote: tuple[int, int] | None = None,
    read: tuple[int, int] | None = None,
) -> m.Stuck:
    return m.Stuck(
        0,
        round,
        address,
        {} if wrote is None else {"codes": wrote},
        {} if read is None else {"codes": read},
        waits,
    )


def running(desk: Callable[..., Desk], *, text: str = "hello", on_two: bool = False) -> Desk:
    """A request whose tracks have started. On two: the host has not let go of it."""
    it = desk()
    it.submit(7, text)
    it.hear(ended(0, "prepare", values={"ids": [1], "length": 1}))
    if not on_two:
        it.hear(m.RequestClosed(0, "speaker.host", HOST))
    return it


def test_while_no_stream_is_full_nobody_is_asked(desk: Callable[..., Desk]) -> None:
    it = running(desk)
    assert it.hear(stuck(0, READER), stuck(1, READER)) == {}


def test_when_a_stream_is_full_whoever_holds_the_request_is_asked_once(desk: Callable[..., Desk]) -> None:
    it = running(desk, on_two=True)
    assert it.hear(m.Blocked(0)) == {HOST: [m.Watch(0, 1)], RANK0: [m.Watch(0, 1)]}
    assert it.hear(m.Blocked(0)) == {}


def test_a_request_of_which_everything_waits_for_its_streams_fails_and_says_so(
    desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    it = running(desk)
    it.hear(m.Blocked(0))
    with caplog.at_level(logging.ERROR):
        said = it.hear(stuck(1, READER, WRITER, wrote=(8, 3), read=(8, 3)))
    told = (
        "all of the request's Walks wait on its own streams: writing for room in 'codes', sounding for items "
        "in 'codes'; raise 'codes''s limit of 8192, its policy wants more than that for a helping"
    )
    assert said == {
        CLIENT: [m.RequestFailed(7, m.Fault(told, 500, "server_error", "stalled"))],
        RANK0: [m.CloseRequest(0)],
    }
    assert told in caplog.text
    it.hear(m.RequestClosed(0, "speaker.rank0", RANK0))
    assert it.reserved == {} and it.state.open_requests == 0


def test_it_does_not_fail_before_all_that_hold_it_have_answered(desk: Callable[..., Desk]) -> None:
    it = running(desk, on_two=True)
    it.hear(m.Blocked(0))
    assert it.hear(stuck(1, WRITER, wrote=(8, 3))) == {}
    said = it.hear(stuck(1, READER, address=HOST, read=(8, 3)))
    assert [type(message) for message in said[CLIENT]] == [m.RequestFailed]


def test_a_worker_that_has_let_go_of_it_is_not_waited_for(desk: Callable[..., Desk]) -> None:
    it = running(desk, on_two=True)
    it.hear(m.Blocked(0))
    assert it.hear(stuck(1, WRITER, READER, wrote=(8, 3), read=(8, 3))) == {}
    said = it.hear(m.RequestClosed(0, "speaker.host", HOST))
    assert [type(message) for message in said[CLIENT]] == [m.RequestFailed]


@pytest.mark.parametrize("read", [(7, 3), (8, 4), None], ids=["items", "what was taken", "all items"])
def test_while_something_is_under_way_between_workers_they_are_asked_again(
    desk: Callable[..., Desk], read: tuple[int, int] | None
) -> None:
    it = running(desk, on_two=True)
    it.hear(m.Blocked(0))
    said = it.hear(stuck(1, WRITER, wrote=(8, 3)), stuck(1, READER, address=HOST, read=read))
    assert said == {HOST: [m.Watch(0, 2)], RANK0: [m.Watch(0, 2)]}


def test_what_was_answered_before_an_order_is_void(desk: Callable[..., Desk]) -> None:
    it = running(desk, on_two=True)
    it.hear(m.Blocked(0), stuck(1, WRITER, wrote=(8, 3)))
    said = it.hear(ended(0, "sounding", ended_by="enough"))
    assert said[RANK0] == [m.DiscardStream(0, "codes"), m.Watch(0, 2)]
    assert it.hear(stuck(1, WRITER, wrote=(8, 3)), stuck(1, address=HOST)) == {}
    assert it.hear(stuck(2, address=HOST)) == {}  # the other is at work again, and does not answer


def test_a_branch_that_is_forked_or_a_walk_that_broke_is_an_order_as_well(desk: Callable[..., Desk]) -> None:
    it = running(desk, text="fork")
    it.hear(m.Blocked(0))
    assert [type(one) for one in it.hear(m.BranchForked(0, "writing", 0))[RANK0]] == [m.StartWalk, m.Watch]
    it = running(desk, text="careful")
    it.hear(m.Blocked(0))
    broke = m.WalkBroke(0, "writing", 0, m.Fault("it failed"))
    assert [type(one) for one in it.hear(broke)[RANK0]] == [m.StartWalk, m.Watch]


def test_of_a_request_that_is_over_nothing_more_is_asked(desk: Callable[..., Desk]) -> None:
    it = running(desk)
    it.hear(m.Blocked(0), m.Cancel(CLIENT, 7))
    assert it.hear(m.Blocked(0), stuck(1, WRITER, wrote=(8, 3), read=(8, 3))) == {}
    it.hear(m.RequestClosed(0, "speaker.rank0", RANK0))
    assert it.hear(m.Blocked(0), stuck(1, WRITER)) == {}


def test_where_nobody_waits_nobody_is_blamed(desk: Callable[..., Desk]) -> None:
    it = running(desk)
    it.hear(m.Blocked(0))
    assert it.hear(stuck(1, wrote=(8, 8), read=(8, 8))) == {}
