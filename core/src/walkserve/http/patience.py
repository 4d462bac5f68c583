"""How long a client may take to send its body: one that trickles is told so, and holds nothing any more."""

from __future__ import annotations

import asyncio

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, ReceiveMessage, Scope, Send

from walkserve.http.problems import ReceiveTimeout

PER_BYTES = 1024 * 1024
"""The time allowed is for each of these, so that large bodies may take longer."""


def patient(app: ASGIApp, timeout_s: float) -> ASGIApp:
    """Let ``receive`` raise ReceiveTimeout when the body does not come in time."""

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, _Body(receive, timeout_s) if scope["type"] == ScopeType.HTTP else receive, send)

    return wait


class _Body:
    """A request's ``receive``; the time runs from when it is first asked for the body."""

    def __init__(self, receive: Receive, timeout_s: float) -> None:
        self._receive = receive
        self._timeout_s = timeout_s
        self._began: float | None = None
        self._size = 0
        self._is_over = False

    async def __call__(self) -> ReceiveMessage:
        if self._is_over:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        began = self._began = now if self._began is None else self._began
        try:
            async with asyncio.timeout_at(began + self._timeout_s * (1 + self._size // PER_BYTES)):
                message = await self._receive()
        except TimeoutError:
            raise ReceiveTimeout(f"the body did not come within {self._timeout_s:g} s per MiB") from None
        if message["type"] == "http.request":
            self._size += len(message["body"])
        self._is_over = message["type"] != "http.request" or not message["more_body"]
        return message
