"""Pages of the origins that are named may call the server and read its answers; others may not."""

from __future__ import annotations

from typing import Any

import pytest

from walkserve.errors import SettingError
from walkserve.http.cors import check_origin, shared
from walkserve.http.keys import ApiKeys

pytestmark = pytest.mark.anyio

HERE = "https://app.example.org"
ASK = {"model": "parrot", "input": "hi"}
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}


def answer_at_once(stage):
    def on_submit(mailbox, submit):
        mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.1)), stage.ended(submit.tag, 1))

    return on_submit


async def test_a_preflight_is_answered_without_a_key(stage):
    async with stage.serving(cors_origins=(HERE,), keys=ApiKeys.of(["k"])) as at:
        answer = await at.client.options("/v1/audio/speech", headers=PREFLIGHT | {"origin": HERE})
        assert answer.status_code == 204
        told = answer.headers
        assert told["access-control-allow-origin"] == HERE
        assert told["access-control-allow-headers"] == "authorization, content-type"
        assert "POST" in told["access-control-allow-methods"]
        assert told["vary"] == "origin"


@pytest.mark.parametrize("origin", ["https://evil.example", "http://app.example.org", f"{HERE}.evil", "null"])
async def test_a_page_of_another_origin_is_told_no_and_cannot_read_answers(stage, origin):
    async with stage.serving(cors_origins=(HERE,)) as at:
        refused = await at.client.options("/v1/audio/speech", headers=PREFLIGHT | {"origin": origin})
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "origin_not_allowed"
        read = await at.client.get("/v1/models", headers={"origin": origin})
        assert "access-control-allow-origin" not in read.headers
        assert read.headers["vary"] == "origin"  # what is cached for it is not for the page that may


async def test_every_header_of_ours_can_be_read_by_a_page(stage):
    async with stage.serving(answer_at_once(stage), cors_origins=(HERE,)) as at:
        answer = await at.client.post("/v1/audio/speech", json=ASK, headers={"origin": HERE})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == HERE
        exposed = set(answer.headers["access-control-expose-headers"].split(", "))
        assert {name for name in answer.headers if name.startswith("x-")} <= exposed
        assert "retry-after" in exposed


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models", 401),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/audio/speech", 405),
        ("POST", "/v1/audio/speech", 415),
    ],
)
async def test_errors_can_be_read_by_a_page_too(stage, method, path, status):
    async with stage.serving(cors_origins=(HERE,), keys=ApiKeys.of(["k"])) as at:
        key = {} if status == 401 else {"authorization": "Bearer k"}
        answer = await at.client.request(method, path, headers=key | {"origin": HERE})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == HERE
        assert "error" in answer.json()


async def test_a_star_lets_every_page_in(stage):
    async with stage.serving(cors_origins=("*",)) as at:
        for origin in (HERE, "null"):
            answer = await at.client.get("/v1/models", headers={"origin": origin})
            assert answer.headers["access-control-allow-origin"] == "*"


async def test_nothing_is_said_where_no_origin_is_set(stage):
    async with stage.serving() as at:
        answer = await at.client.get("/v1/models", headers={"origin": HERE})
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("origins", "origin", "is_let_in"),
    [
        ((), None, True),  # no browser
        ((), "http://127.0.0.1:8000", True),  # the server's own pages
        ((), "https://evil.example", False),
        ((HERE,), HERE, True),
        ((HERE,), "https://evil.example", False),
        (("*",), "https://evil.example", True),
    ],
)
async def test_a_browser_opens_sockets_for_any_page_so_they_are_refused_here(origins, origin, is_let_in):
    said: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        said.append("opened")

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message["type"])

    headers = [(b"host", b"127.0.0.1:8000"), *([(b"origin", origin.encode())] if origin else [])]
    scope: Any = {"type": "websocket", "path": "/v1/stream", "headers": headers}
    await shared(app, origins)(scope, receive, send)  # type: ignore[arg-type]
    assert said == (["opened"] if is_let_in else ["websocket.close"])


def test_what_no_browser_says_is_no_origin():
    for origin in (
        "*",
        "https://a.org",
        "http://localhost:3000",
        "chrome-extension://abc",
        "http://[::1]:80",
    ):
        check_origin(origin)
    for wrong in ("", "a.org", "https://a.org/", "https://*.a.org", "https://a.org?x", "https://u@a.org"):
        with pytest.raises(SettingError, match="is no origin"):
            check_origin(wrong)
