"""Whose web pages may call this server: what browsers ask before they let a page, and what they are told.

Litestar's own answers a refused preflight in plain text, and does not look at WebSockets, which browsers
open for any page.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from litestar.datastructures import Headers, MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from walkserve.errors import SettingError
from walkserve.http.problems import Problem, send_problem

ANY = "*"
EXPOSED = (
    "retry-after",
    "x-audio-content-type",
    "x-audio-s",
    "x-client-request-id",
    "x-dtype",
    "x-finish-reason",
    "x-request-id",
    "x-seed",
    "x-shape",
    "x-usage-input-tokens",
    "x-usage-output-tokens",
)
"""Headers of ours that a page may read; browsers hide what is not named."""
PREFLIGHT_S = 600
"""How long a browser may remember what it was told."""

_METHODS = "GET, POST, DELETE, OPTIONS"
_VARY = {"vary": "origin"}
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*?#@]+", re.I)


def check_origin(origin: str) -> None:
    """Raises SettingError for what no browser says: an origin is ``scheme://host[:port]``, or ``*``."""
    if origin != ANY and not _ORIGIN.fullmatch(origin):
        raise SettingError(
            f"{origin!r} is no origin; write scheme://host or scheme://host:port without a path, or * for all"
        )


def shared(app: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """Tell browsers that pages of these origins may call ``app``; sockets of others are refused here."""
    allowed = {origin.lower() for origin in origins}

    async def share(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers.from_scope(scope)
        origin = headers.get("origin")
        if origin is None:
            await app(scope, receive, send)
            return
        grant = _grant(origin, allowed)
        if scope["type"] == ScopeType.WEBSOCKET:
            if grant or urlsplit(origin).netloc == headers.get("host"):
                await app(scope, receive, send)
            else:
                await send_problem(scope, receive, send, 403, _refused(origin))
        elif not allowed:
            await app(scope, receive, send)
        elif not (scope["method"] == "OPTIONS" and "access-control-request-method" in headers):
            await app(scope, receive, _granting(send, grant))
        elif grant:
            await _answer_preflight(send, grant, headers.get("access-control-request-headers", ""))
        else:
            await send_problem(scope, receive, send, 403, _refused(origin), _VARY)

    return share


def _grant(origin: str, allowed: Collection[str]) -> dict[str, str]:
    """The headers by which a page of this origin may read an answer; none if it may not."""
    if ANY in allowed:
        return {"access-control-allow-origin": ANY}
    return {"access-control-allow-origin": origin} | _VARY if origin.lower() in allowed else {}


def _granting(send: Send, grant: dict[str, str]) -> Send:
    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableScopeHeaders(message)
            for name, value in (grant or _VARY).items():
                headers.add(name, value)
            headers["access-control-expose-headers"] = ", ".join(EXPOSED)
        await send(message)

    return send_on


async def _answer_preflight(send: Send, grant: dict[str, str], asked: str) -> None:
    """Whatever headers a page wants to send are allowed: what they do is up to the routes."""
    headers = grant | {"access-control-allow-methods": _METHODS, "access-control-max-age": str(PREFLIGHT_S)}
    if asked:
        headers["access-control-allow-headers"] = asked
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 204, "headers": encoded})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _refused(origin: str) -> Problem:
    message = f"pages of {origin[:200]} may not call this server; --cors-origin lets them"
    return Problem(message, "invalid_request_error", None, "origin_not_allowed")
