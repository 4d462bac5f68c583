"""Handlers of plugins' routes that write streams of their requests, from a socket's frames or a body."""

import asyncio
import json
from functools import partial

import numpy as np
import pytest
from msgspec import Struct
from websockets.asyncio.client import connect

from walkserve import messages as m
from walkserve_sdk import Component, Loop, Model, Node, Output, Part, Stream, Text, WalkGraph, track
from walkserve_sdk.serving import Route, SocketRoute

pytestmark = pytest.mark.anyio
LIVE, WHOLE = "/v1/steps/live", "/v1/steps"


class Walker(Model):
    """Steps in, words out."""

    inputs = ("text", "image")
    own_surfaces = ("steps",)
    legs = Component("nowhere:Legs")
    steps = Stream(by="client", limit=2)
    inner = Stream()
    words = Output(Text())
    go = WalkGraph(
        Loop(Node(legs, "go", takes=steps, gives=("word", "echo"), to={"word": words, "echo": inner}))
    )
    tell = WalkGraph(Loop(Node(legs, "tell", takes=inner, gives="nothing")))

    @track(writes=inner)
    def going(self, request, prepared):
        yield self.go()

    @track
    def telling(self, request, prepared):
        yield self.tell()


class Begin(Struct, frozen=True, tag="begin"):
    """The first frame."""

    writes: list[str]


class Step(Struct, frozen=True, tag="step"):
    """One item."""

    to: str = "steps"


class Leave(Struct, frozen=True, tag="leave"):
    """No more of them."""


async def live(socket):
    begin = await socket.receive()
    name, model = socket.find("walker")
    running = await socket.start(name, model.request(), writes=begin.writes)

    async def tell():
        async for event in running:
            await socket.send({"type": "word", "text": event.data})

    telling = asyncio.create_task(tell())
    try:
        async for frame in socket:
            async with socket.answering("step"):
                if isinstance(frame, bytes):
                    await socket.check([Part("image", frame, "eye")])
                    await running.send(Walker.steps, {"eye": np.frombuffer(frame, np.uint8)})
                elif isinstance(frame, Step):
                    await running.send(frame.to, 1)
                else:
                    running.end(Walker.steps)
                    await telling
                    return
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


class Steps(Struct, frozen=True):
    """The body."""

    steps: list[int]


class Told(Struct, frozen=True):
    """The answer."""

    words: str


async def whole(exchange):
    running = await exchange.start(exchange.request(), writes=[Walker.steps])
    for step in exchange.fields.steps:
        await running.send("steps", step)
    running.end("steps")
    return Told((await running.result()).words)


ROUTES = [
    SocketRoute(path=LIVE, surface="steps", handle=live, frames=(Begin, Step, Leave), summary="Walk"),
    Route(
        path=WHOLE,
        surface="steps",
        handle=whole,
        fields=Steps,
        answer=Told,
        summary="Walk",
        example={"steps": [1]},
        example_answer={"words": "left"},
    ),
]


@pytest.fixture
def stage(stage):
    stage.serving = partial(stage.serving, more={"walker": Walker()}, routes=ROUTES)
    return stage


async def say(socket, **frame):
    await socket.send(json.dumps(frame))


async def hear(socket):
    return json.loads(await asyncio.wait_for(socket.recv(), 5))


def ended(tag, words):
    return m.RequestEnded(tag, "stop", 1, {"words": words}, {}, {})


async def test_a_socket_writes_the_streams_it_has_named_while_another_task_reads(stage):
    async with stage.serving() as at, connect(at.server.url.replace("http", "ws") + LIVE) as socket:
        await say(socket, type="begin", writes=["steps"])
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert submit.writes == ("steps",)
        await say(socket, type="step")
        (item,) = await at.mailbox.wait_for(m.WriteStream)
        assert (item.tag, item.stream, item.first, item.items) == (submit.tag, "steps", 0, [1])
        at.mailbox.say(m.Emitted("words", [submit.tag], ["left"]))
        assert await hear(socket) == {"type": "word", "text": "left"}
        await say(socket, type="leave")
        (finish,) = await at.mailbox.wait_for(m.FinishStream)
        assert (finish.stream, finish.total) == ("steps", 1)
        at.mailbox.say(ended(submit.tag, 1))
        await asyncio.wait_for(socket.wait_closed(), 5)
        assert socket.close_code == 1000


async def test_what_no_stream_takes_is_told_and_the_request_goes_on(stage):
    async with stage.serving() as at, connect(at.server.url.replace("http", "ws") + LIVE) as socket:
        await say(socket, type="begin", writes=["steps"])
        await say(socket, type="step", to="stepps")
        assert "did you mean 'steps'?" in (await hear(socket))["error"]["message"]
        await socket.send(b"no image at all")
        told = await hear(socket)
        assert (told["id"], told["error"]["param"]) == ("step", "eye")
        assert at.mailbox.sent_of(m.WriteStream) == []
        await say(socket, type="step")
        await at.mailbox.wait_for(m.WriteStream)


@pytest.mark.parametrize("name", ["inner", "strides"])
async def test_a_handler_that_would_write_what_is_not_a_clients_is_broken(stage, name, caplog):
    async with stage.serving() as at, connect(at.server.url.replace("http", "ws") + LIVE) as socket:
        await say(socket, type="begin", writes=[name])
        assert "internal error" in (await hear(socket))["error"]["message"]
        await asyncio.wait_for(socket.wait_closed(), 5)
        assert (socket.close_code, at.mailbox.sent_of(m.Submit)) == (1011, [])
        assert f"takes no stream '{name}' from a handler" in caplog.text


async def test_what_a_socket_waits_to_write_ends_with_its_request(stage):
    async with stage.serving() as at, connect(at.server.url.replace("http", "ws") + LIVE) as socket:
        await say(socket, type="begin", writes=["steps"])
        (submit,) = await at.mailbox.wait_for(m.Submit)
        for _ in range(3):
            await say(socket, type="step")
        await at.mailbox.wait_for(m.WriteStream, 2)
        await asyncio.sleep(0.1)
        assert len(at.mailbox.sent_of(m.WriteStream)) == 2
        at.mailbox.say(m.RequestFailed(submit.tag, m.Fault("silent", 408, "timeout", "client_idle")))
        told = await hear(socket)
        assert (told["id"], told["error"]["code"]) == ("step", "client_idle")


async def test_a_body_may_become_a_stream(stage):
    def answer(mailbox, submit):
        mailbox.say(m.Emitted("words", [submit.tag], ["left right"]), ended(submit.tag, 1))

    async with stage.serving(answer) as at:
        told = await at.client.post(WHOLE, json={"model": "walker", "steps": [1, 2]})
        assert told.json() == {"words": "left right"}
        assert at.mailbox.sent_of(m.Submit)[0].writes == ("steps",)
