"""More rows of Fans than pages: all run, each request gives what it gives alone, and every page comes back.

A conductor and a worker, the real ones, without sockets, with a cache too small for all. The component looks
at what its cache holds, so one wrong page changes all that follows. Who acts next is drawn.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkserve import messages as m
from walkserve.conductor.served import Served
from walkserve.conductor.state import ConductorState
from walkserve.delivery import Delivery, Failed
from walkserve.engine.rows import RowResult
from walkserve.worker.scheduler import Limits, Scheduler, Work
from walkserve.worker.state import WorkerState
from walkserve_sdk import (
    Budget,
    Component,
    Fan,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
    Request,
    Stop,
    Text,
    Track,
    WalkGraph,
    track,
)

CLIENT = "client"
PAGE = 4
RANK = "oracle.rank0"
ADDRESS = f"{RANK}.1"


class Oracle(Model):
    """A context, futures from it beside a word that has nothing to do with them, and all of it again."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        context: int = 6
        rows: int = 5
        turns: int = 4
        rounds: int = 1
        ends: int = -1  # which row's second turn ends it
        halts: int = -1  # after which round the judge has heard enough, when the next is on its way
        says: int = -1  # turns that its budget says, where that is not the truth

    mind = Component("some.where:Mind", kv=PagedKV(branches=("aside",)))
    judge = Component("some.where:Judge")
    said = Output(Text())
    asides = Output(Text())
    verdicts = Output(Text())

    ask = WalkGraph(
        Loop(
            Node(mind, "next", takes="n", gives="start"),
            Parallel(
                Fan(
                    Loop(
                        Node(mind, "next", takes="seed", gives="seed", to=said),
                        carry="seed",
                        times="turns",
                        collect={"path": "seed"},
                    ),
                    over={"seed": "seeds"},
                ),
                Node(mind, "next", takes="start", gives="aside", branch="aside", to=asides),
            ),
            Node(judge, "join", takes=("seed", "path", "aside"), gives="verdict", to=verdicts),
            times="rounds",
        )
    )

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        asked = request.options
        return {self.mind: (asked.context * asked.rounds, asked.turns if asked.says < 0 else asked.says)}

    @track
    def asking(self, request: Request, prepared: Outcome) -> Track:
        asked = request.options
        yield self.ask(
            n=list(range(request.seed, request.seed + asked.context)),
            seeds=[request.seed + 7 * row for row in range(asked.rows)],
            turns=asked.turns,
            rounds=asked.rounds,
        )
        return None


class Carrier:
    """Everything here is small enough for a message."""

    held = 0

    def put(self, value: Any) -> Any:
        raise AssertionError("nothing is lent")

    take = put

    def free(self, keys: list[int]) -> None:
        assert not keys


class Rig:
    """A conductor and its worker, with a pool of so many pages, and some requests."""

    def __init__(self, list_cache: Any, *, pages: int, overcommit: float, seed: int) -> None:
        self.random = Random(seed)
        self.served = Served("oracle", Oracle(), {"mind": RANK, "judge": RANK}, overcommit=overcommit)
        self.conductor = ConductorState({"oracle": self.served})
        self.cache = list_cache(pages, PAGE)
        keys = {op.key for plan in self.served.plans.values() for op in plan.ops}
        self.worker = WorkerState(
            address=ADDRESS,
            model=Oracle,
            plans=self.served.plans,
            ranks=self.served.ranks,
            scheduler=Scheduler({key: Limits(rows=3, tokens=8, splits=True) for key in keys}),
            carrier=Carrier(),
            read_options=lambda sent: sent,
            caches={"mind": self.cache},
        )
        self.flying: deque[tuple[Work, list[RowResult]]] = deque()
        self.mail: dict[tuple[str, str], deque[m.Message]] = defaultdict(deque)
        self.gave: dict[int, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self.deliveries: dict[int, Delivery] = {}
        self.failed: dict[int, str] = {}
        self.raises: Callable[[Any], bool] = lambda row: False
        self.most_pages = self.most_rows = 0
        self.conductor.hear(m.WorkerReady(RANK, ADDRESS, 1, {}, {"mind": m.PoolInfo(pages, PAGE, 1000)}))
        self._collect()

    def submit(self, tag: int, **options: int) -> None:
        self.deliveries[tag] = Delivery()
        asked, outputs = Oracle.Options(**options), ("said", "asides", "verdicts")
        self.conductor.hear(m.Submit(CLIENT, tag, "oracle", (), outputs, asked, 100 * tag, tuple(options)))
        self._collect()

    def cancel(self, tag: int) -> None:
        self.conductor.hear(m.Cancel(CLIENT, tag))
        self._collect()

    def step(self) -> bool:
        """Whatever can happen next, by chance; False if nothing can."""
        steps: list[Callable[[], None]] = []
        steps += [lambda way=way: self._hear(way) for way, messages in self.mail.items() if messages]
        if self.worker.scheduler.waiting and len(self.flying) < 2:
            steps.append(self._choose)
        if self.flying:
            steps.append(self._finish)
        if steps:
            self.random.choice(steps)()
            self._collect()
            if self.random.random() < 0.1:
                self.worker.check()
            self.most_pages = max(self.most_pages, self.cache.pool.held)
            for live in self.worker._lives.values():  # forks do not wait for their request's end
                if not live.runs and not live.in_flight:
                    assert not any(branch.is_of_row for branch in live.branches.values())
            rows = [branch for live in self.worker._lives.values() for branch in live.branches.values()]
            self.most_rows = max(self.most_rows, sum(branch.is_of_row for branch in rows))
        return bool(steps)

    def run(self) -> None:
        for _ in range(50_000):
            if not self.step():
                return
        raise AssertionError("it does not come to an end")

    def _hear(self, way: tuple[str, str]) -> None:
        receiver, message = way[1], self.mail[way].popleft()
        if receiver == "conductor":
            self.conductor.hear(message)
        elif receiver == ADDRESS:
            self.worker.hear(message)
        elif isinstance(message, m.Emitted):
            for tag, item, index in message.rows():
                self.gave[tag][message.output, index].append(item)
                self.deliveries[tag].received(message.output)
        elif not isinstance(message, m.ServerState):
            event = self.deliveries[message.tag].hear(message)
            if isinstance(event, Failed):
                self.failed[message.tag] = event.fault.message

    def _choose(self) -> None:
        """A batch computes when it is submitted, as on a device; it is seen when it is finished."""
        work = self.worker.choose()
        if work is not None:
            rows = list(zip(work.calls, work.pieces, strict=True))
            self.flying.append((work, [self._compute(*row) for row in rows]))

    def _finish(self) -> None:
        work, results = self.flying.popleft()
        raises = [self.raises(self.worker.row(*pair)) for pair in zip(work.calls, work.pieces, strict=True)]
        if not any(raises) and self.random.random() < 0.8:
            self.worker.finish(work, results)
            return
        rows = zip(work.calls, work.pieces, results, raises, strict=True)
        for call, piece, result, is_guilty in rows:  # it broke, and was run again row by row
            if is_guilty:
                self.worker.broke(call, RuntimeError("as it is asked to"))
            else:
                self.worker.finish(Work(work.key, [call], [piece]), [result])

    def _compute(self, call: Any, piece: int) -> RowResult:
        row = self.worker.row(call, piece)
        if call.op.component == "judge":
            halts = row.turn == row.options.halts
            return RowResult({"verdict": repr(row.values)}, stop=Stop("enough", keep=True) if halts else None)
        (value,) = row.values.values()
        new = value[row.done : row.done + piece] if isinstance(value, list) else [value]
        table = row.branch.table
        if call.frame.row is not None and call.frame.row.is_over:
            return RowResult()  # its pages may be somebody else's
        self.cache.write(table, new)
        held = self.cache.read(table) + new
        answer = sum((at + 1) * token for at, token in enumerate(held)) % 997
        ends = call.frame.row is not None and row.key[1] == row.options.ends and row.turn == 1
        gives = {name: answer for name, _ in call.op.gives} if row.is_last else {}
        return RowResult(gives, stop=Stop("ended", keep=True) if ends else None)

    def _collect(self) -> None:
        for sender, outbox in (("conductor", self.conductor.outbox), (ADDRESS, self.worker.outbox)):
            for address, messages in outbox.items():
                self.mail[sender, address] += messages
            outbox.clear()

    @property
    def moved(self) -> int:
        return sum(moves.pages_back for moves in self.worker.room.moves.values())

    def check_nothing_is_left(self) -> None:
        assert self.conductor.open_requests == 0
        assert not any(self.served.reserved.values())
        assert (self.worker.open_requests, self.worker.scheduler.waiting) == (0, 0)
        assert (self.worker.room.waiting, self.worker.room.away) == (0, 0)
        assert not self.worker.forks.waiting
        self.worker.check()
        assert self.cache.pool.held == 0


OPTIONS = [
    {"context": 6, "rows": 5, "turns": 4},
    {"context": 3, "rows": 7, "turns": 6, "ends": 3},
    {"context": 8, "rows": 2, "turns": 1},
    {"context": 2, "rows": 4, "turns": 3, "rounds": 3},
    {"context": 5, "rows": 9, "turns": 0},
    {"context": 1, "rows": 0, "turns": 5},
]
"""Each needs 7 pages at most: the context and one row of it on one branch, as much at most on the other."""


@pytest.fixture(scope="module")
def alone(list_cache: Any) -> dict[int, Any]:
    """What each gives when there is nobody else and more than enough room."""
    found: dict[int, Any] = {}
    for tag, options in enumerate(OPTIONS):
        rig = Rig(list_cache, pages=200, overcommit=1.0, seed=tag)
        rig.submit(tag, **options)
        rig.run()
        assert rig.failed == {} and rig.moved == 0
        found[tag] = rig.gave[tag]
        rig.check_nothing_is_left()
    return found


def test_every_row_goes_on_from_the_context_and_says_whose_word_it_is(alone: dict[int, Any]) -> None:
    seed, context, turns = 0, 6, 4
    for row in range(5):
        held = [*range(context), seed + 7 * row]
        said = []
        for _ in range(turns):
            said.append(sum((at + 1) * token for at, token in enumerate(held)) % 997)
            held.append(said[-1])
        assert alone[0]["said", row] == said
    assert ("said", None) not in alone[0]
    assert list(alone[0]).count(("said", 5)) == 0 and len(alone[0]["asides", None]) == 1


def test_a_row_that_ends_sooner_ends_alone(alone: dict[int, Any]) -> None:
    assert [len(alone[1]["said", row]) for row in range(7)] == [6, 6, 6, 2, 6, 6, 6]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), pages=st.integers(7, 20), overcommit=st.sampled_from([1.0, 2.0, 4.0]))
def test_requests_that_do_not_fit_together_each_give_what_they_give_alone(
    seed: int, pages: int, overcommit: float, alone: dict[int, Any], list_cache: Any
) -> None:
    rig = Rig(list_cache, pages=pages, overcommit=overcommit, seed=seed)
    for tag, options in enumerate(OPTIONS):
        rig.submit(tag, **options)
    rig.run()
    assert rig.failed == {}
    for tag, gave in alone.items():
        assert rig.gave[tag] == gave, f"request {tag}"
    rig.check_nothing_is_left()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), pages=st.integers(7, 20), data=st.data())
def test_cancelling_some_of_them_at_any_time_changes_nothing_for_the_others(
    seed: int, pages: int, data: st.DataObject, alone: dict[int, Any], list_cache: Any
) -> None:
    rig = Rig(list_cache, pages=pages, overcommit=2.0, seed=seed)
    for tag, options in enumerate(OPTIONS):
        rig.submit(tag, **options)
    given_up = data.draw(st.sets(st.integers(0, len(OPTIONS) - 1), max_size=4))
    for tag in sorted(given_up):
        for _ in range(data.draw(st.integers(0, 120))):
            rig.step()
        rig.cancel(tag)
    rig.run()
    for tag, gave in alone.items():
        if tag not in given_up:
            assert rig.gave[tag] == gave, f"request {tag}"
    rig.check_nothing_is_left()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), index=st.integers(0, 4))
def test_one_row_that_raises_fails_its_request_and_gives_back_all_of_it(
    seed: int, index: int, alone: dict[int, Any], list_cache: Any
) -> None:
    rig = Rig(list_cache, pages=14, overcommit=2.0, seed=seed)
    rig.raises = lambda row: row.key == (0, index, "asking", 0) and row.turn == 2
    rig.submit(0, **OPTIONS[0])
    rig.submit(1, **OPTIONS[1])
    rig.run()
    assert list(rig.failed) == [0] and "mind.next failed (RuntimeError)" in rig.failed[0]
    assert rig.gave[1] == alone[1]
    rig.check_nothing_is_left()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), pages=st.integers(9, 20))
def test_rows_of_a_round_that_was_not_wanted_are_dropped_wherever_they_are(
    seed: int, pages: int, alone: dict[int, Any], list_cache: Any
) -> None:
    """Some wait, some are in a batch: what they hold comes back when that has landed, and nobody hears."""
    rig = Rig(list_cache, pages=pages, overcommit=2.0, seed=seed)
    rig.submit(0, **OPTIONS[0])
    rig.submit(7, context=2, rows=6, turns=4, rounds=4, halts=1)
    rig.run()
    assert rig.failed == {} and len(rig.gave[7]["verdicts", None]) == 2
    assert rig.gave[0] == alone[0]
    rig.check_nothing_is_left()


def test_a_row_that_needs_more_than_its_budget_said_fails_instead_of_waiting_for_ever(
    alone: dict[int, Any], list_cache: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(list_cache, pages=24, overcommit=1.0, seed=1)
    rig.submit(0, **OPTIONS[0])
    rig.submit(7, context=3, rows=9, turns=30, says=2)
    rig.run()
    assert list(rig.failed) == [7] and "mind.next failed (ComponentError)" in rig.failed[7]
    assert "of a Fan comes to 6 tokens, but the family's budget() says that a branch of mind" in caplog.text
    assert rig.gave[0] == alone[0]
    rig.check_nothing_is_left()


def test_sixty_four_rows_in_a_pool_for_few_run_in_waves(list_cache: Any) -> None:
    rig = Rig(list_cache, pages=40, overcommit=1.0, seed=1)
    rig.submit(1, context=6, rows=64, turns=8)
    rig.run()
    assert rig.failed == {}
    assert [len(rig.gave[1]["said", row]) for row in range(64)] == [8] * 64
    # the context has two pages and the aside one, and a row three: it begins with a copy of the second
    assert rig.most_pages <= 40 and rig.most_rows == (40 - 2) // 3
    rig.check_nothing_is_left()


def test_rows_share_the_pages_of_the_context(list_cache: Any) -> None:
    rig = Rig(list_cache, pages=1000, overcommit=1.0, seed=1)
    rig.submit(1, context=401, rows=64, turns=3)
    rig.run()
    assert rig.failed == {}
    assert rig.most_pages == 101 + 1 + 64  # of the context, the aside, and one that each row writes to
    rig.check_nothing_is_left()
