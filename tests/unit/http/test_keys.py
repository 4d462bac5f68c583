"""Without a key nothing is answered but /health; keys are compared in constant time and printed nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from walkserve.errors import SettingError
from walkserve.http.guard import guarded
from walkserve.http.keys import ApiKeys, is_read_by_all, read_keys
from walkserve.http.settings import HttpSettings

KEYS = ApiKeys.of(["sesame", "sk-second"])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


ROUTES = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/parrot"),
    ("GET", "/v1/server"),
    ("GET", "/v1/requests/x"),
    ("POST", "/v1/audio/speech"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/schema/openapi.json"),
    ("GET", "/v1/nothing"),
    ("DELETE", "/v1/models"),
    ("GET", "/health/x"),
    ("GET", "//health"),
]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        {"authorization": "Bearer"},
        {"authorization": "Basic sesame"},
        {"authorization": "sesame"},
    ],
    ids=["none", "wrong", "empty", "basic", "bare"],
)
async def test_every_route_wants_a_key_also_one_that_is_not_there(stage, headers):
    async with stage.serving(keys=KEYS) as at:
        for method, path in ROUTES:
            answer = await at.client.request(method, f"{at.server.url}{path}", headers=headers)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-request-id"].startswith("req-")
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")


@pytest.mark.anyio
@pytest.mark.parametrize("key", ["sesame", "sk-second"])
async def test_each_key_is_let_in_and_health_is_open(stage, key):
    async with stage.serving(keys=KEYS) as at:
        assert (await at.client.get("/v1/models", headers=bearer(key))).status_code == 200
        assert (await at.client.get("/v1/nothing", headers=bearer(key))).status_code == 404
        assert (await at.client.get("/ready", headers={"authorization": f"bearer {key}"})).status_code == 200
        assert (await at.client.get("/health")).status_code == 200


@pytest.mark.anyio
async def test_a_refused_body_is_not_read_and_nothing_is_submitted(stage):
    async with stage.serving(keys=KEYS) as at:
        answer = await at.client.post("/v1/audio/speech", json={"model": "parrot", "input": "x" * 100_000})
        assert answer.status_code == 401
        assert at.mailbox.sent_of(object)[1:] == []  # only what asks how the server is


async def _knock(headers: list[tuple[bytes, bytes]], extensions: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask to open a socket; what is said, or "opened"."""
    said: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        said.append({"type": "opened"})

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message)

    scope: Any = {"type": "websocket", "path": "/v1/stream", "headers": headers, "extensions": extensions}
    await guarded(app, KEYS)(scope, receive, send)  # type: ignore[arg-type]
    return said


@pytest.mark.anyio
async def test_a_socket_is_refused_before_it_opens():
    start, body = await _knock([], {"websocket.http.response": {}})
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 401)
    assert (b"www-authenticate", b"Bearer") in start["headers"]
    assert json.loads(body["body"])["error"]["code"] == "invalid_api_key"
    (close,) = await _knock([(b"authorization", b"Bearer no")], {})
    assert (close["type"], close["code"]) == ("websocket.close", 1008)
    assert await _knock([(b"authorization", b"Bearer sesame")], {}) == [{"type": "opened"}]


def test_a_key_is_compared_with_all_of_them_whichever_fits(monkeypatch: pytest.MonkeyPatch):
    import hmac

    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or real(a, b))
    assert [KEYS.accepts(key) for key in (b"sesame", b"sk-second", b"sesam", b"")] == [
        True,
        True,
        False,
        False,
    ]
    assert len(compared) == 8


def test_keys_are_one_a_line_with_comments(tmp_path: Path):
    (tmp_path / "keys").write_text("# of us\n\n  sesame   # Ali Baba\nsk-second\r\n")
    assert read_keys(tmp_path / "keys") == KEYS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no API key"),
        ("# sesame\n", "holds no API key"),
        ("good\nopen sesame\n", "line 2: a key has no spaces"),
        ("öffne\n", "line 1: a key has only letters, digits and signs of ASCII"),
    ],
)
def test_what_cannot_be_a_key_is_told_with_its_line_and_without_the_key(tmp_path: Path, text, message):
    (tmp_path / "keys").write_text(text)
    with pytest.raises(SettingError) as error:
        read_keys(tmp_path / "keys")
    assert message in str(error.value)
    assert "sesame" not in str(error.value)


def test_settings_with_keys_do_not_print_them():
    settings = HttpSettings(keys=KEYS)
    assert "sesame" not in repr(settings)
    assert b"sesame" not in msgspec.json.encode(settings)


def test_a_file_that_everybody_reads_is_noticed(tmp_path: Path):
    (tmp_path / "keys").write_text("sesame\n")
    (tmp_path / "keys").chmod(0o600)
    assert not is_read_by_all(tmp_path / "keys")
    (tmp_path / "keys").chmod(0o644)
    assert is_read_by_all(tmp_path / "keys")
