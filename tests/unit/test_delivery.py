"""A request is over for its client when all that its end counts has arrived, in whatever order."""

from hypothesis import given
from hypothesis import strategies as st

from walkserve.delivery import Chunk, Delivery, Done, Event, Failed
from walkserve.messages import Admitted, Emitted, Fault, RequestEnded, RequestFailed


def ended(**emitted: int) -> RequestEnded:
    return RequestEnded(1, "stop", 3, emitted, {}, {})


def test_items_are_handed_on_as_they_come_and_the_end_after_them() -> None:
    delivery = Delivery()
    assert delivery.hear(Admitted(1)) == []
    assert delivery.hear(Emitted(1, "words", 0, ["a"])) == [Chunk("words", ["a"])]
    assert delivery.hear(Emitted(1, "words", 1, ["b", "c"])) == [Chunk("words", ["b", "c"])]
    assert not delivery.is_over
    end = ended(words=3)
    assert delivery.hear(end) == [Done(end)]
    assert delivery.is_over


def test_an_end_that_overtakes_items_waits_for_them() -> None:
    delivery = Delivery()
    end = ended(words=2, sound=1)
    assert delivery.hear(end) == []
    assert delivery.hear(Emitted(1, "words", 0, ["a", "b"])) == [Chunk("words", ["a", "b"])]
    assert not delivery.is_over
    assert delivery.hear(Emitted(1, "sound", 0, [1])) == [Chunk("sound", [1]), Done(end)]
    assert delivery.is_over


def test_an_end_without_items_is_the_end() -> None:
    end = ended()
    assert Delivery().hear(end) == [Done(end)]


def test_a_failure_waits_for_nothing() -> None:
    delivery, fault = Delivery(), Fault("it broke")
    delivery.hear(Emitted(1, "words", 0, ["a"]))
    assert delivery.hear(RequestFailed(1, fault)) == [Failed(fault)]
    assert delivery.is_over


def test_after_the_end_nothing_is_heard() -> None:
    delivery = Delivery()
    delivery.hear(ended())
    assert delivery.hear(Emitted(1, "words", 0, ["late"])) == []
    assert delivery.hear(RequestFailed(1, Fault("late"))) == []


@given(
    sizes=st.lists(st.integers(1, 3), max_size=6),
    at=st.integers(0, 6),
)
def test_wherever_the_end_comes_among_the_items_it_is_told_once_and_last(sizes: list[int], at: int) -> None:
    delivery, end = Delivery(), ended(words=sum(sizes))
    messages: list[Emitted | RequestEnded] = []
    for size in sizes:
        messages.append(Emitted(1, "words", 0, ["x"] * size))
    messages.insert(min(at, len(messages)), end)
    events: list[Event] = [event for message in messages for event in delivery.hear(message)]
    assert events == [Chunk("words", ["x"] * size) for size in sizes] + [Done(end)]
