"""WebSockets that a plugin adds, through a real web server: frames in, events out, and how they end."""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

import pytest
import websockets
from msgspec import Meta, Struct
from websockets.asyncio.client import connect

from walkserve import messages as m
from walkserve.http.keys import ApiKeys
from walkserve_sdk import Part
from walkserve_sdk.errors import BadRequest, DeclarationError
from walkserve_sdk.serving import SocketRoute

pytestmark = pytest.mark.anyio
PATH = "/v1/scores/live"


class Play(Struct, frozen=True, tag="play"):
    """One request."""

    model: str
    title: Annotated[str, Meta(min_length=1)]
    id: str | None = None
    timeout_s: float | None = None


class Leave(Struct, frozen=True, tag="leave"):
    """The end."""

    how: str = ""


class Energy(Struct, frozen=True, tag="energy"):
    """One number."""

    value: float


async def live(socket):
    async for frame in socket:
        if isinstance(frame, Leave):
            if frame.how == "badly":
                raise RuntimeError("in /secret/place.py")
            if frame.how == "refused":
                raise BadRequest("not like this", param="how")
            return
        if isinstance(frame, bytes):
            await socket.send({"type": "echo", "bytes": len(frame)}, frame)
            continue
        async with socket.answering(frame.id):
            name, model = socket.find(frame.model)
            request = model.request(parts=(Part("text", frame.title),), outputs=("energy",))
            running = await socket.start(name, request, id=frame.id, timeout_s=frame.timeout_s)
            async for event in running:
                await socket.send(Energy(float(event.data)))
            await socket.send({"type": "done", "request_id": running.request_id})


ROUTE = SocketRoute(path=PATH, surface="scores", handle=live, frames=(Play, Leave), summary="Play along")
PLAY = {"type": "play", "model": "studio", "title": "a song"}


@pytest.fixture
def stage(stage):
    """With the socket, and a model that has its surface."""

    class Band(stage.Studio):
        """Scores."""

        own_surfaces = ("scores",)

    stage.serving = partial(stage.serving, more={"studio": Band()}, routes=[ROUTE])
    return stage


def gives(*energies):
    def on_submit(mailbox, submit):
        mailbox.say(m.Emitted("energy", [submit.tag] * len(energies), list(energies)))
        mailbox.say(m.RequestEnded(submit.tag, "stop", submit.seed, {"energy": len(energies)}, {}, {}))

    return on_submit


class Talk:
    def __init__(self, socket):
        self.socket = socket

    async def say(self, **frame):
        await self.socket.send(json.dumps(frame))

    async def hear(self):
        frame = await asyncio.wait_for(self.socket.recv(), 5)
        return frame if isinstance(frame, bytes) else json.loads(frame)

    async def closed(self):
        await asyncio.wait_for(self.socket.wait_closed(), 5)
        return self.socket.close_code


@asynccontextmanager
async def talking(at, **more):
    async with connect(at.server.url.replace("http", "ws") + PATH, **more) as socket:
        yield Talk(socket)


async def test_one_request_after_another_runs_on_one_socket(stage):
    async with stage.serving(gives(0.5, 0.25)) as at, talking(at) as talk:
        for _ in range(2):
            await talk.say(**PLAY)
            assert [await talk.hear(), await talk.hear()] == [
                {"type": "energy", "value": 0.5},
                {"type": "energy", "value": 0.25},
            ]
            done = await talk.hear()
            status = (await at.client.get(f"/v1/requests/{done['request_id']}")).json()
            assert (status["model"], status["state"]) == ("studio", "done")
        await talk.say(type="leave")
        assert await talk.closed() == 1000


async def test_bytes_go_both_ways_in_frames_of_their_own(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.socket.send(b"\x00\xff")
        assert [await talk.hear(), await talk.hear()] == [{"type": "echo", "bytes": 2}, b"\x00\xff"]


async def test_a_request_has_its_clients_id_and_no_more_time_than_the_server_gives(stage):
    async with stage.serving(gives(), timeout_s=9) as at, talking(at) as talk:
        for timeout_s in (None, 2.5, 10):
            await talk.say(**PLAY, id="mine", timeout_s=timeout_s)
            last = await talk.hear()
        assert [each.timeout_s for each in at.mailbox.sent_of(m.Submit)] == [9, 2.5]
        assert (last["type"], last["id"], last["error"]["param"]) == ("error", "mine", "timeout_s")


@pytest.mark.parametrize(
    ("frame", "param", "said"),
    [
        ("{", None, "no valid JSON"),
        ({"type": "plai"}, "type", "did you mean 'play'?"),
        ({"type": "play", "model": "studio"}, "title", "missing"),
        (PLAY | {"title": ""}, "title", "length >= 1"),
        (PLAY | {"titel": "x"}, "titel", "did you mean 'title'?"),
        (PLAY | {"model": "nobody"}, "model", "there is no model"),
        (PLAY | {"model": "parrot"}, "model", "has no scores"),
        (PLAY | {"title": "x" * 2000}, None, "larger than 1,000 bytes"),
    ],
)
async def test_a_bad_frame_is_told_and_harms_nothing(stage, frame, param, said):
    async with stage.serving(gives(1), body_bytes=1000) as at, talking(at) as talk:
        await talk.say(**PLAY)
        assert [(await talk.hear())["type"] for _ in range(2)] == ["energy", "done"]
        await talk.socket.send(frame if isinstance(frame, str) else json.dumps(frame))
        told = await talk.hear()
        assert (told["type"], told["frame"], told["error"].get("param")) == ("error", 2, param)
        assert said in told["error"]["message"]
        await talk.say(**PLAY)
        assert (await talk.hear())["type"] == "energy"


async def test_a_request_that_fails_is_told_and_the_socket_goes_on(stage):
    def fail(mailbox, submit):
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("broke", 500, code="component_failed")))

    async with stage.serving(fail) as at, talking(at) as talk:
        for _ in range(2):
            await talk.say(**PLAY, id="a")
            told = await talk.hear()
            assert (told["id"], told["error"]["message"]) == ("a", "broke")


@pytest.mark.parametrize(
    ("how", "code", "said"), [("badly", 1011, "internal error"), ("refused", 1008, "not like")]
)
async def test_what_a_handler_raises_is_told_and_closes_the_socket(stage, how, code, said, caplog):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(type="leave", how=how)
        told = await talk.hear()
        assert said in told["error"]["message"] and "/secret" not in json.dumps(told)
        assert await talk.closed() == code


async def test_a_client_that_leaves_cancels_what_runs(stage):
    async with stage.serving() as at:
        async with talking(at) as talk:
            await talk.say(**PLAY)
            (submit,) = await at.mailbox.wait_for(m.Submit)
        (cancel,) = await at.mailbox.wait_for(m.Cancel)
        assert cancel.tag == submit.tag


async def test_a_client_that_says_nothing_for_long_is_let_go_but_not_one_that_waits(stage):
    idle = SocketRoute(path=PATH, surface="scores", handle=together, frames=(Play,), summary="x", idle_s=0.2)
    async with stage.serving(routes=[idle]) as at, talking(at) as talk:
        await talk.say(**PLAY)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        await asyncio.sleep(0.5)
        gives(1)(at.mailbox, submit)
        assert await talk.hear() == {"type": "energies", "values": [1]}
        assert (await talk.hear())["error"]["code"] == "idle_timeout"
        assert await talk.closed() == 1008


async def together(socket):
    """Runs a request and goes on listening meanwhile."""

    async def run(frame):
        name, model = socket.find(frame.model)
        request = model.request(parts=(Part("text", frame.title),), outputs=("energy",))
        result = await (await socket.start(name, request)).result()
        await socket.send({"type": "energies", "values": [float(each) for each in result.energy]})

    async with asyncio.TaskGroup() as group:
        while (frame := await socket.receive()) is not None:
            group.create_task(run(frame))


async def test_a_server_that_stops_lets_a_request_end_and_then_closes(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**PLAY)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.server.drain()
        await talk.say(**PLAY)
        await asyncio.sleep(0.3)
        gives(1)(at.mailbox, submit)
        assert [(await talk.hear())["type"] for _ in range(2)] == ["energy", "done"]
        assert await talk.closed() == 1012
        assert len(at.mailbox.sent_of(m.Submit)) == 1


async def test_frames_wait_at_the_client_when_too_many_wait_here(stage):
    async with stage.serving(media_bytes=5000) as at, talking(at) as talk:
        await talk.say(**PLAY)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        sending = asyncio.create_task(send_all(talk, [bytes(4000)] * 200))
        await asyncio.sleep(0.3)
        gives(1)(at.mailbox, submit)
        assert [(await talk.hear())["type"] for _ in range(2)] == ["energy", "done"]
        for _ in range(200):
            assert (await talk.hear())["bytes"] == 4000
            assert len(await talk.hear()) == 4000
        await sending


async def send_all(talk, frames):
    for frame in frames:
        await talk.socket.send(frame)


async def test_a_key_is_wanted_before_it_opens_and_a_frame_may_be_so_large(stage):
    async with stage.serving(keys=ApiKeys.of(["sesame"])) as at:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with talking(at):
                pass
        assert refused.value.response.status_code == 401
        async with talking(at, additional_headers={"authorization": "Bearer sesame"}) as talk:
            await talk.socket.send(b"x")
            assert (await talk.hear())["type"] == "echo"


async def test_models_are_told_with_the_socket(stage):
    async with stage.serving() as at:
        card = (await at.client.get("/v1/models/studio")).json()
        assert card["surfaces"] == {"scores": [f"WS {PATH}"]}


@pytest.mark.parametrize("frames", [(), (Play, Play), (type("Bare", (Struct,), {}),)])
def test_frames_have_tags_that_tell_them_apart(frames):
    with pytest.raises(DeclarationError, match="each with a tag of its own"):
        SocketRoute(path=PATH, surface="scores", handle=live, frames=frames, summary="x")
