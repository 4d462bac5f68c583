"""A mailbox that is only lists, two small models, and a real web server in front of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Annotated, Any

import httpx
import numpy as np
import pytest
from msgspec import Meta
from msgspec.structs import replace

from walkserve import messages as m
from walkserve.extensions import AnyRoute, Extension, Extensions
from walkserve.http.app import create_app
from walkserve.http.callers import Caller
from walkserve.http.run import Server, bind
from walkserve.http.settings import HttpSettings
from walkserve_sdk import (
    Audio,
    BadRequest,
    Component,
    Image,
    Model,
    Node,
    Output,
    Part,
    Request,
    SamplingParams,
    SpeechAsk,
    Tensor,
    Text,
    Track,
    Video,
    WalkGraph,
    track,
)

VOICES = ("polly", "jack")
RATE = 8000


class Parrot(Model):
    """Says things."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        voice: str = "polly"
        max_tokens: Annotated[int, Meta(ge=1)] = 10
        sampling: SamplingParams = SamplingParams()

    speaker = Component("nowhere:Speaker")
    speech = Output(Audio(rate=RATE))
    say = WalkGraph(Node(speaker, "say", takes="text", gives="pcm", to=speech))

    def setup(self) -> None:
        self.voices = VOICES

    def check(self, request: Request) -> Request:
        if request.options.voice.lower() not in VOICES:
            raise BadRequest(f"no voice {request.options.voice!r}; known: {', '.join(VOICES)}", param="voice")
        return request

    def speech_request(self, ask: SpeechAsk) -> Request:
        if ask.text == "a bug":
            raise RuntimeError("in /secret/place.py")
        voice = {} if ask.voice is None else {"voice": ask.voice}
        return self.request(parts=(Part("text", ask.text),), options={**ask.options, **voice})

    @track
    def saying(self, request: Request, prepared: Any) -> Track:
        yield self.say(text=request.one("text"))


class Actor(Parrot):
    """Says things as it is told to; both show in the request's options."""

    takes_instructions = takes_speed = True

    def speech_request(self, ask: SpeechAsk) -> Request:
        length = round(len(ask.instructions or "") / ask.speed)
        return self.request(parts=(Part("text", ask.text),), options={"max_tokens": length})


class Choir(Model):
    """Sings, in three channels."""

    singer = Component("nowhere:Singer")
    song = Output(Audio(rate=RATE, channels=3))
    sing = WalkGraph(Node(singer, "sing", takes="text", gives="pcm", to=song))

    def speech_request(self, ask: SpeechAsk) -> Request:
        return self.request(parts=(Part("text", ask.text),), options=ask.options)

    @track
    def singing(self, request: Request, prepared: Any) -> Track:
        yield self.sing(text=request.one("text"))


class Painter(Model):
    """Paints, and does not speak."""

    brush = Component("nowhere:Brush")
    image = Output(Image())
    paint = WalkGraph(Node(brush, "paint", takes="text", gives="pixels", to=image))

    @track
    def painting(self, request: Request, prepared: Any) -> Track:
        yield self.paint(text=request.one("text"))


class Studio(Model):
    """Takes and makes everything."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        steps: Annotated[int, Meta(ge=1)] = 4

    inputs = ("text", "image", "audio", "video", "tensor")
    desk = Component("nowhere:Desk")
    caption = Output(Text())
    song = Output(Audio(rate=RATE, channels=2))
    picture = Output(Image())
    film = Output(Video(fps=12.5))
    energy = Output(Tensor(dtype="float16"), many=True)
    work = WalkGraph(
        Node(
            desk,
            "make",
            takes="text",
            gives=("a", "b", "c", "d", "e"),
            to={"a": caption, "b": song, "c": picture, "d": film, "e": energy},
        )
    )

    @track
    def working(self, request: Request, prepared: Any) -> Track:
        yield self.work(text="")


WORKER = m.WorkerInfo(
    "parrot.rank0",
    "parrot.rank0.1",
    77,
    "ready",
    {"speaker": "cpu, torch"},
    {"speaker": (9, 2)},
    tokens={"speaker": (128, 144)},
    budgets=(
        m.TokenBudget("speaker", "read", 512, ((0, 64), (100, 16))),
        m.TokenBudget("speaker", "say", 96),
    ),
)
READY = m.ServerState("ready", "", 55, (m.ModelInfo("parrot:toy", "Parrot", "toy", (WORKER,), 1, 0),))


class FakeMailbox:
    """Keeps what is sent; gives what was said to it. ``conductor`` is called with what is sent to one."""

    def __init__(self, conductor: Callable[["FakeMailbox", m.Message], None] = lambda mailbox, message: None):
        self.sent: list[tuple[str, m.Message]] = []
        self.forgotten: list[str] = []
        self._inbox: asyncio.Queue[m.Message] = asyncio.Queue()
        self._conductor = conductor

    def send(self, to: str, messages: Any) -> None:
        for message in messages:
            self.sent.append((to, message))
            if to == "conductor":
                self._conductor(self, message)

    def say(self, *messages: m.Message) -> None:
        for message in messages:
            self._inbox.put_nowait(message)

    async def receive(self) -> list[m.Message]:
        return [await self._inbox.get()]

    def forget(self, to: str) -> None:
        self.forgotten.append(to)

    def sent_of(self, kind: type) -> list[Any]:
        return [message for _, message in self.sent if isinstance(message, kind)]

    async def wait_for(self, kind: type, number: int = 1) -> list[Any]:
        async with asyncio.timeout(5):
            while len(self.sent_of(kind)) < number:
                await asyncio.sleep(0.002)
        return self.sent_of(kind)


def sound(*values: float) -> m.Array:
    samples = np.array(values, np.float32)
    return m.Array("float32", samples.shape, samples.tobytes())


def emitted(tag: int, first: int, *items: m.Array) -> m.Emitted:
    """What a worker says that gave these, from the ``first`` on, to one request."""
    return m.Emitted("speech", [tag] * len(items), list(items))


def ended(tag: int, items: int, reason: str = "stop") -> m.RequestEnded:
    return m.RequestEnded(tag, reason, 7, {"speech": items}, {"input_tokens": 3, "output_tokens": 21}, {})


@asynccontextmanager
async def serving(
    on_submit: Callable[[FakeMailbox, m.Submit], None] = lambda mailbox, submit: None,
    *,
    state: m.ServerState = READY,
    buffer_bytes: int = 1 << 26,
    more: Mapping[str, Model] = MappingProxyType({}),
    profiles: bool = False,
    routes: Sequence[AnyRoute] = (),
    **settings: Any,
) -> AsyncIterator[Any]:
    """The whole HTTP process but for its processes: ``on_submit`` is the conductor, ``more`` are models."""
    extension = Extension("extra", "extra.routes", "walk-plugin-extra", "1.0", tuple(routes))

    def conductor(mailbox: FakeMailbox, message: m.Message) -> None:
        match message:
            case m.Attach():
                mailbox.say(replace(state))  # as another process would, a new one each time
            case m.Submit():
                on_submit(mailbox, message)

    mailbox = FakeMailbox(conductor)
    models = {
        "parrot:toy": Parrot(),
        "actor": Actor(),
        "choir": Choir(),
        "painter:a": Painter(),
        "painter:b": Painter(),
        **more,
    }
    http = HttpSettings(**settings)
    async with Caller(
        mailbox, buffer_bytes=buffer_bytes, profiles=profiles, max_open=http.max_open_requests
    ) as caller:
        await caller.wait_until(lambda: caller.state == state)
        app, bound = create_app(caller, models, http, Extensions((extension,))), bind("127.0.0.1", 0)
        server = Server(app, bound, receive_timeout_s=http.receive_timeout_s)
        ready = asyncio.Event()
        running = asyncio.create_task(server.run(ready.set))
        await ready.wait()
        try:
            async with httpx.AsyncClient(base_url=server.url, timeout=10) as client:
                yield SimpleNamespace(client=client, mailbox=mailbox, caller=caller, server=server)
        finally:
            server.stop()
            await running


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def stage() -> Iterator[Any]:
    """What the tests of this folder share."""
    yield SimpleNamespace(
        FakeMailbox=FakeMailbox,
        Parrot=Parrot,
        Studio=Studio,
        READY=READY,
        Submit=m.Submit,
        serving=serving,
        sound=sound,
        emitted=emitted,
        ended=ended,
    )
