"""A conductor among senders that say anything: it never raises, and goes on serving."""

from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.drawn import messages

from walkserve import messages as m

CLIENT, HOST, RANK0 = "http", "speaker.host", "speaker.rank0"
NAMES = (
    "speaker", HOST, RANK0, f"{HOST}.1", f"{RANK0}.1", CLIENT, "writing", "sounding", "prepare", "encode",
    "write", "vocode", "lm", "codec", "tokenizer", "codes", "speech", "main", "other", "ids", "length",
    "hello", "text", "fork", "silence", "trip later", "",
)  # fmt: skip
ENDS = (m.Drain, m.Halt)
DRAWN = messages(m.ToConductor, NAMES, but=ENDS)
GOOD = 77


def served_to_its_end(desk: Any, said: dict[str, list[m.Message]]) -> list[m.Message]:
    """What the client of request ``GOOD`` is told, when workers do what they are asked to."""
    told: list[m.Message] = []
    mail: deque[tuple[str, m.Message]] = deque()

    def post(said: dict[str, list[m.Message]]) -> None:
        mail.extend((to, one) for to, each in said.items() for one in each)

    post(said)
    while mail:
        to, one = mail.popleft()
        match one:
            case m.StartWalk():
                values = {"ids": [1, 2], "length": 2} if one.graph == "encode" else {}
                post(
                    desk.hear(m.WalkEnded(one.number, one.track, one.walk, "stop", 1, 0, values, {}, {}, {}))
                )
            case m.ForkBranch():
                post(desk.hear(m.BranchForked(one.number, one.track, one.walk)))
            case m.CloseRequest():
                post(desk.hear(m.RequestClosed(one.number, to.rpartition(".")[0], to)))
            case m.RequestEnded() | m.RequestFailed() if (to, one.tag) == (CLIENT, GOOD):
                told.append(one)
    return told


@given(heard=st.lists(DRAWN, max_size=12))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_messages_never_raise_and_leave_it_of_use(
    desk: Callable[..., Any], heard: list[m.Message]
) -> None:
    one = desk()
    for message in heard:
        one.hear(message)

    # what was said of workers that do not exist, or that have died, is over when they are there again
    for incarnation in (5, 6):
        for worker in (HOST, RANK0):
            for address in {record.address for record in one.served["speaker"].workers.values()}:
                one.hear(m.WorkerLost(worker, address, "a test says so"))
            one.ready(worker, incarnation)
    if one.state.phase == "stopped":  # a worker that cannot start, before anything was ready, ends a server
        return
    told = served_to_its_end(one, one.submit(GOOD))
    assert [type(each) for each in told] == [m.RequestEnded], told
