"""WebSocket connections under the web server: how one is refused, lets its requests end, and is ended."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from litestar.enums import ScopeType
from litestar.types import Scope
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import StatusLike

from walkserve.http.ids import request_id
from walkserve.http.problems import problem_body, refusal

DRAIN = "walkserve.drain"
"""The ASGI extension that is set when the server stops: an ``asyncio.Event``."""
SERVICE_RESTART = 1012
"""The code of a close that says: the server stops, come again."""
CLOSE_S = 1.0
"""How long a client has to answer the end of its socket."""
_REFUSED = "walkserve.refused"


async def keep_refusal(error: Exception, scope: Scope) -> None:
    """Remember why a socket is refused: Litestar goes on to close it, which has no room for a reason."""
    if scope["type"] == ScopeType.WEBSOCKET:
        cast(dict[str, Any], scope)[_REFUSED] = error


class StreamProtocol(WebSocketsSansIOProtocol):
    """What differs from uvicorn's own: errors of the handshake are the envelope, with the status they have
    elsewhere; and a server that stops tells the application, which closes the socket when it can.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.draining = asyncio.Event()
        self.close_timeout = CLOSE_S
        # no compression: media hardly shrink, and it takes a while
        self.conn = _Handshake(max_size=self.config.ws_max_size, logger=logging.getLogger("uvicorn.error"))

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast(dict[str, Any], self.scope["extensions"])[DRAIN] = self.draining

    async def send(self, message: ASGISendEvent) -> None:
        error: Exception | None = cast(dict[str, Any], self.scope).get(_REFUSED)
        if error is None or self.handshake_complete or message["type"] != "websocket.close":
            await super().send(message)
            return
        status, problem, headers = refusal(error, "WebSocket", self.scope["path"])
        headers |= {"content-type": "application/json", "x-request-id": request_id(cast(Scope, self.scope))}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await super().send({"type": "websocket.http.response.start", "status": status, "headers": encoded})
        body = problem_body(problem.message, problem.type, param=problem.param, code=problem.code)
        await super().send({"type": "websocket.http.response.body", "body": body, "more_body": False})

    def shutdown(self) -> None:
        """Said when the server takes no new connections."""
        if self.handshake_complete and not self.close_sent:
            self.draining.set()
        else:
            super().shutdown()

    def end(self) -> None:
        """Close it now, as well as can be: what waits to be sent is lost."""
        super().shutdown()
        self.loop.call_later(CLOSE_S / 10, self.transport.abort)


class _Handshake(ServerProtocol):
    """Refuses what is no handshake in the same words as the rest of the server."""

    def reject(self, status: StatusLike, text: str) -> Response:
        body = problem_body(
            text.strip() or "this is refused", "invalid_request_error", code="invalid_handshake"
        )
        response = super().reject(status, "")
        response.body = body
        del response.headers["Content-Type"], response.headers["Content-Length"]
        response.headers["Content-Type"] = "application/json"
        response.headers["Content-Length"] = str(len(body))
        return response
