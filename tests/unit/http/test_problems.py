"""Every error is OpenAI's envelope, whoever raised it."""

import asyncio
import json

import pytest

pytestmark = pytest.mark.anyio
SPEECH = "/v1/audio/speech"


def envelope(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req-")
    body = response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


async def test_a_route_that_is_not_there_is_a_404(stage):
    async with stage.serving() as at:
        error = envelope(await at.client.get("/v1/nothing"), 404)
        assert error["type"] == "invalid_request_error"
        assert "GET /v1/nothing" in error["message"]


async def test_another_method_is_a_405_that_says_which_there_is(stage):
    async with stage.serving() as at:
        response = await at.client.get(SPEECH)
        assert "POST" in response.headers["allow"]
        assert envelope(response, 405)["message"] == f"{SPEECH} takes POST, not GET"


async def test_what_we_did_wrong_is_a_500_without_a_traceback_and_is_logged(stage, caplog):
    async with stage.serving() as at:
        error = envelope(await at.client.post(SPEECH, json={"model": "parrot", "input": "a bug"}), 500)
        assert error["type"] == "server_error"
        assert "secret" not in json.dumps(error)
        assert "RuntimeError: in /secret/place.py" in caplog.text


@pytest.mark.parametrize(
    "body", [b"{bad", b"", b"[1]", b"null", b'{"model": "\xff"}', b"[" * 5000, b'{"model":"\\ud800"}']
)
async def test_a_body_that_is_no_json_object_is_a_400(stage, body):
    async with stage.serving() as at:
        response = await at.client.post(SPEECH, content=body, headers={"content-type": "application/json"})
        error = envelope(response, 400)
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_another_content_type_is_a_415(stage, headers):
    async with stage.serving() as at:
        response = await at.client.post(
            SPEECH, content=b'{"model": "parrot", "input": "hi"}', headers=headers
        )
        assert envelope(response, 415)["code"] == "unsupported_media_type"


async def test_a_body_too_large_is_a_413_before_it_has_been_sent(stage):
    async with stage.serving(body_bytes=1000) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        head = "POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: 1000000000\r\n\r\n{{".encode())
        assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_a_body_too_large_without_a_length_is_a_413_before_it_has_ended(stage):
    async with stage.serving(body_bytes=1000) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        head = "POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        for _ in range(3):
            writer.write(b"190\r\n" + b" " * 400 + b"\r\n")
        assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_a_large_body_sent_in_one_go_is_a_413_in_the_envelope(stage):
    async with stage.serving(body_bytes=1000) as at:
        for _ in range(3):  # on one connection: what is not read does not get in the way of the next
            response = await at.client.post(SPEECH, json={"model": "parrot", "input": "x" * 3_000_000})
            assert envelope(response, 413)["code"] == "body_too_large"


async def test_what_is_no_http_is_a_400_in_the_envelope(stage):
    async with stage.serving() as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        writer.write(b"HELLO\r\n\r\n")
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert json.loads(body)["error"]["code"] == "invalid_http"
        writer.close()


async def test_a_client_that_leaves_while_it_sends_is_nobodys_error(stage, caplog):
    async with stage.serving() as at:
        _, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        head = "POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: 100\r\n\r\n{{".encode())
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.sleep(0.05)
        assert caplog.text == ""
