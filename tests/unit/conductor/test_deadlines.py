"""Deadlines on a clock that the test sets."""

from collections.abc import Callable
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.conductor.deadlines import Deadlines

HOST, RANK0 = "speaker.host.1", "speaker.rank0.1"
CLOSED = [(HOST, "speaker.host"), (RANK0, "speaker.rank0")]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def expired(desk: Any) -> list[int]:
    said = desk.hear_of(lambda state: None)
    failed = [one for one in said.get("http", ()) if isinstance(one, m.RequestFailed)]
    assert all(one.fault.code == "deadline_exceeded" for one in failed)
    return [one.tag for one in failed]


def test_where_nothing_has_a_deadline_the_loop_waits_for_as_long_as_nothing_is_heard(
    desk: Callable[..., Any], clock: Clock
) -> None:
    it = desk()
    deadlines = Deadlines(it.state, clock)
    it.submit(7)
    deadlines.keep()
    assert deadlines.wait_s() is None and len(deadlines) == 0


def test_requests_expire_in_the_order_of_their_deadlines(desk: Callable[..., Any], clock: Clock) -> None:
    it = desk()
    deadlines = Deadlines(it.state, clock)
    for tag, timeout_s in ((1, 9.0), (2, 3.0), (3, 6.0)):
        it.submit(tag, timeout_s=timeout_s)
    deadlines.keep()
    assert deadlines.wait_s() == 3.0
    clock.now += 2.5
    deadlines.keep()
    assert expired(it) == [] and deadlines.wait_s() == 0.5
    clock.now += 0.5
    deadlines.keep()
    assert expired(it) == [2] and deadlines.wait_s() == 3.0
    clock.now += 60
    assert deadlines.wait_s() == 0
    deadlines.keep()
    assert expired(it) == [3, 1] and deadlines.wait_s() is None


def test_a_request_that_has_ended_keeps_nobody_awake(desk: Callable[..., Any], clock: Clock) -> None:
    it = desk()
    deadlines = Deadlines(it.state, clock)
    it.submit(7, timeout_s=5)
    deadlines.keep()
    it.hear(m.Cancel("http", 7), *(m.RequestClosed(0, worker, address) for address, worker in CLOSED))
    assert deadlines.wait_s() is None


def test_however_far_away_a_deadline_is_waiting_for_it_is_possible(
    desk: Callable[..., Any], clock: Clock
) -> None:
    it = desk()
    deadlines = Deadlines(it.state, clock)
    it.submit(7, timeout_s=1e300)
    deadlines.keep()
    assert deadlines.wait_s() == 3600


def test_long_deadlines_of_requests_that_have_ended_do_not_pile_up(
    desk: Callable[..., Any], clock: Clock
) -> None:
    it = desk()
    deadlines = Deadlines(it.state, clock)
    it.submit(0, timeout_s=1)
    for number in range(1, 2000):
        it.submit(number, timeout_s=86_400)
        it.hear(m.Cancel("http", number))
        it.hear(*(m.RequestClosed(number, worker, address) for address, worker in CLOSED))
        deadlines.keep()
    assert len(deadlines) < 300
