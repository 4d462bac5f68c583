"""A worker among senders that say anything: its loop never ends of it, and it goes on working."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.drawn import messages

from walkserve import messages as m
from walkserve.engine.rows import Row, RowResult
from walkserve.worker.loop import WorkerLoop

RANK0, CLIENT, CONDUCTOR = "pipe.rank0", "http", "conductor"
NAMES = (
    "writing", "reading", "saying", "write", "read", "say", "look", "spell", "lm", "codec", "tool", "items",
    "words", "sound", "main", "other", "n", "most", "x", "xs", f"{RANK0}.1", RANK0, CLIENT,
)  # fmt: skip
DRAWN = messages(m.ToWorker | m.Unreadable, NAMES, but=(m.StopWorker,))
GOOD = 1000


class Ones:
    """An engine to which every method of every component gives 1."""

    def submit(self, key: tuple[str, str], rows: Sequence[Row]) -> Any:
        for row in rows:
            if row.branch.table is not None and row.keeps:
                row.branch.table.reserve(row.tokens)
        results = [RowResult(dict.fromkeys(row.gives or (), 1)) for row in rows]

        class Done:
            is_ready = staticmethod(lambda: True)
            finish = staticmethod(lambda: results)

        return Done()


class Sent:
    """A mailbox that keeps what is sent."""

    def __init__(self) -> None:
        self.said: list[tuple[str, m.Message]] = []

    def send(self, to: str, said: Sequence[m.Message]) -> None:
        self.said += [(to, one) for one in said]

    def forget(self, to: str) -> None:
        pass


@given(heard=st.lists(st.lists(DRAWN, max_size=4), max_size=8))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_messages_never_end_the_loop_and_leave_it_of_use(
    bench: Callable[..., Any], heard: list[list[m.Message]]
) -> None:
    worker, post = bench(RANK0), Sent()
    loop = WorkerLoop(worker.state, Ones(), post)  # type: ignore[arg-type]
    for frame in heard:
        loop.turn(frame)
        loop.turn([])

    # whatever was opened can be closed, and nothing is left of it
    opened = {one.number for frame in heard for one in frame if isinstance(one, m.OpenRequest)}
    loop.turn([m.CloseRequest(number) for number in sorted(opened)])
    loop.turn([])
    assert worker.state.open_requests == 0
    worker.pool.check([])
    assert worker.pool.held == 0

    # and a good request runs to its end
    post.said.clear()
    loop.turn([m.PeersChanged({RANK0: worker.address, "pipe.rank1": "pipe.rank1.1"})])
    loop.turn(
        [
            m.OpenRequest(GOOD, CLIENT, 7, {"most": 3}, 3, ("words",)),
            m.StartWalk(GOOD, "saying", 0, "say", {"n": 1, "most": 3}),
        ]
    )
    for _ in range(4):
        loop.turn([])
    loop.turn([m.CloseRequest(GOOD)])
    to_client = [one for to, one in post.said if to == CLIENT and isinstance(one, m.Emitted)]
    assert [item for one in to_client for item in one.items] == [1, 1, 1]
    ended = [one for _, one in post.said if isinstance(one, m.WalkEnded) and one.number == GOOD]
    assert [one.turns for one in ended] == [3]
    assert (CONDUCTOR, m.RequestClosed(GOOD, RANK0, worker.address)) in post.said


def test_a_message_that_could_not_be_read_fails_the_request_it_was_about(bench: Callable[..., Any]) -> None:
    worker = bench(RANK0)
    worker.open(3)
    fault = m.Unreadable("StartWalk").fault
    lost = m.Unreadable("StartWalk", 3)
    assert worker.hear(lost) == {CONDUCTOR: [m.WalkBroke(3, "", 0, fault)]}
    worker.hear(m.CloseRequest(3))
    assert worker.hear(lost) == {}  # it has ended


def test_a_request_that_could_not_even_be_opened_fails_as_well(bench: Callable[..., Any]) -> None:
    worker = bench(RANK0)
    fault = m.Unreadable("OpenRequest").fault
    assert worker.hear(m.Unreadable("OpenRequest", 3)) == {CONDUCTOR: [m.WalkBroke(3, "", 0, fault)]}
    assert worker.hear(m.CloseRequest(3)) == {CONDUCTOR: [m.RequestClosed(3, RANK0, worker.address)]}


@pytest.mark.parametrize(
    "value",
    [
        [[[[1]]]],
        [[[[]]], 1],
        {1: 1},
        {"a": b"a"},
        {"a": {"b": 1}},
        {"a": [b"a"]},
        {"a": [[1]]},
        [1, [{"a": m.Blob(b"a")}]],
    ],
)
def test_a_value_that_no_message_can_hold_fails_its_own_row_before_it_is_sent(
    bench: Callable[..., Any], value: Any
) -> None:
    worker = bench(RANK0)
    worker.carrier.put = lambda value: value.no_tensor
    worker.answers["next"] = lambda row: RowResult({"n": value if row.values["n"] == 10 else 1})
    for number, n in enumerate((0, 10)):
        worker.open(number)
        worker.hear(m.StartWalk(number, "saying", 0, "say", {"n": n, "most": 1}))
    said = worker.step()
    assert [(one.tags, one.items) for one in said[CLIENT]] == [([100], [1])]
    assert sorted((type(one).__name__, one.number) for one in said[CONDUCTOR]) == [
        ("WalkBroke", 1),
        ("WalkEnded", 0),
    ]
