"""What the table of a request's life promises, read off the table itself."""

import pytest

from walkserve.conductor.life_table import TABLE, Act, Event, Phase

LIVES = [Phase.PREPARING, Phase.WAITING, Phase.RUNNING]


def entering(phase: Phase) -> dict[tuple[Phase, Event], tuple[Act, ...]]:
    return {pair: acts for pair, (after, acts) in TABLE.items() if after is phase is not pair[0]}


@pytest.mark.parametrize("event", [Event.FAILED, Event.CANCELLED, Event.EXPIRED, Event.LOST])
@pytest.mark.parametrize("phase", LIVES)
def test_from_wherever_it_is_it_can_be_given_up(phase: Phase, event: Event) -> None:
    assert TABLE[phase, event][0] is Phase.CLOSING


def test_its_end_is_told_once_where_it_closes_and_never_to_who_has_left() -> None:
    for (_, event), acts in entering(Phase.CLOSING).items():
        told = [act for act in acts if act in (Act.TELL_END, Act.TELL_FAULT)]
        expected = {Event.CANCELLED: [], Event.FINISHED: [Act.TELL_END]}.get(event, [Act.TELL_FAULT])
        assert told == expected
        assert acts.count(Act.CLOSE) == 1
    others = [acts for pair, (_, acts) in TABLE.items() if pair not in entering(Phase.CLOSING)]
    assert not any({Act.TELL_END, Act.TELL_FAULT, Act.CLOSE} & set(acts) for acts in others)


def test_pages_are_reserved_in_one_place_and_given_back_in_one() -> None:
    assert [pair for pair, (_, acts) in TABLE.items() if Act.RESERVE in acts] == [
        (Phase.WAITING, Event.ADMITTED)
    ]
    assert [pair for pair, (_, acts) in TABLE.items() if Act.GIVE_BACK in acts] == [
        (Phase.CLOSING, Event.RELEASED)
    ]


def test_who_stops_waiting_leaves_the_queue() -> None:
    for (phase, _), (after, acts) in TABLE.items():
        assert (Act.LEAVE_QUEUE in acts) == (phase is Phase.WAITING and after is not Phase.WAITING)


def test_a_request_that_closes_does_nothing_until_it_is_released() -> None:
    closing = {event: step for (phase, event), step in TABLE.items() if phase is Phase.CLOSING}
    assert closing.pop(Event.RELEASED)[0] is Phase.GONE
    assert all(step == (Phase.CLOSING, ()) for step in closing.values())


def test_nothing_happens_to_who_is_gone() -> None:
    assert not any(phase is Phase.GONE for phase, _ in TABLE)
