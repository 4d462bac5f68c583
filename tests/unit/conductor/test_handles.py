"""What a Walk gave is freed once no track can name it any more, and not before it is read."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.conductor.conftest import Desk

from walkserve import messages as m
from walkserve_sdk import (
    Component,
    Model,
    Node,
    Outcome,
    Output,
    Request,
    Text,
    Track,
    WalkGraph,
    track,
)

RANK0, RANK1 = "looper.rank0.1", "looper.rank1.1"
CLIENT = "http"


class Looper(Model):
    """Hands what a Walk gave to the next one; its text says what else it keeps."""

    one = Component("some.where:One")
    two = Component("some.where:Two")
    words = Output(Text())
    make = WalkGraph(Node(one, "make", takes="x", gives=("x", "y")))
    use = WalkGraph(Node(two, "use", takes="x", gives="said", to=words))

    @track
    def looping(self, request: Request, prepared: Outcome) -> Track:
        x: Any = 0
        first = None
        while True:
            match request.one("text"):
                case "keep the first":
                    made = yield self.make(x=x)
                    first = first or made
                    x = made["x"]
                case "use each":
                    yield self.use(x=(yield self.make(x=x))["x"])
                case "use once":
                    yield self.use(x=(yield self.make(x=x))["x"])
                    return None
                case "in a list":
                    x = [(yield self.make(x=x))["x"]]
                case _:
                    x = (yield self.make(x=x))["x"]

    @track
    def waiting(self, request: Request, prepared: Outcome) -> Track:
        if request.one("text") == "use once":
            yield self.make(x=0)
        return None


@pytest.fixture
def looper() -> Callable[[str], Desk]:
    """A request of it that runs."""

    def make(text: str) -> Desk:
        it = Desk({"looper": (Looper(), {"one": "looper.rank0", "two": "looper.rank1"})}, 0)
        it.ready("looper.rank0")
        it.ready("looper.rank1")
        it.submit(7, text, model="looper")
        return it

    return make


def gave(walk: int, **keys: int) -> m.WalkEnded:
    values: dict[str, m.Value] = {
        name: m.TensorRef(RANK0, key, "here", 0, 0, "float32", (1,)) for name, key in keys.items()
    }
    return m.WalkEnded(0, "looping", walk, "end", 0, 0, values, {}, {}, {})


def freed(said: dict[str, list[m.Message]]) -> list[int]:
    assert not any(isinstance(one, m.FreeTensors) for one in said.get(RANK1, ()))
    return [key for one in said.get(RANK0, ()) if isinstance(one, m.FreeTensors) for key in one.keys]


def settled(desk: Desk) -> list[int]:
    """What was dropped meanwhile is freed with whatever is heard next."""
    return freed(desk.hear(m.Blocked(99)))


def test_what_a_walk_gave_is_freed_when_the_next_one_has_given_something_else(
    looper: Callable[[str], Desk],
) -> None:
    it = looper("hello")
    freed_keys = []
    for walk in range(50):
        freed_keys += freed(it.hear(gave(walk, x=2 * walk, y=2 * walk + 1))) + settled(it)
        # y goes at once, x when the Walk that it was given to is over
        assert set(freed_keys) == set(range(2 * walk + 2)) - {2 * walk}
    assert len(freed_keys) == len(set(freed_keys))


def test_what_a_walk_may_not_have_read_yet_is_kept(looper: Callable[[str], Desk]) -> None:
    it = looper("use each")
    assert freed(it.hear(gave(0, x=1))) + settled(it) == []  # another worker is told to read it
    assert freed(it.hear(m.WalkEnded(0, "looping", 1, "end", 0, 0, {}, {}, {}, {}))) + settled(it) == [1]


def test_a_track_that_has_returned_keeps_nothing(looper: Callable[[str], Desk]) -> None:
    it = looper("use once")
    assert freed(it.hear(gave(0, x=1))) + settled(it) == []
    assert freed(it.hear(m.WalkEnded(0, "looping", 1, "end", 0, 0, {}, {}, {}, {}))) + settled(it) == [1]
    assert it.state.open_requests == 1, "the other track goes on"


def test_a_list_holds_what_is_in_it(looper: Callable[[str], Desk]) -> None:
    it = looper("in a list")
    assert freed(it.hear(gave(0, x=1))) + settled(it) == []
    assert freed(it.hear(gave(1, x=2))) + settled(it) == [1]


def test_what_a_track_keeps_is_kept(looper: Callable[[str], Desk]) -> None:
    it = looper("keep the first")
    freed_keys = []
    for walk in range(20):
        freed_keys += freed(it.hear(gave(walk, x=walk))) + settled(it)
    assert sorted(freed_keys) == list(range(1, 19))


def test_with_the_request_everything_is_freed_by_its_worker_and_nothing_is_said(
    looper: Callable[[str], Desk],
) -> None:
    it = looper("hello")
    it.hear(gave(0, x=1))
    assert freed(it.hear(m.Cancel(CLIENT, 7))) == []
    it.hear(m.RequestClosed(0, "looper.rank0", RANK0), m.RequestClosed(0, "looper.rank1", RANK1))
    assert it.state.open_requests == 0 and settled(it) == []
