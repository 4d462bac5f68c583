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
