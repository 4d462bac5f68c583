"""A request is over for its client when all that its end counts has arrived, in whatever order."""

from hypothesis import given
from hypothesis import strategies as st

from walkserve.delivery import Delivery, Done, Failed
from walkserve.messages import Admitted, Fault, RequestEnded, RequestFailed


def ended(**emitted: int) -> RequestEnded:
    return RequestEnded(1, "stop", 3, emitted, {}, {})


def test_an_end_after_all_it_counts_is_told_at_once() -> None:
    delivery = Delivery()
    assert delivery.hear(Admitted(1)) is None
    assert [delivery.received("words") for _ in range(3)] == [None] * 3
    assert not delivery.is_over
    end = ended(words=3)
    assert delivery.hear(end) == Done(end)
    assert delivery.is_over


def test_an_end_that_overtakes_items_waits_for_them() -> None:
    delivery = Delivery()
    end = ended(words=2, sound=1)
    assert delivery.hear(end) is None
    assert [delivery.received("words") for _ in range(2)] == [None] * 2
    assert not delivery.is_over
    assert delivery.received("sound") == Done(end)
    assert delivery.is_over


def test_an_end_without_items_is_the_end() -> None:
    end = ended()
    assert Delivery().hear(end) == Done(end)


def test_a_failure_waits_for_nothing() -> None:
    delivery, fault = Delivery(), Fault("it broke")
    delivery.received("words")
    assert delivery.hear(RequestFailed(1, fault)) == Failed(fault)
    assert delivery.is_over


def test_after_the_end_nothing_is_heard() -> None:
    delivery = Delivery()
    delivery.hear(ended())
    assert delivery.received("words") is None
    assert delivery.hear(RequestFailed(1, Fault("late"))) is None
    assert delivery.hear(ended()) is None


@given(outputs=st.lists(st.sampled_from(["words", "sound"]), max_size=8), at=st.integers(0, 8))
def test_wherever_the_end_comes_among_the_items_it_is_told_once_and_last(outputs: list[str], at: int) -> None:
    delivery = Delivery()
    end = ended(**{name: outputs.count(name) for name in set(outputs)})
    steps: list[str | RequestEnded] = [*outputs]
    steps.insert(min(at, len(steps)), end)
    told = [delivery.received(step) if isinstance(step, str) else delivery.hear(step) for step in steps]
    assert told == [None] * (len(steps) - 1) + [Done(end)]
