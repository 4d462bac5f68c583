"""Responses that are written while their call runs, by whoever stops when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from litestar import Request, Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

ABORT = "walkserve.abort"
"""The ASGI extension that ends a connection at once, whatever is still to be sent on it."""


class Client:
    """The receiving end of one response."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send

    async def start(self, status: int, headers: dict[str, str]) -> None:
        """Send the status; errors from here on cannot have one of their own."""
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def send(self, body: bytes, *, more: bool) -> None:
        """Send a piece; returns when the connection can take the next."""
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def abort(self) -> None:
        """End the connection now, also while a write waits for it."""
        extensions: dict[str, Any] = self._scope.get("extensions") or {}
        abort: Callable[[], None] = extensions.get(ABORT, lambda: None)
        abort()


Write = Callable[[Client], Awaitable[None]]


class Answer(Response[bytes]):
    """A response that ``write`` writes.

    ``write`` is cancelled when the client leaves; Litestar would let a plain handler go on. What it
    raises before it has started the response becomes an ordinary error response. When it returns
    before the last piece, the server closes the connection, so that what came is not taken for all.
    """

    def __init__(self, write: Write) -> None:
        super().__init__(b"")
        self._write = write

    def to_asgi_response(self, app: Any, request: Request[Any, Any, Any], **options: Any) -> ASGIResponse:
        return _Written(self._write)


class _Written(ASGIResponse):
    __slots__ = ("_write",)

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.ensure_future(self._write(Client(scope, send)))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_written = writing.done()
            for task in (writing, leaving):
                task.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)
        if is_written:
            writing.result()  # raises what it raised


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
