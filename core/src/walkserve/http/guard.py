"""Whoever has no API key is answered nothing but ``/health``, on HTTP and on WebSockets."""

from __future__ import annotations

from litestar.types import ASGIApp, Receive, Scope, Send

from walkserve.http.keys import ApiKeys
from walkserve.http.problems import CODES, Problem, send_problem

OPEN = "/health"
"""It says that the process lives and nothing else, so that whatever watches the process needs no key."""

_CHALLENGE = {"www-authenticate": "Bearer"}


def guarded(app: ASGIApp, keys: ApiKeys | None) -> ASGIApp:
    """Let nobody in without a key: to no route, to none that is not there, to no socket before it opens."""
    if keys is None:
        return app

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        wrong = "" if scope["path"] == OPEN else _what_is_wrong(scope, keys)
        if wrong:
            problem = Problem(wrong, "invalid_request_error", None, CODES[401])
            await send_problem(scope, receive, send, 401, problem, _CHALLENGE)
        else:
            await app(scope, receive, send)

    return guard


def _what_is_wrong(scope: Scope, keys: ApiKeys) -> str:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    scheme, _, key = given[0].partition(b" ") if given else (b"", b"", b"")
    if scheme.lower() != b"bearer" or not key.strip():
        return "this server wants an API key: send the header 'Authorization: Bearer KEY'"
    return "" if keys.accepts(key.strip()) else "this server does not know that API key"
