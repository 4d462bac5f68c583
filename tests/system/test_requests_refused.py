"""What the real server refuses, and in which words: always OpenAI's envelope, always before any compute."""

from __future__ import annotations

import httpx
import pytest

GOOD = {"model": "orpheus", "input": "7", "voice": "tara", "temperature": 0}


def _error(answer: httpx.Response) -> dict:
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.text and "/src/" not in answer.text
    return body["error"]


REFUSED = [
    ({"input": ""}, 400, "input", "nothing to say"),
    ({"input": "   "}, 400, "input", "nothing to say"),
    ({"input": 5}, 400, "input", "expected"),
    ({"voice": "nobody"}, 400, "voice", "tara, leo"),
    ({"voice": ""}, 400, "voice", "tara, leo"),
    ({"max_tokens": 0}, 400, "max_tokens", ">= 1"),
    ({"max_tokens": -1}, 400, "max_tokens", ">= 1"),
    ({"max_tokens": "two"}, 400, "max_tokens", "expected"),
    ({"seed": -1}, 400, "seed", ">= 0"),
    ({"seed": 2**63}, 400, "seed", ""),
    ({"temperature": -0.1}, 400, "temperature", ">= 0"),
    ({"top_p": 0}, 400, "top_p", "> 0"),
    ({"speed": 1.5}, 400, "speed", "speed"),
    ({"instructions": "whisper"}, 400, "instructions", "no instructions"),
    ({"response_format": "aac"}, 400, "response_format", "there is wav, pcm, flac, mp3, opus"),
    ({"stream_format": "chunks"}, 400, "stream_format", "there is audio, sse"),
    ({"stream_format": "sse", "stream": False}, 400, "stream", "one of them"),
    ({"split": "paragraph"}, 400, "split", "there is sentence"),
    ({"n": 3}, 400, "n", "unknown field 'n'"),
    ({"logprobs": True}, 400, "logprobs", "unknown field 'logprobs'"),
    ({"temprature": 1}, 400, "temprature", "temperature"),
    ({"model": "nothing"}, 404, "model", "nothing"),
    ({"input": "9 " * 600, "max_tokens": 10}, 400, "input", "1024"),
    ({"input": "9 " * 600}, 400, "input", "1024"),
    ({"max_tokens": 2000}, 400, "max_tokens", "1024"),
]


@pytest.mark.parametrize(("fields", "status", "param", "said"), REFUSED, ids=lambda value: str(value)[:30])
def test_a_bad_request_names_the_field_and_the_cure(toy_server, fields, status, param, said):
    answer = httpx.post(f"{toy_server.url}/v1/audio/speech", json=GOOD | fields, timeout=30)
    assert answer.status_code == status
    error = _error(answer)
    assert error["param"] == param
    assert said in error["message"]
    assert error["type"] == "invalid_request_error"


def test_too_long_is_told_with_both_numbers_and_its_code(toy_server):
    answer = httpx.post(f"{toy_server.url}/v1/audio/speech", json=GOOD | {"max_tokens": 2000}, timeout=30)
    error = _error(answer)
    assert error["code"] == "context_length_exceeded"
    assert "2012" in error["message"] and "1024" in error["message"]


def test_a_default_length_is_cut_to_what_fits(toy_server):
    """The toy's context is 1,024 tokens, the family's default of max_tokens 1,200."""
    assert httpx.post(f"{toy_server.url}/v1/audio/speech", json=GOOD, timeout=30).status_code == 200


def test_a_voice_is_known_by_its_name_in_any_case(toy_server):
    lower, upper = (
        httpx.post(f"{toy_server.url}/v1/audio/speech", json=GOOD | {"voice": voice, "seed": 1}, timeout=30)
        for voice in ("leo", "LEO")
    )
    assert lower.status_code == upper.status_code == 200
    assert lower.content == upper.content


@pytest.mark.parametrize("missing", ["model", "input"])
def test_a_missing_field_is_named(toy_server, missing):
    body = {name: value for name, value in GOOD.items() if name != missing}
    answer = httpx.post(f"{toy_server.url}/v1/audio/speech", json=body, timeout=30)
    assert answer.status_code == 400
    assert _error(answer)["param"] == missing


def test_invalid_json_is_a_400(toy_server):
    answer = httpx.post(
        f"{toy_server.url}/v1/audio/speech", content=b"{bad", headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert _error(answer)["type"] == "invalid_request_error"


def test_another_content_type_is_a_415(toy_server):
    answer = httpx.post(
        f"{toy_server.url}/v1/audio/speech", content=b"a=1", headers={"content-type": "text/plain"}
    )
    assert answer.status_code == 415
    _error(answer)


def test_a_body_that_is_too_large_is_a_413(toy_server):
    answer = httpx.post(
        f"{toy_server.url}/v1/audio/speech", json=GOOD | {"input": "x" * 2_000_000}, timeout=30
    )
    assert answer.status_code == 413
    _error(answer)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v1/nothing", 404), ("GET", "/v1/audio/speech", 405)]
)
def test_unknown_routes_and_methods_are_told_in_the_same_envelope(toy_server, method, path, status):
    answer = httpx.request(method, toy_server.url + path)
    assert answer.status_code == status
    _error(answer)
