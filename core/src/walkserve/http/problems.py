"""Errors as clients see them: always OpenAI's envelope, never a traceback or a path."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

import msgspec
from litestar import Request, Response
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.types import ExceptionHandlersMap, Message, Receive, Scope, Send
from msgspec import Struct

from walkserve.messages import Fault
from walkserve_sdk.errors import BadRequest, DeadlineExceeded, Unavailable, WalkserveError
from walkserve_sdk.events import Problem as Problem

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1
CODES = {
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
    429: "rate_limit_exceeded",
    500: "internal_error",
    503: "unavailable",
    504: "deadline_exceeded",
}


class ProblemBody(Struct, frozen=True):
    """The body of every response whose status is 400 or more."""

    error: Problem


class Faulted(WalkserveError):
    """A request that the runtime answered with a fault; its text is meant for the client."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.status, self.type, self.code, self.param = fault.status, fault.type, fault.code, fault.param


class UnsupportedMediaType(BadRequest):
    """The body is of a kind that this route does not read."""

    status = 415
    code = CODES[415]


class NotAcceptable(BadRequest):
    """The answer cannot have any of the forms its client accepts."""

    status = 406
    code = CODES[406]


class BodyTooLarge(BadRequest):
    """The body is larger than this route reads."""

    status = 413
    code = CODES[413]


class ReceiveTimeout(BadRequest):
    """The client was too slow in sending its request."""

    status = 408
    code = CODES[408]


class TooManyRequests(WalkserveError):
    """As many requests are open as this server takes; one may be taken when another has ended."""

    status = 429
    type = "rate_limit_error"
    code = CODES[429]


def problem_body(message: str, type: str, *, param: str | None = None, code: str | None = None) -> bytes:
    """The envelope in JSON, for where there is no Litestar to write it."""
    return msgspec.json.encode(ProblemBody(Problem(message, type, param, code)))


async def send_problem(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    problem: Problem,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer with the envelope from outside of all routes, also to who would open a WebSocket."""
    body = msgspec.json.encode(ProblemBody(problem))
    said = {"content-type": "application/json", "content-length": str(len(body))} | dict(headers or {})
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said.items()]
    kind = "http.response"
    if scope["type"] == ScopeType.WEBSOCKET:
        await receive()  # it asks to connect
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": 1008, "reason": problem.message[:120]})
            return
        kind = "websocket.http.response"
    start: dict[str, Any] = {"type": f"{kind}.start", "status": status, "headers": encoded}
    rest: dict[str, Any] = {"type": f"{kind}.body", "body": body, "more_body": False}
    await send(cast(Message, start))
    await send(cast(Message, rest))


def _response(status: int, problem: Problem, headers: dict[str, str] | None = None) -> Response[Any]:
    headers = dict(headers or {})
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        headers.setdefault("retry-after", str(RETRY_AFTER_S))
    if status == HTTPStatus.REQUEST_TIMEOUT:
        headers.setdefault("connection", "close")  # what still trickles in is not read
    return Response(ProblemBody(problem), status_code=status, headers=headers, media_type="application/json")


def told(error: Exception, where: str) -> tuple[int, Problem]:
    """The status of an error, and what a client is told of it; the log is told what it is not.

    A mistake of ours or of a plugin's is for the operator: its text may hold paths.
    """
    if isinstance(error, WalkserveError) and (
        error.status < 500 or isinstance(error, Faulted | Unavailable | DeadlineExceeded)
    ):
        if error.status >= 500:
            log.warning("%s failed with %d: %s", where, error.status, error)
        return error.status, Problem(str(error), error.type, error.param, error.code)
    log.error("%s raised", where, exc_info=error)
    return 500, Problem("an internal error; the server's log has it", "server_error", None, CODES[500])


def refusal(error: Exception, method: str, path: str) -> tuple[int, Problem, dict[str, str]]:
    """An error as the status, body and headers of a response."""
    if isinstance(error, HTTPException) and error.status_code < 500:
        return error.status_code, _of_litestar(error, method, path[:200]), dict(error.headers or {})
    status, problem = told(error, f"{method} {path}")
    return status, problem, {}


def _of_litestar(error: HTTPException, method: str, path: str) -> Problem:
    """Its own: routes that are not there, methods, parameters."""
    message, param = error.detail, None
    match error.status_code:
        case 404:
            message = f"there is no {method} {path} here"
        case 405:
            allow = (error.headers or {}).get("allow", "")
            allowed = ", ".join(method for method in allow.split(", ") if method != "OPTIONS")
            message = f"{path} takes {allowed}, not {method}"
        case 413:
            message = "the body is too large"
        case 400 if isinstance(error.extra, list) and error.extra and isinstance(error.extra[0], dict):
            param = error.extra[0].get("key")
            message = f"{param}: {error.extra[0].get('message')}"
    return Problem(message, "invalid_request_error", param, CODES.get(error.status_code))


def _any_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    return _response(*refusal(error, request.method, request.url.path))


EXCEPTION_HANDLERS: ExceptionHandlersMap = {
    HTTPException: _any_error,
    Exception: _any_error,
}


def documented(*statuses: int) -> dict[int, ResponseSpec]:
    """The error responses of a route, for its OpenAPI description; a server with keys wants one on each."""
    return {status: _spec(status) for status in sorted({401, *statuses})}


def _spec(status: int) -> ResponseSpec:
    message, kind, param, code = _EXAMPLES[status]
    value = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return ResponseSpec(
        ProblemBody,
        description=HTTPStatus(status).phrase,
        generate_examples=False,
        examples=[Example(summary=HTTPStatus(status).phrase, value=value)],
    )


_EXAMPLES: dict[int, tuple[str, str, str | None, str | None]] = {
    400: ("'input' is missing", "invalid_request_error", "input", "missing_required_parameter"),
    401: ("this server does not know that API key", "invalid_request_error", None, CODES[401]),
    404: ("there is no model 'tiny' here", "invalid_request_error", "model", "model_not_found"),
    406: ("accept: text/html is not offered", "invalid_request_error", "accept", CODES[406]),
    408: ("the body did not come within 30 s per MiB", "invalid_request_error", None, CODES[408]),
    413: ("the body is larger than 1,048,576 bytes", "invalid_request_error", None, CODES[413]),
    415: ("send application/json", "invalid_request_error", None, CODES[415]),
    429: ("512 requests are open, which is the most", "rate_limit_error", None, CODES[429]),
    500: ("an internal error; the server's log has it", "server_error", None, CODES[500]),
    503: ("the model is not ready: loading", "unavailable", None, CODES[503]),
    504: ("the request did not end within 30 s", "timeout", None, CODES[504]),
}
