"""A client's own id for what it asks, ``x-client-request-id``: logged, told and sent back, never looked up.

Two requests may have the same one: nothing here or further on finds anything by it.
"""

from __future__ import annotations

from typing import Any, cast

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from walkserve.http.problems import Problem, send_problem

HEADER = "x-client-request-id"
MOST_CHARS = 512

_KEY = "walkserve.client_request_id"
_NAME = HEADER.encode("ascii")


def client_request_id(scope: Scope) -> str | None:
    """What the client calls the request with this scope, if it has said so."""
    return cast(dict[str, Any], scope).get(_KEY)


def labelled(app: ASGIApp) -> ASGIApp:
    """Read the id before anything else is done, and send it back with whatever is answered."""

    async def label(scope: Scope, receive: Receive, send: Send) -> None:
        given = (
            [value for name, value in scope["headers"] if name.lower() == _NAME]
            if scope["type"] in (ScopeType.HTTP, ScopeType.WEBSOCKET)
            else []
        )
        if not given:
            await app(scope, receive, send)
        elif len(given) == 1 and _is_fit(given[0]):
            cast(dict[str, Any], scope)[_KEY] = given[0].decode("ascii")
            await app(scope, receive, _sending_back(send, given[0]))
        else:
            await send_problem(scope, receive, send, 400, _REFUSED)

    return label


def _is_fit(value: bytes) -> bool:
    return 0 < len(value) <= MOST_CHARS and all(32 <= byte < 127 for byte in value)


_REFUSED = Problem(
    f"{HEADER}: it is one header of 1 to {MOST_CHARS} printable ASCII characters; anything else has no place"
    " in a log",
    "invalid_request_error",
    HEADER,
    None,
)


def _sending_back(send: Send, value: bytes) -> Send:
    async def send_on(message: Message) -> None:
        said = cast(dict[str, Any], message)
        if said["type"] in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
            said["headers"] = [*said.get("headers", ()), (_NAME, value)]
        await send(message)

    return send_on
