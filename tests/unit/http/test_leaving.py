"""A client that leaves is noticed wherever its request is, in whatever form it wanted its answer."""

import asyncio
import json
import socket
import struct

import pytest

from walkserve import messages as m

pytestmark = pytest.mark.anyio
SAY = {"model": "parrot", "input": "One is here. Two follows. Three is last."}
ASK = {"model": "parrot", "text": "One is here. Two follows. Three is last."}
FORMS = {
    "a whole file": ("/v1/audio/speech", SAY, "*/*"),
    "a file as it is made": ("/v1/audio/speech", {**SAY, "stream": True}, "*/*"),
    "a file's events": ("/v1/audio/speech", {**SAY, "stream_format": "sse"}, "*/*"),
    "a split file": ("/v1/audio/speech", {**SAY, "split": "sentence"}, "*/*"),
    "lines": ("/v1/generate", ASK, "application/x-ndjson"),
    "split lines": ("/v1/generate", {**ASK, "split": "sentence"}, "application/x-ndjson"),
    "events": ("/v1/generate", ASK, "text/event-stream"),
    "bytes": ("/v1/generate", ASK, "audio/wav"),
}
LOUD = [0.5] * 500_000


async def asking(at, form):
    """A client with a small window that has asked, and reads nothing yet."""
    path, ask, accept = FORMS[form]
    body = json.dumps(ask).encode()
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", at.server.port))
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\ncontent-type: application/json\r\n"
    await asyncio.get_running_loop().sock_sendall(
        made, f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    )
    return made


def leave(made, how):
    if how == "resets":
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()


async def nobody_works(at):
    """Every task that served a request has ended."""
    async with asyncio.timeout(5):
        while at.server._server.server_state.tasks or at.caller.open_calls:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("form", FORMS)
async def test_while_it_is_prepared_or_waits(stage, form, how):
    async with stage.serving() as at:
        made = await asking(at, form)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        leave(made, how)
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]
        await nobody_works(at)


@pytest.mark.parametrize("form", FORMS)
async def test_while_it_runs(stage, form):
    async with stage.serving() as at:
        made = await asking(at, form)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(m.Admitted(submit.tag), stage.emitted(submit.tag, 0, stage.sound(0.5)))
        submits = await at.mailbox.wait_for(m.Submit, 2 if "split" in form else 1)
        await asyncio.sleep(0.02)
        leave(made, "resets")
        cancels = await at.mailbox.wait_for(m.Cancel, len(submits))
        assert {cancel.tag for cancel in cancels} == {submit.tag for submit in submits}
        await nobody_works(at)


@pytest.mark.parametrize("form", [form for form in FORMS if "split" not in form])
async def test_while_its_answer_is_written(stage, form):
    def on_submit(mailbox, submit):
        for first in range(4):
            mailbox.say(stage.emitted(submit.tag, first, stage.sound(*LOUD)))
        mailbox.say(stage.ended(submit.tag, 4))

    async with stage.serving(on_submit) as at:
        made = await asking(at, form)
        async with asyncio.timeout(10):
            while at.caller.open_calls or not at.mailbox.sent_of(m.Submit):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        state = at.server._server.server_state
        assert state.connections, "what is left to write waits for its reader"
        if form in ("a file as it is made", "lines"):  # others are one write, which the connection keeps
            assert state.tasks
        leave(made, "resets")
        await nobody_works(at)
        async with asyncio.timeout(5):
            while state.connections:
                await asyncio.sleep(0.005)
        assert (await at.client.get("/health")).status_code == 200


async def test_a_socket_that_is_lost_without_a_word(stage):
    """No close frame: the connection is only gone, with one request waiting, one running, one written."""
    from websockets.asyncio.client import connect

    async with stage.serving() as at:
        url = f"{at.server.url.replace('http', 'ws')}/v1/stream"
        async with connect(url, max_queue=1) as talk:
            for label in "abc":
                await talk.send(json.dumps({**ASK, "type": "generate", "id": label}))
            submits = await at.mailbox.wait_for(m.Submit, 3)
            at.mailbox.say(stage.emitted(submits[1].tag, 0, stage.sound(0.5)))
            for first in range(4):
                at.mailbox.say(stage.emitted(submits[2].tag, first, stage.sound(*LOUD)))
            at.mailbox.say(stage.ended(submits[2].tag, 4))
            async with asyncio.timeout(5):
                while at.caller.open_calls > 2:
                    await asyncio.sleep(0.005)
            talk.transport.abort()
            cancels = await at.mailbox.wait_for(m.Cancel, 2)
            assert {cancel.tag for cancel in cancels} == {submits[0].tag, submits[1].tag}
            await nobody_works(at)
