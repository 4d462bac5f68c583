"""What is too much or too slow is refused at once; what was accepted is answered."""

from __future__ import annotations

import asyncio
import json

import pytest

from walkserve.http.callers import Caller
from walkserve.http.problems import TooManyRequests
from walkserve.http.terms import Terms
from walkserve_sdk import Part
from walkserve_sdk.errors import Unavailable

pytestmark = pytest.mark.anyio

SPEECH = "/v1/audio/speech"
ASK = {"model": "parrot", "input": "hi"}
HEAD = "POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.fixture
def request_of_parrot(stage):
    return stage.Parrot().request(parts=[Part("text", "hello")])


# --- how many -----------------------------------------------------------------------------------------


async def test_a_flood_is_told_to_come_again_at_once_and_all_who_were_let_in_are_answered(stage):
    async with stage.serving(max_open_requests=3) as at:
        asking = [asyncio.create_task(at.client.post(SPEECH, json=ASK)) for _ in range(3)]
        submits = await at.mailbox.wait_for(stage.Submit, 3)
        for _ in range(20):
            refused = await at.client.post(SPEECH, json=ASK)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            error = refused.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
            assert "3 requests are open" in error["message"]
        assert len(at.mailbox.sent_of(stage.Submit)) == 3
        assert (await at.client.get("/v1/models")).status_code == 200  # what computes nothing is answered
        for submit in submits:
            at.mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.1)), stage.ended(submit.tag, 1))
        assert [(await task).status_code for task in asking] == [200, 200, 200]


async def test_one_that_ends_or_leaves_makes_room_for_one(stage):
    async with stage.serving(max_open_requests=1) as at:
        for _ in range(2):
            asking = asyncio.create_task(at.client.post(SPEECH, json=ASK))
            while at.caller.open_calls == 0:
                await asyncio.sleep(0.002)
            assert (await at.client.post(SPEECH, json=ASK)).status_code == 429
            asking.cancel()  # its client leaves
            while at.caller.open_calls:
                await asyncio.sleep(0.002)


async def test_several_calls_of_one_request_count_once_and_none_of_them_is_refused(stage, request_of_parrot):
    mailbox = stage.FakeMailbox()
    async with Caller(mailbox, max_open=2) as caller:
        mailbox.say(stage.READY)
        await caller.wait_until(lambda: caller.state.phase == "ready")

        def submit(id: str = ""):
            return caller.submit("parrot:toy", request_of_parrot, terms=Terms(id))

        pieces = [submit("req-a") for _ in range(5)]
        submit("req-b")
        with pytest.raises(TooManyRequests):
            submit("req-c")
        pieces.append(submit("req-a"))  # a further piece of one that was let in
        for call in pieces:
            call.cancel()
        submit("req-c")
        with pytest.raises(TooManyRequests):
            submit("req-d")
        submit("req-a")  # between two pieces others came; it is answered all the same


async def test_a_server_that_is_not_ready_is_a_503_however_many_wait(stage, request_of_parrot):
    caller = Caller(stage.FakeMailbox(), max_open=0)
    with pytest.raises(Unavailable):
        caller.submit("parrot:toy", request_of_parrot)


# --- how slow -----------------------------------------------------------------------------------------


async def reply(reader: asyncio.StreamReader) -> tuple[int, dict]:
    """Status and error of what comes until the connection ends."""
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


async def test_a_body_that_trickles_is_a_408_and_the_connection_ends(stage):
    async with stage.serving(receive_timeout_s=0.2) as at:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
            writer.write(f"{HEAD}content-length: 1000\r\n\r\n{{".encode())
            trickling = asyncio.create_task(trickle(writer, b" "))
            try:
                status, error = await reply(reader)
            except ConnectionResetError:  # a byte crossed the end, by which TCP forgets what was said before
                continue
            finally:
                trickling.cancel()
                writer.close()
            assert (status, error["code"]) == (408, "request_timeout")
            assert error["type"] == "invalid_request_error"
            break
        else:
            pytest.fail("it was never told why")
        assert at.caller.open_calls == 0


async def trickle(writer: asyncio.StreamWriter, piece: bytes) -> None:
    while True:
        await asyncio.sleep(0.02)
        writer.write(piece)


async def test_headers_that_trickle_are_a_408(stage):
    async with stage.serving(receive_timeout_s=0.2) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        writer.write(HEAD.encode())
        trickling = asyncio.create_task(trickle(writer, b"x-a: b\r\n"))
        status, error = await reply(reader)
        assert (status, error["code"]) == (408, "request_timeout")
        trickling.cancel()
        writer.close()


async def test_who_connects_and_says_nothing_is_let_go(stage):
    async with stage.serving(receive_timeout_s=0.2) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_a_body_that_goes_on_trickling_after_its_answer_ends_with_the_connection(stage):
    async with stage.serving(receive_timeout_s=0.3) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        writer.write(f"{HEAD.replace('speech', 'nothing')}content-length: 1000\r\n\r\n{{".encode())
        trickling = asyncio.create_task(trickle(writer, b" "))
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 404 ")
        trickling.cancel()
        writer.close()


async def test_a_slow_answer_and_a_kept_connection_are_not_cut_by_it(stage):
    async with stage.serving(receive_timeout_s=0.1) as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json=ASK))
        (submit,) = await at.mailbox.wait_for(stage.Submit)
        await asyncio.sleep(0.3)
        at.mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.1)), stage.ended(submit.tag, 1))
        assert (await asking).status_code == 200
        connections = len(at.server._server.server_state.connections)
        await asyncio.sleep(0.2)
        assert (await at.client.get("/v1/models")).status_code == 200
        assert len(at.server._server.server_state.connections) == connections


async def test_a_large_body_may_take_as_long_as_its_size_wants(stage):
    async with stage.serving(receive_timeout_s=0.3, body_bytes=1 << 24) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        size = 3 << 20
        writer.write(f"{HEAD}connection: close\r\ncontent-length: {size}\r\n\r\n".encode())
        for _ in range(6):
            await asyncio.sleep(0.1)  # 0.6 s in all, of which each MiB has 0.3 s
            writer.write(b" " * (size // 6))
        status, error = await reply(reader)
        assert (status, error["code"]) == (400, "invalid_json")
        writer.close()


# --- how large ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["GET /", "GET / HTTP/1.1\r\nhost: x\r\nx-a: "], ids=["address", "header"])
async def test_a_head_without_end_is_a_431(stage, start):
    async with stage.serving() as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        writer.write(start.encode())
        writer.write(b"a" * 70_000)
        status, error = await reply(reader)
        assert (status, error["code"]) == (431, "headers_too_large")
        assert "65,536 bytes" in error["message"]
        writer.close()
