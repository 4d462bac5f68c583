"""One line for each request, when it has been answered; nothing of what was said in it."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.http.access import logged
from walkserve.http.keys import ApiKeys
from walkserve.http.requests import RequestLog

pytestmark = pytest.mark.anyio

SPEECH = "/v1/audio/speech"
ASK = {"model": "parrot", "input": "a secret"}


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture) -> SimpleNamespace:
    """What was logged of requests, as dictionaries."""
    caplog.set_level(logging.DEBUG, "walkserve.http.access")

    async def wait(number: int = 1) -> list[dict]:
        async with asyncio.timeout(5):
            while len(found := [r for r in caplog.records if r.name == "walkserve.http.access"]) < number:
                await asyncio.sleep(0.002)
        return [{"level": r.levelname, "id": r.request_id, "line": r.getMessage(), **r.fields} for r in found]

    return SimpleNamespace(wait=wait, text=lambda: caplog.text)


def answer(stage):
    def on_submit(mailbox, submit):
        mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.1, 0.2)), stage.ended(submit.tag, 1))

    return on_submit


async def test_a_line_says_what_was_asked_how_it_ended_and_what_it_took(stage, lines):
    async with stage.serving(answer(stage)) as at:
        reply = await at.client.post(SPEECH, json=ASK, params={"token": "hush"})
        (said,) = await lines.wait()
    assert said["id"] == reply.headers["x-request-id"]
    assert said["line"].startswith(f"POST {SPEECH} 200 in 0.")
    assert said["line"].endswith("48 bytes, parrot:toy: stop")
    assert (said["method"], said["path"], said["status"], said["bytes"]) == ("POST", SPEECH, 200, 48)
    assert (said["model"], said["finish_reason"], said["level"]) == ("parrot:toy", "stop", "INFO")
    assert 0 < said["duration_s"] < 5
    assert at.mailbox.sent_of(stage.Submit)[0].label == said["id"]


async def test_a_line_also_has_what_its_client_calls_it(stage, lines):
    async with stage.serving(answer(stage)) as at:
        await at.client.post(SPEECH, json=ASK, headers={"x-client-request-id": "order 17"})
        (said,) = await lines.wait()
    assert said["client_request_id"] == "order 17"
    assert said["line"].endswith("48 bytes, order 17, parrot:toy: stop")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", SPEECH, {"model": "parrot"}, 400),
        ("POST", SPEECH, {"model": "nobody", "input": "a"}, 404),
        ("GET", "/v1/nothing%0Ahttp%201", None, 404),
        ("PUT", "/v1/models", None, 405),
    ],
)
async def test_what_was_refused_has_its_line_too(stage, lines, method, path, body, status):
    async with stage.serving(keys=ApiKeys.of(["sesame"])) as at:
        key = {"authorization": "Bearer sesame"}
        assert (await at.client.request(method, path, json=body, headers=key)).status_code == status
        assert (await at.client.request(method, path, json=body)).status_code == 401
        refused, unknown = await lines.wait(2)
    assert (refused["status"], unknown["status"]) == (status, 401)
    assert "model" not in refused
    assert "\n" not in refused["line"]


async def test_a_client_that_left_is_a_499_of_a_cancelled_request(stage, lines):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json=ASK))
        await at.mailbox.wait_for(stage.Submit)
        asking.cancel()
        (said,) = await lines.wait()
    assert (said["status"], said["finish_reason"], said["bytes"]) == (499, "cancelled", 0)


async def test_a_stream_that_broke_says_why(stage, lines):
    def on_submit(mailbox, submit):
        mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.1)))
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("lost", 503, "unavailable", "worker_lost")))

    async with stage.serving(on_submit) as at:
        with pytest.raises(Exception, match="incomplete chunked read|peer closed"):
            await at.client.post(SPEECH, json=ASK | {"stream": True})
        (said,) = await lines.wait()
    assert (said["status"], said["finish_reason"]) == (200, "worker_lost")


async def test_what_is_asked_every_second_is_only_for_debugging(stage, lines):
    async with stage.serving() as at:
        await at.client.get("/health")
        await at.client.get("/ready")
        await at.client.get("/v1/models")
        said = await lines.wait(3)
    assert [one["level"] for one in said] == ["DEBUG", "DEBUG", "INFO"]


@pytest.mark.parametrize(
    ("messages", "status", "size"),
    [
        (
            [
                {"type": "websocket.accept"},
                {"type": "websocket.send", "bytes": b"12"},
                {"type": "websocket.send", "text": "3"},
                {"type": "websocket.close", "code": 1000},
            ],
            101,
            3,
        ),
        ([{"type": "websocket.close", "code": 1008}], 403, 0),
        (
            [
                {"type": "websocket.http.response.start", "status": 401, "headers": []},
                {"type": "websocket.http.response.body", "body": b"no"},
            ],
            401,
            2,
        ),
    ],
    ids=["opened", "closed", "refused"],
)
async def test_a_socket_has_one_line_when_it_is_over(lines, messages, status, size):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def send(message: Any) -> None: ...

    scope: Any = {"type": "websocket", "path": "/v1/stream", "headers": []}
    await logged(app, RequestLog())(scope, send, send)  # type: ignore[arg-type]
    (said,) = await lines.wait()
    assert (said["method"], said["path"]) == ("WEBSOCKET", "/v1/stream")
    assert (said["status"], said["bytes"]) == (status, size)


async def test_no_line_holds_what_was_said_who_said_it_or_with_which_key(stage, lines):
    async with stage.serving(answer(stage), keys=ApiKeys.of(["sesame"])) as at:
        key = {"authorization": "Bearer sesame"}
        await at.client.post(SPEECH, json=ASK, headers=key, params={"token": "hush"})
        await at.client.post(SPEECH, json=ASK | {"voice": "a secret"}, headers=key)
        await at.client.post(SPEECH, json=ASK | {"input": "a bug"}, headers=key)
        await at.client.post(SPEECH, json=ASK, headers={"authorization": "Bearer sesame2"})
        await lines.wait(4)
    assert not [word for word in ("secret", "hush", "sesame") if word in lines.text().replace("/secret/", "")]
