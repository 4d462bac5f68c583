"""A small family and one worker of it, without torch: pages are real, tensors any objects, lent by key."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.cache.pages import PagePool, PageTable, come_back, committed_pages, go_away
from walkserve.engine.rows import RowResult
from walkserve.graph.lower import lower_model
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
    Sequential,
    Stream,
    Text,
    Track,
    WalkGraph,
    track,
)

RANK0, RANK1 = "pipe.rank0", "pipe.rank1"
CLIENT = "http"


class Pipe(Model):
    """One track writes ``items``, another reads them; further graphs for what else a worker does."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        most: int = 8

    lm = Component("some.where:LM", kv=PagedKV(branches=("other",)))
    tool = Component("some.where:Tool")
    codec = Component("some.where:Codec", state=True)
    items = Stream(limit=2)
    words = Output(Text())
    sound = Output(Text())

    write = WalkGraph(Loop(Node(lm, "next", takes="n", gives="n", to=items), carry="n", times="most"))
    read = WalkGraph(Loop(Node(codec, "decode", takes=items, gives="pcm", to=sound)))
    say = WalkGraph(Loop(Node(lm, "next", takes="n", gives="n", to=words), carry="n", times="most"))
    look = WalkGraph(
        Parallel(
            Node(lm, "peek", takes="x", gives="y", keeps=False),
            Sequential(Node(lm, "peek", takes="x", gives="z", keeps=False, branch="other")),  # no twin of it
        )
    )
    spell = WalkGraph(Loop(Node(codec, "spell", takes="x", gives="text", to=words), each={"x": "xs"}))

    @track(writes=items)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        yield self.write(n=0, most=3)
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        yield self.read()
        return None

    @track
    def saying(self, request: Request, prepared: Outcome) -> Track:
        yield self.say(n=0, most=3)
        yield self.look(x=1)
        yield self.spell(xs=[1])
        return None


class Lender:
    """A carrier that lends whatever is no message's value."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.lent: dict[int, Any] = {}
        self.forgotten: list[str] = []
        self.keys = 0

    def put(self, value: Any) -> m.TensorRef:
        self.keys += 1
        self.lent[self.keys] = value
        return m.TensorRef(self.address, self.keys, "here", 0, 0, "any", ())

    def take(self, value: Any) -> Any:
        return f"copy of {value.owner} {value.key}"

    def free(self, keys: list[int]) -> None:
        for key in keys:
            self.lent.pop(key, None)

    def forget(self, owner: str) -> None:
        self.forgotten.append(owner)

    @property
    def held(self) -> int:
        return len(self.lent)


class ListCache:
    """A cache without tensors: a token is any object, and its place a slot in a list."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.pool = PagePool(pages, page_size)
        self.slots: list[object] = [None] * pages * page_size

    def new_table(self) -> PageTable:
        return PageTable(self.pool)

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        for page, held in [(target, self._page(source)) for source, target in copies]:
            self._set_page(page, held)

    def save(self, tables: Sequence[PageTable]) -> int:
        store = [self._page(page) for page in committed_pages(tables)]
        go_away(tables, store)
        self.slots = [
            "was moved" if self.pool.references(at // self.pool.page_size) == 0 else slot
            for at, slot in enumerate(self.slots)
        ]
        return len(store)

    def load(self, tables: Sequence[PageTable]) -> int:
        moved = come_back(tables)
        for stored, page in moved:
            self._set_page(page, stored.store[stored.index])  # type: ignore[index]
        return len(moved)

    def write(self, table: PageTable, tokens: Sequence[object]) -> None:
        """As a batch does: room is reserved, and nothing committed yet."""
        self.copy_pages(table.reserve(len(tokens)))
        for slot, token in zip(table.slots(table.length, table.length + len(tokens)), tokens, strict=True):
            assert self.pool.references(slot // self.pool.page_size) == 1, "a page is written by two branches"
            self.slots[slot] = token

    def read(self, table: PageTable) -> list[object]:
        """Its committed tokens."""
        return [self.slots[slot] for slot in table.slots(0, table.length)]

    def _page(self, page: int) -> list[object]:
        size = self.pool.page_size
        return self.slots[page * size : (page + 1) * size]

    def _set_page(self, page: int, held: list[object]) -> None:
        size = self.pool.page_size
        self.slots[page * size : (page + 1) * size] = held


class Bench:
    """One worker on a bench: messages in, batches through, and what it says.

    Every method of every component adds one to the number it takes, but a test may say otherwise.
    """

    def __init__(
        self,
        rank: str,
        *,
        codec: str = RANK0,
        rows: int = 4,
        tokens: int = 8,
        splits: bool = True,
        pages: int = 16,
    ) -> None:
        self.rank = rank
        self.address = f"{rank}.1"
        ranks = {"lm": RANK0, "tool": RANK0, "codec": codec}
        plans = lower_model(Pipe)
        keys = {op.key for plan in plans.values() for op in plan.ops if ranks[op.component] == rank}
        self.cache = ListCache(pages, page_size=4)
        self.pool = self.cache.pool
        self.carrier = Lender(self.address)
        self.state = WorkerState(
            address=self.address,
            model=Pipe,
            plans=plans,
            ranks=ranks,
            scheduler=Scheduler({key: Limits(rows, tokens, splits) for key in keys}),
            carrier=self.carrier,
            read_options=lambda sent: m.restore_options(Pipe.Options, sent),
            caches={"lm": self.cache} if rank == RANK0 else {},
        )
        self.answers: dict[str, Callable[..., RowResult]] = {}
        self.hear(m.PeersChanged({RANK0: f"{RANK0}.1", RANK1: f"{RANK1}.1"}))

    def hear(self, *messages: m.Message) -> dict[str, list[m.Message]]:
        """What it says to these."""
        for message in messages:
            self.state.hear(message)  # type: ignore[arg-type]
        return self.said()

    def said(self) -> dict[str, list[m.Message]]:
        """What it has said since."""
        said = dict(self.state.outbox)
        self.state.outbox.clear()
        return said

    def open(self, number: int, *outputs: str, client: str = CLIENT) -> dict[str, list[m.Message]]:
        asked = outputs or ("words", "sound")
        return self.hear(m.OpenRequest(number, client, number + 100, Pipe.Options(), 3, asked))

    def choose(self) -> Work | None:
        """The next batch, with room for it in the cache, as an engine makes it."""
        work = self.state.choose()
        for call, piece in zip(work.calls, work.pieces, strict=True) if work else ():
            if call.branch.table is not None and call.op.keeps:
                number, table = call.run.live.opened.number, call.branch.table
                self.cache.write(table, [(number, table.length + at) for at in range(piece)])
        return work

    def results(self, work: Work) -> list[RowResult]:
        found = []
        for call, piece in zip(work.calls, work.pieces, strict=True):
            row = self.state.row(call, piece)
            table = call.branch.table
            if table is not None:  # it reads what its own request has written, wherever that has been since
                number = call.run.live.opened.number
                assert self.cache.read(table) == [(number, at) for at in range(table.length)]
            answer = self.answers.get(call.op.method)
            if answer is not None:
                found.append(answer(row))
                continue
            value = next(iter(row.values.values()), 0)
            number = value[-1] if isinstance(value, list) else value
            gives = {
                name: number + 1 if isinstance(number, int) else repr(number) for name, _ in call.op.gives
            }
            found.append(RowResult(gives))
        return found

    def step(self) -> dict[str, list[m.Message]]:
        """One batch, chosen and finished; what it leads to."""
        work = self.choose()
        assert work is not None, "nothing is ready"
        self.state.finish(work, self.results(work))
        return self.said()

    def run(self) -> dict[str, list[m.Message]]:
        """Batches until none is ready."""
        said: dict[str, list[m.Message]] = {}
        for _ in range(200):
            work = self.choose()
            if work is None:
                return said
            self.state.finish(work, self.results(work))
            for address, messages in self.said().items():
                said.setdefault(address, []).extend(messages)
        raise AssertionError("it does not come to an end")


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Benches; when the test ends, each of their workers is sound."""
    made: list[Bench] = []

    def make(*args: Any, **how: Any) -> Bench:
        made.append(Bench(*args, **how))
        return made[-1]

    yield make
    for each in made:
        each.state.check()


@pytest.fixture(scope="session")
def list_cache() -> type[ListCache]:
    return ListCache
