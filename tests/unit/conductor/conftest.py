"""Two small families, and a conductor on a desk: messages in, messages out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.conductor.served import Served
from walkserve.conductor.state import ConductorState
from walkserve.journal.recorder import Journals
from walkserve_sdk import (
    BadRequest,
    Budget,
    Component,
    Fork,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Part,
    Request,
    Stream,
    Text,
    Track,
    Walk,
    WalkFailed,
    WalkGraph,
    track,
)

CLIENT = "http"


class Speaker(Model):
    """It prepares, budgets, and has two tracks over a stream; its text says what its plan does."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        max_tokens: int = 8

    tokenizer = Component("some.where:Tokenizer", device="cpu")
    lm = Component("some.where:LM", kv=PagedKV(branches=("other",)))
    codec = Component("some.where:Codec", state=True)
    codes = Stream()
    speech = Output(Text())

    encode = WalkGraph(Node(tokenizer, "encode", takes="text", gives=("ids", "length")))
    write = WalkGraph(
        Loop(Node(lm, "next", takes="ids", gives="ids", to=codes), carry="ids", times="max_tokens")
    )
    vocode = WalkGraph(Loop(Node(codec, "decode", takes=codes, gives="pcm", to=speech)))

    def prepare(self, request: Request) -> Walk | None:
        text = request.one("text")
        if text == "refuse":
            raise BadRequest("this cannot be said", param="text")
        if text == "trip before":
            raise ZeroDivisionError
        return self.encode(text=text)

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.lm: (prepared["length"], request.options.max_tokens)}

    @track(writes=codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        text, most = request.one("text"), request.options.max_tokens
        if text == "trip at once":
            raise ZeroDivisionError
        if text == "leave":
            raise SystemExit(0)
        if text == "careful":
            try:
                yield self.write(ids=prepared["ids"], max_tokens=most)
            except WalkFailed as failure:
                again = yield self.write(ids=prepared["ids"], max_tokens=1)
                return f"{failure.status} {again.finish_reason}"
        if text == "fork":
            yield Fork(self.lm, "main", to="other")
        try:
            wrote = yield self.write(ids=prepared["ids"], max_tokens=most)
        finally:
            if text == "cling":
                raise ZeroDivisionError
            if text == "leave when cancelled":
                raise SystemExit(0)
        if text == "trip later":
            raise ZeroDivisionError
        if text == "ask for nonsense":
            yield self.write(ids=object(), max_tokens=most)
        return wrote.finish_reason

    @track
    def sounding(self, request: Request, prepared: Outcome) -> Track:
        if request.one("text") == "silence":
            return None
        yield self.vocode()
        return None


class Listener(Speaker):
    """It also hears what its client says meanwhile."""

    cues = Stream(by="client", limit=3, idle_s=10)
    hear = WalkGraph(Loop(Node(Speaker.codec, "hear", takes=cues, gives="heard")))

    @track
    def listening(self, request: Request, prepared: Outcome) -> Track:
        if request.one("text") == "silence":
            return None
        yield self.hear()
        return None


class Plain(Model):
    """No prepare, no budget, one track, one worker; a warm-up."""

    tool = Component("some.where:Tool")
    words = Output(Text())
    look = WalkGraph(Node(tool, "look", takes="text", gives="seen", to=words))

    def warm_up(self) -> Request:
        return self.request(parts=(Part("text", "warm"),), options={"seed": 0})

    @track
    def looking(self, request: Request, prepared: Outcome) -> Track:
        yield self.look(text=request.one("text"))
        return None


class ColdSpeaker(Speaker):
    """With a warm-up."""

    def warm_up(self) -> Request:
        return self.request(parts=(Part("text", "warm"),), options={"seed": 0, "max_tokens": 1})


class Desk:
    """A conductor, and who works for it."""

    def __init__(
        self,
        models: Mapping[str, tuple[Model, Mapping[str, str]]],
        pages: int,
        journals: Journals | None = None,
    ) -> None:
        self.served = {name: Served(name, model, ranks) for name, (model, ranks) in models.items()}
        self.state = ConductorState(self.served, journals)
        self.pages = pages

    def hear(self, *messages: m.Message) -> dict[str, list[m.Message]]:
        """What it says to these, the server's state left out."""
        for message in messages:
            self.state.hear(message)  # type: ignore[arg-type]
        return self._said()

    def hear_of(self, happened: Callable[[ConductorState], None]) -> dict[str, list[m.Message]]:
        """What it says to something that no message is."""
        happened(self.state)
        return self._said()

    def _said(self) -> dict[str, list[m.Message]]:
        said = {
            address: [message for message in sent if not isinstance(message, m.ServerState)]
            for address, sent in self.state.outbox.items()
        }
        self.state.outbox.clear()
        return {address: sent for address, sent in said.items() if sent}

    def states(self) -> list[m.ServerState]:
        """What a client that has just attached is told."""
        self.state.outbox.clear()
        self.state.hear(m.Attach("watcher"))
        told = [message for message in self.state.outbox["watcher"] if isinstance(message, m.ServerState)]
        self.state.outbox.clear()
        return told

    def ready(self, worker: str, incarnation: int = 1) -> dict[str, list[m.Message]]:
        """A worker has loaded."""
        name = worker.partition(".")[0]
        ranks = self.served[name].ranks
        components = {part: "cpu" for part, rank in ranks.items() if rank == worker}
        pools = {"lm": m.PoolInfo(self.pages, 4, 64)} if "lm" in components else {}
        return self.hear(m.WorkerReady(worker, f"{worker}.{incarnation}", 1, components, pools))

    def submit(
        self,
        tag: int,
        text: str = "hello",
        model: str = "speaker",
        client: str = CLIENT,
        timeout_s: float | None = None,
        writes: tuple[str, ...] = (),
        **options: Any,
    ) -> dict[str, list[m.Message]]:
        served = self.served.get(model)
        kind = type(served.model) if served else Speaker
        outputs = tuple(kind.spec.outputs)
        parts = (m.SentPart("text", text.encode()),)
        return self.hear(
            m.Submit(
                client,
                tag,
                model,
                parts,
                outputs,
                kind.Options(**options),
                3,
                tuple(options),
                timeout_s=timeout_s,
                writes=writes,
            )
        )

    @property
    def reserved(self) -> dict[str, int]:
        return {part: pages for one in self.served.values() for part, pages in one.reserved.items() if pages}


HOST, RANK0 = "speaker.host", "speaker.rank0"


@pytest.fixture
def desk() -> Callable[..., Desk]:
    """A speaker with two workers, ready; or what else is named."""

    def make(
        *,
        pages: int = 40,
        ready: bool = True,
        warm: bool = False,
        plain: bool = False,
        hears: bool = False,
        journals: Journals | None = None,
    ) -> Desk:
        model = ColdSpeaker() if warm else Listener() if hears else Speaker()
        models: dict[str, tuple[Model, Mapping[str, str]]] = {
            "speaker": (model, {"tokenizer": HOST, "lm": RANK0, "codec": RANK0})
        }
        if plain:
            models["plain"] = (Plain(), {"tool": "plain.rank0"})
        made = Desk(models, pages, journals)
        if ready:
            made.ready(HOST)
            made.ready(RANK0)
        return made

    return make
