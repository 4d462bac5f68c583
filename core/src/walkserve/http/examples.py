"""What OpenAPI shows as answers of the routes that only tell; a test holds each to its schema."""

from __future__ import annotations

from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example


class Shown(Example):
    """An example that is shown as it is. Litestar leaves out what is null, which a schema may require."""

    def to_schema(self) -> dict[str, Any]:
        return {"summary": self.summary, "value": self.value}


def answered(kind: type, summary: str, example: Any, status: int = 200) -> dict[int, ResponseSpec]:
    """The good response of a route with an example, for its OpenAPI description."""
    shown: Example = Shown(summary=summary, value=example)
    spec = ResponseSpec(kind, description=summary, generate_examples=False, examples=[shown])
    return {status: spec}


MODEL: dict[str, Any] = {
    "id": "a-model:small",
    "object": "model",
    "created": 1764460800,
    "owned_by": "walkserve",
    "family": "a-model",
    "summary": "Text in, speech out",
    "checkpoint": "owner/a-model@main",
    "variants": ["small"],
    "inputs": ["text"],
    "outputs": {"speech": {"kind": "audio", "rate": 24000, "channels": 1}},
    "surfaces": {"audio.speech": ["POST /v1/audio/speech", "GET /v1/audio/voices"]},
    "voices": ["ann", "bob"],
    "options": {
        "voice": {"description": "Who speaks.", "type": "string", "default": "ann"},
        "temperature": {
            "description": "How freely a token is drawn; 0 takes the most likely one.",
            "type": "number",
            "default": 0.6,
            "minimum": 0,
            "maximum": 100,
            "also": "sampling.temperature",
        },
    },
    "limits": {"body_bytes": 1048576, "tokens": {"language": {"request": 8192, "pool": 32768}}},
}
VOICES: dict[str, Any] = {
    "object": "list",
    "data": [
        {"id": "ann", "model": "a-model:small", "is_default": True, "object": "voice"},
        {"id": "bob", "model": "a-model:small", "is_default": False, "object": "voice"},
    ],
}
MODELS: dict[str, Any] = {"object": "list", "data": [MODEL]}

HEALTH: dict[str, Any] = {"status": "alive"}
READY: dict[str, Any] = {"ready": True, "phase": "ready", "waiting_for": None, "loading": []}
NOT_READY: dict[str, Any] = {
    "ready": False,
    "phase": "starting",
    "waiting_for": "waiting for a-model:small",
    "loading": ["language in a-model-small.rank0"],
}
SERVER: dict[str, Any] = {
    "phase": "ready",
    "detail": "",
    "http_pid": 4101,
    "conductor_pid": 4102,
    "families": ["a-model"],
    "open_requests": 1,
    "models": [
        {
            "id": "a-model:small",
            "family": "a-model",
            "checkpoint": "owner/a-model@main",
            "running": 1,
            "waiting": 0,
            "workers": [
                {
                    "name": "a-model-small.rank0",
                    "state": "ready",
                    "pid": 4103,
                    "components": {"language": "cpu, float32, torch"},
                    "pools": {"language": {"pages": 2048, "reserved": 76}},
                    "token_budgets": [
                        {
                            "component": "language",
                            "method": "next",
                            "tokens": 512,
                            "beside": [{"context": 512, "tokens": 96}, {"context": 8096, "tokens": 24}],
                        }
                    ],
                }
            ],
        }
    ],
    "versions": {"python": "3.11.7", "walkserve": "0.1.0", "torch": None},
}
REQUEST: dict[str, Any] = {
    "id": "5b0f1f6ae6c94f3b8d0e5a5a4c3f2b1a",
    "object": "request",
    "client_request_id": "order-17",
    "model": "a-model:small",
    "created": 1764460801.5,
    "state": "done",
    "seed": 7,
    "finish_reason": "stop",
    "usage": {"input_tokens": 21, "output_tokens": 70},
    "counts": {"speech": 10},
    "first_output_s": 0.11,
    "took_s": 0.42,
    "audio_s": {"speech": 0.85},
    "underruns": 0,
    "error": None,
}
METRICS = """\
# HELP walkserve_ready Whether requests are served.
# TYPE walkserve_ready gauge
walkserve_ready 1.0
"""
