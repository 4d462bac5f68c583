"""The runtime and the sdk's toy walk the same declarations: what comes out must be the same.

A conductor and its workers, the real ones, without sockets: whose message is heard next, and when a batch
is chosen or finished, is drawn. Components are the toy's fakes, called row by row.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from walk_plugin_orpheus import Orpheus
from walkserve import messages as m
from walkserve.cache.pages import PagePool, PageTable, come_back, committed_pages, go_away
from walkserve.conductor.served import Served
from walkserve.conductor.state import ConductorState
from walkserve.delivery import Delivery, Done, Failed
from walkserve.engine.rows import RowResult
from walkserve.worker.scheduler import Limits, Scheduler, Work
from walkserve.worker.state import WorkerState
from walkserve_sdk import (
    Budget,
    Component,
    Fan,
    Fixed,
    Fork,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
    Part,
    Request,
    Sequential,
    Stream,
    Text,
    Track,
    WalkFailed,
    WalkGraph,
    track,
)
from walkserve_sdk.streams import ChunkPolicy, Cut, Each, Helping
from walkserve_sdk.testing import Branch, FanItem, ToyCall, ToyRuntime

CLIENT = "client"
DEPTH = 2  # batches in flight, while the one before is being finished


class Lender:
    """A carrier that lends anything at all."""

    def __init__(self, address: str, lent: dict[tuple[str, int], Any]) -> None:
        self.address = address
        self.lent = lent
        self.keys = 0

    def put(self, value: Any) -> m.TensorRef:
        self.keys += 1
        self.lent[self.address, self.keys] = value
        return m.TensorRef(self.address, self.keys, "here", 0, 0, "any", ())

    def take(self, value: Any) -> Any:
        return self.lent[value.owner, value.key]

    def free(self, keys: list[int]) -> None:
        for key in keys:
            self.lent.pop((self.address, key), None)

    @property
    def held(self) -> int:
        return sum(owner == self.address for owner, _ in self.lent)


class Pages:
    """A cache that holds nothing: the toy's components look at lengths only."""

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool

    def new_table(self) -> PageTable:
        return PageTable(self.pool)

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        pass

    def save(self, tables: Sequence[PageTable]) -> int:
        pages = len(committed_pages(tables))
        go_away(tables, None)
        return pages

    def load(self, tables: Sequence[PageTable]) -> int:
        return len(come_back(tables))


@dataclass
class Given:
    """What one request left behind, in either runtime."""

    outputs: dict[str, list[Any]]
    finish_reason: str
    counts: dict[str, int]
    written: dict[str, int]
    taken: dict[str, int]


class Rig:
    """One model, its conductor and its workers, and one request."""

    def __init__(
        self, model: Model, fakes: Mapping[str, object], ranks: Mapping[str, str], seed: int
    ) -> None:
        self.fakes = fakes
        self.random = Random(seed)
        self.lent: dict[tuple[str, int], Any] = {}
        self.served = Served("toy", model, ranks)
        self.conductor = ConductorState({"toy": self.served})
        self.pools = {name: PagePool(64, 4) for name, part in model.spec.components.items() if part.kv}
        self.workers = {
            f"{rank}.1": self._worker(model, rank, ranks) for rank in dict.fromkeys(ranks.values())
        }
        self.flying: dict[str, deque[Work]] = {address: deque() for address in self.workers}
        self.mail: dict[tuple[str, str], deque[m.Message]] = defaultdict(deque)
        self.delivery = Delivery()
        self.events: list[Done | Failed] = []
        self.given = Given(
            {}, "", {}, dict.fromkeys(model.spec.streams, 0), dict.fromkeys(model.spec.streams, 0)
        )
        for address, worker in self.workers.items():
            rank = address.removesuffix(".1")
            pools = {name: m.PoolInfo(64, 4, 256) for name in worker.caches}
            self.conductor.hear(m.WorkerReady(rank, address, 1, {}, pools))
        self._collect("conductor", self.conductor.outbox)

    def _worker(self, model: Model, rank: str, ranks: Mapping[str, str]) -> WorkerState:
        plans = Served("toy", model, ranks).plans
        keys = {op.key for plan in plans.values() for op in plan.ops if ranks[op.component] == rank}
        caches = {name: Pages(pool) for name, pool in self.pools.items() if ranks[name] == rank}
        return WorkerState(
            address=f"{rank}.1",
            model=type(model),
            plans=plans,
            ranks=ranks,
            scheduler=Scheduler({key: Limits(rows=2, tokens=64) for key in keys}),
            carrier=Lender(f"{rank}.1", self.lent),
            read_options=lambda sent: sent,
            caches=caches,
        )

    # --- one step after the other -----------------------------------------------------------------

    def run(self, request: Request) -> Given:
        self.submit(request)
        self.go_on()
        return self.end()

    def submit(self, request: Request, writes: tuple[str, ...] = ()) -> None:
        parts = tuple(m.SentPart.of(part) for part in request.parts)
        self.conductor.hear(
            m.Submit(
                CLIENT,
                7,
                "toy",
                parts,
                request.outputs,
                request.options,
                request.seed,
                tuple(request.given),
                writes=writes,
            )
        )
        self._collect("conductor", self.conductor.outbox)
        self.given.outputs = {name: [] for name in request.outputs}

    def go_on(self) -> None:
        """Until nothing is left to do."""
        for _ in range(20_000):
            steps = self._steps()
            if not steps:
                break
            self.random.choice(steps)()

    def end(self) -> Given:
        self._check_nothing_is_left()
        if isinstance(self.events[0], Failed):
            raise WalkFailed(self.events[0].fault.message)
        return self.given

    def _steps(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = []
        for way, messages in self.mail.items():
            if messages:
                steps.append(lambda way=way: self._hear(way))
        for address, worker in self.workers.items():
            if worker.scheduler.waiting and len(self.flying[address]) < DEPTH:
                steps.append(lambda address=address: self._choose(address))
            if self.flying[address]:
                steps.append(lambda address=address: self._finish(address))
        return steps

    def _hear(self, way: tuple[str, str]) -> None:
        receiver, message = way[1], self.mail[way].popleft()
        if receiver == CLIENT:
            self._tell_client(message)
        elif receiver == "conductor":
            if isinstance(message, m.WalkEnded):
                for stream, count in message.wrote.items():
                    self.given.written[stream] += count
            self.conductor.hear(message)
            self._collect("conductor", self.conductor.outbox)
        else:
            self.workers[receiver].hear(message)
            self._collect(receiver, self.workers[receiver].outbox)

    def _tell_client(self, message: m.Message) -> None:
        if isinstance(message, m.ServerState):
            return
        if isinstance(message, m.Emitted):
            for _, item, index in message.rows():
                value = self.read(item)
                given_ = value if index is None else FanItem(index, value)
                self.given.outputs[message.output].append(given_)
                self._over(self.delivery.received(message.output))
        else:
            self._over(self.delivery.hear(message))

    def _over(self, event: Done | Failed | None) -> None:
        if event is None:
            return
        self.events.append(event)
        if isinstance(event, Done):
            self.given.finish_reason = event.ended.finish_reason
            self.given.counts = event.ended.counts

    def _choose(self, address: str) -> None:
        work = self.workers[address].choose()
        if work is None:
            return
        for call, piece in zip(work.calls, work.pieces, strict=True):
            if call.branch.table is not None and call.op.keeps:
                call.branch.table.reserve(piece)
        self.flying[address].append(work)

    def _finish(self, address: str) -> None:
        worker, work = self.workers[address], self.flying[address].popleft()
        for call, piece in zip(work.calls, work.pieces, strict=True):
            alone = Work(work.key, [call], [piece])
            try:
                results = [self._compute(worker, call, piece)]
            except Exception as error:
                worker.broke(call, error)
            else:
                worker.finish(alone, results)
        self._collect(address, worker.outbox)

    def _compute(self, worker: WorkerState, call: Any, piece: int) -> RowResult:
        row = worker.row(call, piece)
        result = RowResult()
        counts: dict[str, int] = {}
        helping = call.helpings[0] if call.helpings else None
        for stream, each in zip(call.op.reads, call.helpings, strict=True):
            self.given.taken[stream] += each.fresh
        table = row.branch.table
        facts = SimpleNamespace(options=row.options, seed=row.key[0], counts=counts)
        toy = ToyCall(
            dict(row.values),
            helping,
            Branch(table.length if table is not None else 0, 0, row.branch.state),
            call.op.branch,
            row.turn,
            None if call.frame.row is None else call.frame.row.index,
            SimpleNamespace(live=facts, track=row.key[2], number=row.key[3]),
        )
        gave = getattr(self.fakes[call.op.component], call.op.method)(toy)
        stop = toy._stop
        if gave and len(gave) == len(call.op.gives) == 1:
            gave = dict(zip(call.op.gives_names, gave.values(), strict=True))
        result.gives = dict(gave or {}) if stop is None or stop.keep else {}
        result.stop = stop
        if toy.state is not row.branch.state:
            result.state = toy.state
        result.counts = counts
        return result

    def _collect(self, sender: str, outbox: dict[str, list[m.Message]]) -> None:
        for address, messages in outbox.items():
            self.mail[sender, address] += messages
        outbox.clear()

    def read(self, value: Any) -> Any:
        """What a value in a message stands for."""
        if isinstance(value, m.TensorRef):
            return self.lent[value.owner, value.key]
        if isinstance(value, list):
            return [self.read(one) for one in value]
        return value.data if isinstance(value, m.Blob) else value

    def _check_nothing_is_left(self) -> None:
        assert self.delivery.is_over, "nothing is left to do, but the request has not ended"
        assert self.conductor.open_requests == 0
        assert all(worker.open_requests == 0 for worker in self.workers.values())
        for worker in self.workers.values():
            worker.check()
        assert {name: pool.held for name, pool in self.pools.items()} == dict.fromkeys(self.pools, 0)
        assert not any(self.served.reserved.values())


class Kept(Model):
    """Keeps what its tracks were told."""

    def setup(self) -> None:
        self.heard: list[Any] = []

    def keep(self, track: str, outcome: Outcome) -> None:
        self.heard.append((track, outcome))


def toy_walk(model: Model, fakes: Mapping[str, object], request: Request) -> Given:
    result = ToyRuntime(model, fakes).run(request)
    return Given(
        outputs=result.outputs,
        finish_reason=result.finish_reason,
        counts=result.counts,
        written={name: total.written for name, total in result.streams.items()},
        taken={name: total.taken for name, total in result.streams.items()},
    )


def heard(model: Model) -> dict[str, list[Outcome]]:
    """What each Walk of a track gave."""
    told: dict[str, list[Outcome]] = defaultdict(list)
    for name, outcome in getattr(model, "heard", ()):
        told[name].append(outcome)
    return told


def same(
    kind: type[Model],
    fakes: Callable[[], Mapping[str, object]],
    ranks: Mapping[str, str],
    seed: int,
    *,
    parts: tuple[Part, ...] = (),
    options: Mapping[str, Any] | None = None,
    outputs: tuple[str, ...] | None = None,
) -> Given:
    """Walk it in both and compare; what came out."""
    toy, real = kind(), kind()
    request = toy.request(parts=parts, options={"seed": 3, **(options or {})}, outputs=outputs)
    wanted = toy_walk(toy, fakes(), request)
    got = Rig(real, fakes(), ranks, seed).run(request)
    assert got == wanted
    assert heard(real) == heard(toy)
    return got


def on(rank: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"toy.{rank}")


few = settings(max_examples=30, deadline=None)
seeds = st.integers(0, 10_000)

# --- Orpheus -------------------------------------------------------------------------------------------


class ColdOrpheus(Orpheus):
    """Ready at once."""

    def warm_up(self) -> None:  # type: ignore[override]
        return None


class Tokenizer:
    def encode(self, call: ToyCall) -> dict[str, Any]:
        return {"ids": [1, 2, 3], "length": 3}


class Llama:
    """Says ``length`` codes and then the end of speech."""

    def __init__(self, length: int) -> None:
        self.length = length

    def next(self, call: ToyCall) -> dict[str, Any]:
        if call.turn == self.length:
            call.stop("stop")
        call.count("turns")
        return {"ids": call.turn}


class Snac:
    """Gives back the sum of all codes so far, and counts frames; half a frame is not given."""

    def decode(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        call.state = (call.state or ()) + tuple(call.helping.new)
        call.count("codes", len(call.helping.new))
        return {"pcm": "".join(f"{code} " for code in call.helping.new)}


@pytest.mark.parametrize("snac", ["rank0", "rank1"])
@few
@given(seed=seeds, length=st.integers(0, 40), most=st.integers(1, 40))
def test_orpheus_speaks_alike(snac: str, seed: int, length: int, most: int) -> None:
    toy, real = ColdOrpheus(), ColdOrpheus()
    request = toy.request(parts=[Part("text", "hello")], options={"max_tokens": most, "seed": 3})
    fakes = {"tokenizer": Tokenizer(), "llama": Llama(length), "snac": Snac()}
    wanted = toy_walk(toy, fakes, request)
    ranks = on("host", "tokenizer") | on("rank0", "llama") | on(snac, "snac")
    got = Rig(real, fakes, ranks, seed).run(request)
    # how much is one helping depends on how far ahead the writer is; all of them together do not
    for given_ in (got, wanted):
        given_.outputs = {"speech": ["".join(given_.outputs["speech"])]}
    assert got == wanted


# --- a text loop with its detokeniser inside -----------------------------------------------------------


class Chat(Kept):
    @dataclass(frozen=True)
    class Options(Model.Options):
        most: int = 8

    lm = Component("some.where:LM", kv=PagedKV())
    detok = Component("some.where:Detok", state=True)
    words = Output(Text())
    chat = WalkGraph(
        Node(lm, "read", takes="ids"),
        Loop(
            Node(lm, "next", takes="token", gives="token"),
            Node(detok, "decode", takes="token", gives="text", to=words),
            carry="token",
            times="most",
            collect={"tokens": "token"},
        ),
    )

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.lm: (8, request.options.most)}

    @track
    def chatting(self, request: Request, prepared: Outcome) -> Track:
        first = yield self.chat(ids=[5, 6, 7], token=0, most=request.options.most)
        self.keep("chatting", first)
        again = yield self.chat(ids=first["tokens"] or [1], token=first["token"], most=2)
        self.keep("chatting", again)
        return first.finish_reason


class LM:
    """Counts up and says stop at ``last``; its cache's length goes into what it counts."""

    def __init__(self, last: int) -> None:
        self.last = last

    def read(self, call: ToyCall) -> None:
        call.count("read", call.length)

    def next(self, call: ToyCall) -> dict[str, Any]:
        if call["token"] == self.last:
            call.stop("stop")
        call.count("lengths", call.length)
        return {"token": call["token"] + 1}


class Detok:
    """Holds back every odd token, as if it were half a character."""

    def decode(self, call: ToyCall) -> dict[str, Any]:
        held = (call.state or "") + f"{call['token']},"
        is_whole = call["token"] % 2 == 0
        call.state = "" if is_whole else held
        return {"text": held if is_whole else None}


@few
@given(seed=seeds, last=st.integers(0, 12), most=st.integers(1, 9))
def test_a_text_loop_with_its_detokeniser_inside_writes_alike(seed: int, last: int, most: int) -> None:
    same(
        Chat,
        lambda: {"lm": LM(last), "detok": Detok()},
        on("rank0", "lm", "detok"),
        seed,
        options={"most": most},
    )


@few
@given(seed=seeds)
def test_a_text_of_no_turns_is_written_alike(seed: int) -> None:
    same(
        Chat, lambda: {"lm": LM(99), "detok": Detok()}, on("rank0", "lm", "detok"), seed, options={"most": 0}
    )


class StopString(Detok):
    def decode(self, call: ToyCall) -> dict[str, Any]:
        if call["token"] == 4:
            call.stop("stop_string")
        return super().decode(call)


class ChatOnce(Chat):
    @track
    def chatting(self, request: Request, prepared: Outcome) -> Track:
        chat = yield self.chat(ids=[5, 6, 7], token=0, most=request.options.most)
        self.keep("chatting", chat)
        return chat.finish_reason


class QuietLM(LM):
    """Counts nothing: how far it runs ahead of a stop that it has not heard of is a matter of time."""

    def read(self, call: ToyCall) -> None: ...

    def next(self, call: ToyCall) -> dict[str, Any]:
        return {"token": call["token"] + 1}


@few
@given(seed=seeds)
def test_a_stop_string_found_by_the_detokeniser_ends_the_text_alike(seed: int) -> None:
    same(ChatOnce, lambda: {"lm": QuietLM(99), "detok": StopString()}, on("rank0", "lm", "detok"), seed)


# --- an image loop with guidance -----------------------------------------------------------------------


class Paint(Kept):
    llm = Component("some.where:LLM", kv=PagedKV(branches=("no_text", "no_image")))
    solver = Component("some.where:Solver")
    image = Output(Text())

    read = WalkGraph(Node(llm, "read", takes="ids"))
    denoise = WalkGraph(
        Node(solver, "noise", gives="latents"),
        Loop(
            Parallel(
                Node(llm, "full", takes=("latents", "t"), gives="full", keeps=False),
                Node(
                    llm,
                    "no_text",
                    takes=("latents", "t"),
                    gives="no_text",
                    keeps=False,
                    branch="no_text",
                    when="guided",
                ),
                Node(
                    llm,
                    "no_image",
                    takes=("latents", "t"),
                    gives="no_image",
                    keeps=False,
                    branch="no_image",
                    when="guided",
                ),
            ),
            Node(solver, "step", takes=("latents", "t", "full", "no_text", "no_image"), gives="latents"),
            each={"t": "timesteps", "guided": "guidance"},
            carry="latents",
        ),
        Node(solver, "decode", takes="latents", gives="pixels", to=image),
    )

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.llm: (10, 10)}

    @track
    def drawing(self, request: Request, prepared: Outcome) -> Track:
        yield self.read(ids=[1, 2, 3])
        yield Fork(self.llm, "main", to="no_text")
        yield self.read(ids=[4, 5])
        yield Fork(self.llm, "main", to="no_image")
        drawn = yield self.denoise(timesteps=[9, 5, 1], guidance=[True, False, True])
        self.keep("drawing", drawn)
        yield Fork(self.llm, None, to="main")
        yield self.read(ids=drawn["latents"])
        return drawn.finish_reason


class LLM:
    def read(self, call: ToyCall) -> None:
        call.count("read", call.length)

    def full(self, call: ToyCall) -> dict[str, Any]:
        return {"full": [call.length, call["t"]]}

    def no_text(self, call: ToyCall) -> dict[str, Any]:
        return {"no_text": [call.length, call["t"]]}

    def no_image(self, call: ToyCall) -> dict[str, Any]:
        return {"no_image": [call.length, call["t"]]}


class Solver:
    def noise(self, call: ToyCall) -> dict[str, Any]:
        return {"latents": [0]}

    def step(self, call: ToyCall) -> dict[str, Any]:
        return {
            "latents": [
                *call["latents"],
                *call["full"],
                *(call["no_text"] or [-1]),
                *(call["no_image"] or [-1]),
            ]
        }

    def decode(self, call: ToyCall) -> dict[str, Any]:
        return {"pixels": repr(call["latents"])}


@few
@given(seed=seeds)
def test_an_image_loop_with_guidance_and_forks_draws_alike(seed: int) -> None:
    given_ = same(Paint, lambda: {"llm": LLM(), "solver": Solver()}, on("rank0", "llm", "solver"), seed)
    assert given_.outputs["image"] == [repr([0, 5, 9, 3, 9, 5, 9, 5, 5, -1, -1, 5, 1, 3, 1, 5, 1])]


# --- two tracks over streams ---------------------------------------------------------------------------


class Pipe(Kept):
    @dataclass(frozen=True)
    class Options(Model.Options):
        most: int = 8
        enough: int = 99

    a = Component("some.where:A", kv=PagedKV())
    b = Component("some.where:B", state=True)
    items = Stream(Fixed(2), limit=3)
    words = Output(Text())
    write = WalkGraph(Loop(Node(a, "next", takes="n", gives="n", to=items), carry="n", times="most"))
    read = WalkGraph(Loop(Node(b, "read", takes=items, gives="text", to=words)))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.a: (0, 40)}

    @track(writes=items)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        n = 0
        for _ in range(2):
            wrote = yield self.write(n=n, most=request.options.most)
            self.keep("writing", wrote)
            n = wrote["n"]
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        read = yield self.read()
        self.keep("reading", read)
        return read.ended_by


class Counter:
    def next(self, call: ToyCall) -> dict[str, Any]:
        return {"n": call["n"] + 1}


class Reader:
    """Says the same whether the end comes with the last items or behind them: that is a matter of time."""

    def read(self, call: ToyCall) -> dict[str, Any] | None:
        assert call.helping is not None
        if not call.helping.new:
            call.stop("stream")
            return None
        call.state = (call.state or 0) + len(call.helping.new)
        if call.turn == call.options.enough:
            call.stop("enough", keep=True)
        return {"text": f"{call.state}: {list(call.helping.new)}"}


@pytest.mark.parametrize("reader", ["rank0", "rank1"])
@few
@given(seed=seeds, most=st.integers(0, 9), enough=st.sampled_from([0, 1, 99]))
def test_two_tracks_over_a_narrow_stream_hand_over_alike(
    reader: str, seed: int, most: int, enough: int
) -> None:
    same(
        Pipe,
        lambda: {"a": Counter(), "b": Reader()},
        on("rank0", "a") | on(reader, "b"),
        seed,
        options={"most": most, "enough": enough},
    )


class Talk(Kept):
    """A thinker, a talker with a loop in its loop, and a codec."""

    thinker = Component("some.where:Thinker", kv=PagedKV())
    talker = Component("some.where:Talker", kv=PagedKV())
    codec = Component("some.where:Codec", state=True)
    hiddens = Stream(limit=2)
    codes = Stream(Fixed(4))
    speech = Output(Text())
    think = WalkGraph(
        Loop(
            Node(thinker, "next", takes="n", gives=("n", "hidden"), to={"hidden": hiddens}),
            carry="n",
            times=5,
        )
    )
    talk = WalkGraph(
        Loop(
            Node(talker, "next", takes=("code", hiddens), gives="code"),
            Loop(Node(talker, "residual", takes="code", gives="code", to=codes), carry="code", times=3),
            carry="code",
        )
    )
    vocode = WalkGraph(Loop(Node(codec, "decode", takes=codes, gives="pcm", to=speech)))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.thinker: (0, 10), self.talker: (0, 60)}

    @track(writes=hiddens)
    def thinking(self, request: Request, prepared: Outcome) -> Track:
        self.keep("thinking", (yield self.think(n=0)))
        return None

    @track(writes=codes)
    def talking(self, request: Request, prepared: Outcome) -> Track:
        self.keep("talking", (yield self.talk(code=0)))
        return None

    @track
    def sounding(self, request: Request, prepared: Outcome) -> Track:
        self.keep("sounding", (yield self.vocode()))
        return "spoken"


class Thinker:
    def next(self, call: ToyCall) -> dict[str, Any]:
        return {"n": call["n"] + 1, "hidden": 10 * call["n"]}


class Talker:
    def next(self, call: ToyCall) -> dict[str, Any] | None:
        assert call.helping is not None
        if not call.helping.new:  # the end came by itself: nothing to say about it
            call.stop("stream")
            return None
        call.tokens = 1
        return {"code": call["code"] + sum(call.helping.new)}

    def residual(self, call: ToyCall) -> dict[str, Any]:
        return {"code": call["code"] + 1}


class Codec:
    def decode(self, call: ToyCall) -> dict[str, Any] | None:
        assert call.helping is not None
        if not call.helping.new:
            call.stop("stream")
            return None
        return {"pcm": f"{list(call.helping.new)}"}


@few
@given(
    seed=seeds,
    where=st.sampled_from([("rank0",) * 3, ("rank0", "rank1", "rank1"), ("rank0", "rank1", "rank2")]),
)
def test_a_thinker_and_a_talker_speak_alike(seed: int, where: tuple[str, str, str]) -> None:
    ranks = on(where[0], "thinker") | on(where[1], "talker") | on(where[2], "codec")
    same(Talk, lambda: {"thinker": Thinker(), "talker": Talker(), "codec": Codec()}, ranks, seed)


# --- a Walk that fails ---------------------------------------------------------------------------------


class Careful(Kept):
    a = Component("some.where:A", kv=PagedKV())
    words = Output(Text())
    go = WalkGraph(Loop(Node(a, "next", takes="n", gives="n", to=words), carry="n", times="most"))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.a: (0, 40)}

    @track
    def going(self, request: Request, prepared: Outcome) -> Track:
        try:
            yield self.go(n=0, most=9)
        except WalkFailed:
            self.keep("going", (yield self.go(n=100, most=2)))
            return "recovered"
        return None


class Fragile:
    def next(self, call: ToyCall) -> dict[str, Any]:
        if call["n"] == 3:
            raise ValueError("three is too many")
        return {"n": call["n"] + 1}


@few
@given(seed=seeds)
def test_a_track_that_takes_a_failure_goes_on_alike(seed: int) -> None:
    given_ = same(Careful, lambda: {"a": Fragile()}, on("rank0", "a"), seed)
    assert given_.outputs["words"] == [1, 2, 3, 101, 102]
    assert given_.finish_reason == "recovered"


# --- streams that fill ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hungry:
    """One item a helping, and from the third on ``more`` at once: what no check at import can know."""

    more: int

    def cut(self, handed: int, arrived: int, ended: bool) -> Cut | None:
        wanted = 1 if handed < 3 else self.more
        fresh = min(wanted, arrived - handed)
        last = ended and handed + fresh == arrived
        return Cut(handed, handed + fresh, fresh, last) if fresh == wanted or last else None

    def oldest(self, handed: int) -> int:
        return handed


def diamond(streams: tuple[Stream, Stream, Stream]) -> type[Kept]:
    """What one track writes reaches another on two ways, and how far each is ahead is up to their plans::

        writing ── x ──> relaying ── z ──> reading
           └────────────── y ────────────────┘

    "x3 y2 b1" writes three items to x, two to y and one to both; "y2 z b" reads two helpings of y, then z to
    its end, then both side by side to theirs. Only every ``nth`` item is relayed.
    """

    class Diamond(Kept):
        @dataclass(frozen=True)
        class Options(Model.Options):
            writes: str = ""
            nth: int = 1
            reads: str = ""

        a = Component("some.where:A")
        r = Component("some.where:R")
        b = Component("some.where:B")
        x, y, z = streams
        words = Output(Text())
        write_x = WalkGraph(Loop(Node(a, "next", takes="n", gives="n", to=x), carry="n", times="most"))
        write_y = WalkGraph(Loop(Node(a, "next", takes="n", gives="n", to=y), carry="n", times="most"))
        write_both = WalkGraph(
            Loop(Node(a, "twice", takes="n", gives=("n", "m"), to={"n": x, "m": y}), carry="n", times="most")
        )
        relay = WalkGraph(Loop(Node(r, "relay", takes=x, gives="item", to=z)))
        read_y = WalkGraph(Loop(Node(b, "read_y", takes=("most", y), gives="word", to=words)))
        read_z = WalkGraph(Loop(Node(b, "read_z", takes=("most", z), gives="word", to=words)))
        read_both = WalkGraph(Loop(Node(b, "read_both", takes=("most", y, z), gives="word", to=words)))

        @track(writes=(x, y))
        def writing(self, request: Request, prepared: Outcome) -> Track:
            graphs = {"x": self.write_x, "y": self.write_y, "b": self.write_both}
            n = 0
            for word in request.options.writes.split():
                n = (yield graphs[word[0]](n=n, most=int(word[1:])))["n"]
            return None

        @track(writes=z)
        def relaying(self, request: Request, prepared: Outcome) -> Track:
            yield self.relay()
            return None

        @track
        def reading(self, request: Request, prepared: Outcome) -> Track:
            graphs = {"y": self.read_y, "z": self.read_z, "b": self.read_both}
            for word in request.options.reads.split():
                yield graphs[word[0]](most=int(word[1:] or 99))
            return None

    return Diamond


class Writes(Counter):
    def twice(self, call: ToyCall) -> dict[str, Any]:
        return {"n": call["n"] + 1, "m": -call["n"]}


class Relays:
    def relay(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        passed = [item for item in call.helping.new if item % call.options.nth == 0]
        return {"item": passed or None}


class Reads:
    """Says what it is handed, ``most`` times."""

    def read_y(self, call: ToyCall) -> dict[str, Any]:
        if call.turn + 1 == call["most"]:
            call.stop("enough", keep=True)
        new = [list(value.new) for value in call.values.values() if isinstance(value, Helping)]
        return {"word": repr(new) if any(new) else None}

    read_z = read_both = read_y


def ends_alike(
    streams: tuple[Stream, Stream, Stream],
    writes: str,
    reads: str,
    *,
    nth: int = 1,
    ranks: tuple[str, str, str] = ("rank0", "rank1", "rank2"),
    seed: int = 0,
) -> str:
    """Walk it in both: it ends in both, or fails in both with the same words, which are returned.

    Or only one of them comes to its end, with what there is where nothing is full: whether a stream's end is
    known when its last item is handed over is a matter of timing, and a reader that hears of it later takes
    one more turn, for which the stream that it writes needs room.
    """

    def walked(walk: Callable[[], Any]) -> tuple[Any, str]:
        try:
            return walk(), ""
        except WalkFailed as failed:
            return None, str(failed)

    kind = diamond(streams)
    toy, real = kind(), kind()
    request = toy.request(options={"seed": 3, "writes": writes, "reads": reads, "nth": nth})
    fakes = {"a": Writes(), "r": Relays(), "b": Reads()}
    rig = Rig(real, fakes, {name: f"toy.{rank}" for name, rank in zip("arb", ranks, strict=True)}, seed)
    wanted, stalled = walked(lambda: toy_walk(toy, fakes, request))
    given, failed = walked(lambda: rig.run(request))
    if bool(stalled) != bool(failed):
        wide = diamond(tuple(Stream(stream.policy) for stream in streams))()  # type: ignore[arg-type]
        assert (given if stalled else wanted) == toy_walk(wide, fakes, request)
        return ""
    assert (given, failed) == (wanted, stalled)
    return failed


policies = st.one_of(
    st.just(Each()), st.builds(Fixed, st.integers(1, 3)), st.builds(Hungry, st.integers(2, 4))
)
steps = st.integers(1, 6)
hold_ups = st.lists(
    st.one_of(st.sampled_from("yzb"), st.builds("{}{}".format, st.sampled_from("yzb"), steps))
)


@st.composite
def narrow_streams(draw: st.DrawFn) -> Stream:
    """The limit is what the first helping needs, or a little more."""
    policy: ChunkPolicy = draw(policies)
    least = next(n for n in range(1, 9) if policy.cut(0, n, ended=False) is not None)
    return Stream(policy, limit=least + draw(st.integers(0, 4)))


@settings(max_examples=200, deadline=None)
@given(
    streams=st.tuples(narrow_streams(), narrow_streams(), narrow_streams()),
    writes=st.lists(st.builds("{}{}".format, st.sampled_from("xyb"), steps), max_size=4),
    reads=hold_ups,
    nth=st.integers(1, 3),
    ranks=st.sampled_from(
        [
            ("rank0",) * 3,
            ("rank0", "rank1", "rank0"),
            ("rank0", "rank0", "rank1"),
            ("rank0", "rank1", "rank2"),
        ]
    ),
    seed=seeds,
)
def test_whether_a_request_waits_only_on_its_own_streams_is_found_alike(
    streams: tuple[Stream, Stream, Stream],
    writes: list[str],
    reads: list[str],
    nth: int,
    ranks: tuple[str, str, str],
    seed: int,
) -> None:
    told = ends_alike(streams, " ".join(writes), " ".join(reads), nth=nth, ranks=ranks, seed=seed)
    event("stalled" if told else "came to its end")


WAYS = {
    "it reads one stream first while the other fills": (
        (Stream(limit=3), Stream(limit=3), Stream(limit=3)),
        "b12",
        "y z",
        "writing for room in 'x', relaying for room in 'z', reading for items in 'y'; "
        "raise 'x''s limit of 3, "
        "or read it without waiting for 'y'; raise 'z''s limit of 3, or read it without waiting for 'y'",
    ),
    "a node reads two and only one gets items": (
        (Stream(limit=3), Stream(limit=3), Stream(limit=3)),
        "y12 x12",
        "b",
        "writing for room in 'y', relaying for items in 'x', reading for items in 'z'; "
        "raise 'y''s limit of 3, or read it without waiting for 'x' and 'z'",
    ),
    "a policy wants more than the limit lets in": (
        (Stream(), Stream(Hungry(4), limit=3), Stream()),
        "y12",
        "y",
        "writing for room in 'y', relaying for items in 'x', reading for items in 'y'; "
        "raise 'y''s limit of 3, its policy wants more than that for a helping",
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ranks", [("rank0",) * 3, ("rank0", "rank1", "rank0"), ("rank0", "rank1", "rank2")])
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_a_request_that_can_only_hang_fails_and_says_who_waits_where(
    way: str, ranks: tuple[str, str, str], seed: int
) -> None:
    streams, writes, reads, told = WAYS[way]
    said = ends_alike(streams, writes, reads, ranks=ranks, seed=seed)
    assert said == f"all of the request's Walks wait on its own streams: {told}"


@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        ("b12", "y2 z2 y2 z2 y2 z2 y2 z2 y2 z2 y z"),  # one fills, then the other, and each is read in time
        ("b12", "b"),
        ("y12", "y"),  # full at every turn
        ("x3 y3", "z y"),  # just within the limit
        ("b12", ""),  # nobody reads: it is discarded
        ("b12", "y3"),
    ],
)
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_a_request_whose_streams_fill_for_a_while_is_never_failed(writes: str, reads: str, seed: int) -> None:
    narrow = (Stream(limit=3), Stream(limit=3), Stream(limit=3))
    assert ends_alike(narrow, writes, reads, seed=seed) == ""


class Stubborn(Kept):
    """Its reader goes on when it has failed; what it was handed then is gone."""

    a = Component("some.where:A")
    b = Component("some.where:B")
    items = Stream(limit=1)
    words = Output(Text())
    write = WalkGraph(Loop(Node(a, "next", takes="n", gives="n", to=items), carry="n", times=6))
    read = WalkGraph(Loop(Node(b, "read", takes=items, gives="word", to=words)))

    @track(writes=items)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        yield self.write(n=0)
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        while True:
            try:
                yield self.read()
            except WalkFailed:
                continue
            return None


class Squeamish:
    def read(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        if 2 in call.helping.new or 3 in call.helping.new:
            raise ValueError("it cannot be read")
        return {"word": repr(list(call.helping.new)) if call.helping.new else None}


@pytest.mark.parametrize("reader", ["rank0", "rank1"])
@few
@given(seed=seeds)
def test_what_a_call_was_handed_that_failed_holds_its_writer_up_no_more(reader: str, seed: int) -> None:
    fakes = {"a": Counter(), "b": Squeamish()}
    given_ = same(Stubborn, lambda: fakes, on("rank0", "a") | on(reader, "b"), seed)
    assert given_.outputs["words"] == ["[1]", "[4]", "[5]", "[6]"]


# --- futures from one context --------------------------------------------------------------------------


def imagining(
    drawn: frozenset[str],
    world: Component,
    note: Component,
    judge: Component,
    latents: Output,
    notes: Output,
    verdicts: Output,
) -> WalkGraph:
    """A graph of what was drawn."""
    step = Node(world, "step", takes=("action", "latent"), gives="latent", to={"latent": latents})
    told = Node(note, "tell", takes="latent", gives="told", to={"told": notes}, when="wanted")
    parts: list[Any] = []
    if "before" in drawn:
        parts.append(Node(world, "look", takes="latent", gives="latent"))
    parts.append(
        Loop(
            step,
            *([told] if "inside" in drawn else []),
            each={"action": "plan"},
            carry="latent",
            collect={"path": "latent"},
        )
    )
    if "inside" not in drawn:
        parts.append(told)
    takes = ("latent", "path") if "inside" in drawn else ("latent", "path", "told")
    fan = Fan(Sequential(*parts), over={"plan": "plans", "wanted": "wanted"})
    weigh = Node(judge, "weigh", takes=takes, gives="verdict", to=verdicts)
    if "once" in drawn:
        return WalkGraph(
            Node(judge, "split", takes="words", gives="plans"),
            Node(world, "see", takes="seen", gives="latent"),
            fan,
            weigh,
        )
    return WalkGraph(
        Node(judge, "split", takes="words", gives="plans"),
        Loop(
            Node(world, "see", takes="seen", gives="latent"),
            fan,
            weigh,
            times="rounds",
            collect={"verdicts": "verdict"},
        ),
    )


class Futures(Kept):
    """Drawn: what a row does before, in and after its loop, and whether all of it is done twice."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        rounds: int = 1

    world = Component("some.where:World", kv=PagedKV())
    note = Component("some.where:Note", state=True)
    judge = Component("some.where:Judge")
    latents = Output(Text())
    notes = Output(Text())
    verdicts = Output(Text())

    imagine = imagining(frozenset(), world, note, judge, latents, notes, verdicts)

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.world: (4 * request.options.rounds, 12)}

    words: Sequence[str] = ()

    @track
    def planning(self, request: Request, prepared: Outcome) -> Track:
        for _ in range(2):
            inputs = {
                "seen": [1, 2, 3],
                "words": list(self.words),
                "wanted": [len(word) != 1 for word in self.words],
                "rounds": request.options.rounds,
            }
            seen = yield self.imagine(**{name: inputs[name] for name in self.imagine.inputs})
            self.keep("planning", seen)
        return None


class World:
    """Adds up what it is given and how long its cache is; a 9 ends a row, a 7 ends its loop after it."""

    def see(self, call: ToyCall) -> dict[str, Any]:
        return {"latent": sum(call["seen"]) + call.length}

    def look(self, call: ToyCall) -> dict[str, Any]:
        assert call.row is not None
        if call.row == 2:
            call.stop("blind")
        call.count("looked")
        return {"latent": call["latent"] + call.length + call.row}

    def step(self, call: ToyCall) -> dict[str, Any]:
        if call["action"] == 9:
            call.stop("crash")
        if call["action"] == 7:
            call.stop("arrived", keep=True)
        call.count("steps")
        return {"latent": call["latent"] * 3 + call["action"] + call.length + 100 * call.turn}


class Note:
    def tell(self, call: ToyCall) -> dict[str, Any]:
        call.state = (call.state or ()) + (call["latent"],)
        return {"told": repr(call.state)}


class Judge:
    def split(self, call: ToyCall) -> dict[str, Any]:
        return {"plans": [[int(letter) for letter in word] for word in call["words"]]}

    def weigh(self, call: ToyCall) -> dict[str, Any]:
        return {"verdict": repr(call.values)}


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    drawn=st.frozensets(st.sampled_from(["before", "inside", "once"])),
    words=st.lists(st.text("12379", max_size=4), max_size=6),
    rounds=st.integers(1, 3),
)
def test_futures_are_imagined_alike(seed: int, drawn: frozenset[str], words: list[str], rounds: int) -> None:
    parts = (Futures.world, Futures.note, Futures.judge, Futures.latents, Futures.notes, Futures.verdicts)
    kind = type("Drawn", (Futures,), {"words": words, "imagine": imagining(drawn, *parts)})
    toy, real = kind(), kind()
    fakes = {"world": World(), "note": Note(), "judge": Judge()}
    request = toy.request(options={"seed": 3, "rounds": rounds})
    wanted = toy_walk(toy, fakes, request)
    got = Rig(real, fakes, on("rank0", "world", "note", "judge"), seed).run(request)
    for given_ in (got, wanted):  # rows run at the same time: what each gives is in order, and no more
        for name in ("latents", "notes"):
            given_.outputs[name].sort(key=lambda item: item.row)
    assert got == wanted
    assert heard(real) == heard(toy)
