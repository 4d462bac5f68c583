"""What is no image or video, or too large, is refused before the runtime hears of it, on every route."""

import asyncio
import base64
import json
import struct
from functools import partial

import pytest
import websockets
from tests.dot import DOT

from walkserve import messages as m
from walkserve.http import media_checks

pytestmark = pytest.mark.anyio
GENERATE = "/v1/generate"
WIDE = DOT[:6] + struct.pack("<HH", 3000, 2000) + DOT[10:]
"""A screen of 6 million pixels around that one."""

REFUSED = [
    # kind, data, status, a word of the message
    ("image", b"hello", 400, "this is none of them"),
    ("image", b"", 400, "this is nothing"),
    ("image", DOT[:12], 400, "broken or cut off"),
    ("image", WIDE, 413, "3000 x 2000 are 6,000,000 pixels, and 1,000,000 are the most it may have"),
    ("video", b"#EXTM3U\nhttp://127.0.0.1/x.ts", 400, "this is none of them"),
    ("video", DOT[:-1], 400, "the file is cut off"),
    ("video", WIDE, 413, "6,000,000 pixels a frame, and 2,000,000 are the most it may have"),
]


@pytest.fixture
def stage(stage):
    """With a model that takes everything, and limits."""
    limits = {"image_pixels": 1_000_000, "frame_pixels": 2_000_000}
    stage.serving = partial(stage.serving, more={"studio": stage.Studio()}, **limits)
    return stage


def is_as_told(error, status, word, at):
    return (
        error["param"] == at
        and word in error["message"]
        and error["code"] == ("media_too_large" if status == 413 else None)
    )


async def test_a_form_and_json_are_refused_with_the_place_of_the_input(stage):
    async with stage.serving() as at:
        for kind, data, status, word in REFUSED:
            form = [("model", (None, "studio")), ("image", ("a.png", DOT)), (kind, ("x", data))]
            inputs = [
                {"type": "text", "text": "look"},
                {"type": kind, "data": "data:image/png;base64," + base64.b64encode(data).decode()},
            ]
            for response in (
                await at.client.post(GENERATE, files=form),
                await at.client.post(GENERATE, json={"model": "studio", "inputs": inputs}),
            ):
                assert response.status_code == status, response.text
                assert is_as_told(response.json()["error"], status, word, "inputs[1]"), response.text
        assert at.mailbox.sent_of(m.Submit) == []


async def test_on_a_socket_only_that_request_is_refused(stage):
    url = "ws://127.0.0.1:{}/v1/stream"
    async with stage.serving() as at, websockets.connect(url.format(at.server.port)) as socket:
        for number, (kind, data, status, word) in enumerate(REFUSED):
            inputs = [{"type": kind, "bytes": len(data)}]
            await socket.send(
                json.dumps({"type": "generate", "id": f"r{number}", "model": "studio", "inputs": inputs})
            )
            await socket.send(data)
            told = json.loads(await asyncio.wait_for(socket.recv(), 5))
            assert (told["type"], told["id"]) == ("error", f"r{number}")
            assert is_as_told(told["error"], status, word, "inputs[0]"), told
        assert at.mailbox.sent_of(m.Submit) == []
        inputs = [{"type": "image", "bytes": len(DOT)}]
        await socket.send(json.dumps({"type": "generate", "id": "r0", "model": "studio", "inputs": inputs}))
        await socket.send(DOT)
        assert json.loads(await asyncio.wait_for(socket.recv(), 5))["type"] == "started"
        assert len(at.mailbox.sent_of(m.Submit)) == 1


async def test_what_the_model_does_not_take_is_refused_unread(stage):
    async with stage.serving() as at:
        form = [("model", (None, "parrot")), ("image", ("a.png", b"hello"))]
        response = await at.client.post(GENERATE, files=form)
        assert response.status_code == 400
        assert "takes no image" in response.json()["error"]["message"]


async def test_sound_and_tensors_are_not_looked_at(stage):
    async with stage.serving() as at:
        form = [("model", (None, "studio")), ("audio", ("a", b"hello")), ("tensor", ("b", b"hello"))]
        sending = asyncio.create_task(at.client.post(GENERATE, files=form))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert [part.data for part in submit.parts] == [b"hello", b"hello"]
        at.mailbox.say(m.RequestEnded(submit.tag, "stop", 7, {}, {}, {}))
        assert (await sending).status_code == 200


async def test_others_are_served_while_a_header_is_read(stage, monkeypatch):
    async with stage.serving() as at:
        loop, may_end = asyncio.get_running_loop(), asyncio.Event()

        def reads_on(*given):
            asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result(10)

        monkeypatch.setitem(media_checks._CHECKS, "image", reads_on)
        form = [("model", (None, "studio")), ("image", ("a.png", DOT))]
        sending = asyncio.create_task(at.client.post(GENERATE, files=form))
        assert (await at.client.get("/health")).status_code == 200
        assert at.mailbox.sent_of(m.Submit) == [] and not sending.done()
        may_end.set()
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(m.RequestEnded(submit.tag, "stop", 7, {}, {}, {}))
        assert (await sending).status_code == 200
