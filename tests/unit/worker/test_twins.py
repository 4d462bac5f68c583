"""Equal calls of one Parallel in one worker: who waits for whom, and what becomes of them."""

from collections import Counter
from typing import Any

import pytest
from tests.unit.worker.conftest import CLIENT, Lender, ListCache

from walkserve import messages as m
from walkserve.engine.rows import RowResult
from walkserve.graph.lower import lower_model
from walkserve.worker.live import Branch
from walkserve.worker.scheduler import Limits, Scheduler, Work
from walkserve.worker.state import WorkerState
from walkserve_sdk import (
    Component,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
    Request,
    Stop,
    Stream,
    Text,
    Track,
    WalkGraph,
    track,
)

HERE, THERE = "guide.rank0", "guide.rank1"


class Guide(Model):
    lm = Component("some.where:LM", kv=PagedKV(branches=("free",)))
    tool = Component("some.where:Tool")
    reader = Component("some.where:Reader")
    items = Stream(limit=1)
    words = Output(Text())
    sounds = Output(Text())

    say = WalkGraph(Node(lm, "say", takes="ids"))
    guide = WalkGraph(
        Loop(
            Parallel(
                Node(lm, "velocity", takes="x", gives="full", keeps=False),
                Node(lm, "velocity", takes="x", gives="free", keeps=False, branch="free", to=words),
            ),
            Node(tool, "step", takes=("full", "free"), gives="x"),
            carry="x",
            times="most",
        )
    )
    fill = WalkGraph(Node(tool, "fill", takes="x", gives="item", to=items))
    look = WalkGraph(
        Parallel(
            Node(tool, "look", takes="x", gives="y", to=words),
            Node(tool, "look", takes="x", gives="z", to=items),
        )
    )
    read = WalkGraph(Loop(Node(reader, "read", takes=items, gives="piece", to=sounds)))

    @track(writes=items)
    def guiding(self, request: Request, prepared: Outcome) -> Track:
        yield self.guide(x=1, most=2)
        yield self.fill(x=1)
        yield self.look(x=1)
        return None

    @track
    def saying(self, request: Request, prepared: Outcome) -> Track:
        yield self.say(ids=[1])
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        yield self.read()
        return None


class Bench:
    """One worker with one request."""

    def __init__(self, *, profiles: bool = False) -> None:
        plans = lower_model(Guide)
        ranks = {"lm": HERE, "tool": HERE, "reader": THERE}
        keys = {op.key for plan in plans.values() for op in plan.ops if ranks[op.component] == HERE}
        self.cache = ListCache(16, page_size=4)
        self.ran: Counter[str] = Counter()
        self.answers: dict[str, RowResult] = {}
        self.state = WorkerState(
            address=f"{HERE}.1",
            model=Guide,
            plans=plans,
            ranks=ranks,
            scheduler=Scheduler({key: Limits(4, 8, False) for key in keys}),
            carrier=Lender(f"{HERE}.1"),
            read_options=lambda sent: m.restore_options(Guide.Options, sent),
            caches={"lm": self.cache},
            profiles=profiles,
        )
        self.state.hear(m.PeersChanged({HERE: f"{HERE}.1", THERE: f"{THERE}.1"}))
        self.state.hear(m.OpenRequest(0, CLIENT, 100, Guide.Options(), 3, ("words",)))

    def start(self, graph: str, track: str = "guiding", **inputs: Any) -> None:
        self.state.hear(m.StartWalk(0, track, 0, graph, inputs))

    def choose(self) -> Work:
        work = self.state.choose()
        assert work is not None, "nothing is ready"
        for call, piece in zip(work.calls, work.pieces, strict=True):
            if call.branch.table is not None and call.op.keeps:
                call.branch.table.reserve(piece)
        return work

    def finish(self, work: Work) -> None:
        self.ran[work.key[1]] += len(work.calls)
        self.state.finish(work, [self._answer(call) for call in work.calls])

    def _answer(self, call: Any) -> RowResult:
        told = self.answers.get(call.op.method)
        return told or RowResult({name: self.ran[call.op.method] for name in call.op.gives_names})

    def run(self) -> None:
        while self.state.scheduler.waiting:
            self.finish(self.choose())

    def said(self, kind: type) -> list[Any]:
        return [one for messages in self.state.outbox.values() for one in messages if isinstance(one, kind)]

    @property
    def items(self) -> list[Any]:
        return [item for emitted in self.said(m.Emitted) for item in emitted.items]

    @property
    def spared(self) -> int:
        return sum(one.spared for one in self.state.tally.report("", "", {}, {}).methods)


def guiding(most: int = 1, **settings: Any) -> Bench:
    """A request whose two branches hold the same, in the middle of its velocities."""
    worker = Bench(**settings)
    worker.start("say", "saying", ids=[1, 2, 3])
    worker.run()
    worker.state.hear(m.ForkBranch(0, "saying", 1, "lm", "main", "free"))
    worker.start("guide", x=1, most=most)
    return worker


def test_an_equal_call_is_given_what_the_first_gave_by_its_own_name() -> None:
    worker = guiding(most=2)
    worker.run()
    assert worker.ran["velocity"] == 2 and worker.spared == 2
    assert worker.items == [1, 2]  # of the branch that was not computed
    (ended,) = [one for one in worker.said(m.WalkEnded) if one.track == "guiding"]
    assert (ended.turns, ended.emitted) == (2, {"words": 2})


def test_a_branch_that_was_written_since_is_another() -> None:
    worker = guiding(most=2)
    worker.finish(worker.choose())
    worker.state.hear(m.StartWalk(0, "saying", 2, "say", {"ids": [4]}))
    worker.run()
    assert worker.ran["velocity"] == 1 + 2 and worker.spared == 1


def test_a_branch_that_another_track_writes_while_its_call_waits_stands_for_no_other() -> None:
    worker = guiding()
    worker.state.hear(m.StartWalk(0, "saying", 2, "say", {"ids": [4]}))
    waiting, saying = worker.choose(), worker.choose()
    assert (waiting.key[1], saying.key[1]) == ("velocity", "say")
    worker.finish(saying)
    worker.finish(waiting)
    worker.run()
    assert worker.ran["velocity"] == 2 and worker.spared == 0
    assert len(worker.said(m.WalkEnded)) == 3


def test_a_call_whose_stream_is_full_is_given_it_later() -> None:
    worker = Bench()
    worker.start("fill", x=1)
    worker.run()
    worker.start("look", x=1)
    worker.run()
    assert worker.items == [1] and len(worker.said(m.WalkEnded)) == 1, "one waits for room in the stream"
    worker.state.hear(m.StreamTaken(0, "items", 1))
    assert worker.state.choose() is None
    assert worker.ran["look"] == 1 and worker.spared == 1
    assert worker.said(m.WalkEnded)[1].wrote == {"items": 1}


def test_a_row_that_breaks_fails_its_walk_once_and_nothing_waits() -> None:
    worker = guiding()
    work = worker.choose()
    worker.state.broke(work.calls[0], ZeroDivisionError())
    assert len(worker.said(m.WalkBroke)) == 1 and worker.state.choose() is None
    worker.state.hear(m.CloseRequest(0))
    assert worker.said(m.RequestClosed) and worker.cache.pool.held == 0
    worker.state.check()


@pytest.mark.parametrize("is_in_flight", [False, True])
def test_a_request_that_is_closed_leaves_nothing_behind(is_in_flight: bool) -> None:
    worker = guiding()
    work = worker.choose() if is_in_flight else None
    worker.state.hear(m.CloseRequest(0))
    if work is not None:
        worker.finish(work)
    assert worker.state.choose() is None and worker.spared == 0
    assert worker.said(m.RequestClosed) and worker.cache.pool.held == 0
    worker.state.check()


def test_a_stop_that_keeps_is_the_stop_of_both() -> None:
    worker = guiding(most=5)
    worker.answers["velocity"] = RowResult({"velocity": 7}, Stop("enough", keep=True))
    worker.run()
    assert worker.items == [7]
    (ended,) = [one for one in worker.said(m.WalkEnded) if one.track == "guiding"]
    assert (ended.ended_by, ended.turns) == ("enough", 1)


def test_a_stop_discards_what_both_would_have_given() -> None:
    worker = guiding(most=5)
    worker.answers["velocity"] = RowResult({}, Stop("enough"))
    worker.run()
    assert worker.items == []
    (ended,) = [one for one in worker.said(m.WalkEnded) if one.track == "guiding"]
    assert (ended.ended_by, ended.turns) == ("enough", 0)


def test_what_a_call_counts_and_draws_counts_as_if_both_were_computed() -> None:
    """Nobody pays less, or is told less, for what the runtime saves."""
    worker = guiding()
    worker.answers["velocity"] = RowResult({"v": 7}, counts={"forwards": 1}, sampled=2, seen="a token")
    worker.run()
    (ended,) = [one for one in worker.said(m.WalkEnded) if one.track == "guiding"]
    assert (ended.counts, ended.sampled) == ({"forwards": 2}, 4)
    branches = worker.state._lives[0].branches
    assert [branches["lm", name].seen for name in ("main", "free")] == ["a token", "a token"]


def test_what_sampling_has_seen_is_content_too() -> None:
    worker = guiding(most=2)
    worker.answers["velocity"] = RowResult({"v": 7}, seen="a token")
    worker.run()
    assert worker.ran["velocity"] == 1 + 2 and worker.spared == 1


def test_a_profile_has_what_was_given_and_one_row_that_was_run() -> None:
    worker = guiding(profiles=True)
    worker.run()
    worker.state.hear(m.CloseRequest(0))
    (told,) = worker.said(m.Profiled)
    assert {one.method: one.rows for one in told.methods} == {"say": 1, "velocity": 1, "step": 1}
    assert [(edge.name, edge.items) for edge in told.edges] == [("words", 1)]


# --- content -------------------------------------------------------------------------------------------


def test_a_fork_has_the_content_of_its_origin_until_either_keeps_something() -> None:
    worker = guiding()
    branches = worker.state._lives[0].branches
    main, free = branches["lm", "main"], branches["lm", "free"]
    assert main.content_id() == free.content_id() != 0
    worker.state.hear(m.StartWalk(0, "saying", 2, "say", {"ids": [4]}))
    worker.run()
    assert main.content_id() != free.content_id()


def test_what_is_undone_is_what_it_was() -> None:
    branch = Branch(None)
    assert branch.content_id() == 0  # nothing
    branch.content = None
    before, restore = branch.content_id(), branch.remember()
    branch.content = None
    assert branch.content_id() != before
    restore()
    assert branch.content_id() == before
