"""The web server around the application, in this process's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus

import uvicorn
from litestar import Litestar
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from walkserve.http.answers import ABORT
from walkserve.http.problems import problem_body
from walkserve.http.settings import HttpSettings
from walkserve.http.stream_protocol import StreamProtocol

BACKLOG = 2048
HEAD_BYTES = 64 * 1024
RECEIVE_TIMEOUT_S = 30.0
_CUT = "ASGI callable returned without completing response"
logging.getLogger("uvicorn.error").addFilter(lambda record: not record.getMessage().startswith(_CUT))
"""A stream that is cut is cut on purpose, and ``speech`` has said why."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. First thing of all: nothing has been started yet.

    Raises:
        OSError: The port is taken, or the host is not this machine's.
    """
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past connections in TIME_WAIT
        bound.bind(address)
        bound.listen(BACKLOG)  # at once: until somebody listens, others may bind the same address
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


class Server:
    """Serves an application on a socket that is bound already, and closes it.

    It takes no signals: whoever runs it says when to ``drain`` and when to ``stop``.

    Args:
        frame_bytes: The largest frame of a WebSocket; a larger one closes it, with the code 1009.
        receive_timeout_s: How long a client may take to send its headers.
    """

    def __init__(
        self,
        app: Litestar,
        bound: socket.socket,
        *,
        frame_bytes: int = HttpSettings().media_bytes,
        receive_timeout_s: float = RECEIVE_TIMEOUT_S,
    ) -> None:
        self.host, self.port = bound.getsockname()[:2]
        self._bound = bound
        config = _Config(
            app,
            http=_Protocol,
            ws=StreamProtocol,
            ws_max_size=frame_bytes,
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
        )
        config.receive_timeout_s = receive_timeout_s
        self._server = _Uvicorn(config)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until drained or stopped; ``on_ready`` is called when connections are taken."""
        self._server.on_started = on_ready
        try:
            await self._server.serve(sockets=[self._bound])
        finally:
            self._bound.close()
            await self._server.leave()

    def drain(self) -> None:
        """Take no new connections; ``run`` returns when the responses and requests under way have ended."""
        self._server.should_exit = True

    def stop(self) -> None:
        """End every connection now; WebSockets are told."""
        self._server.should_exit = self._server.force_exit = True
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, StreamProtocol):
                connection.end()
            elif connection.transport is not None:
                connection.transport.abort()


class _Config(uvicorn.Config):
    receive_timeout_s: float


class _Uvicorn(uvicorn.Server):
    on_started: Callable[[], None] = staticmethod(lambda: None)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self.on_started()

    async def leave(self) -> None:
        """What uvicorn leaves behind when it is told not to wait."""
        if self.force_exit and self.started:
            await self.lifespan.shutdown()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Protocol(HttpToolsProtocol):
    """Lets an application end its connection, bounds what comes before it is asked, and answers what is no
    HTTP in the same words as the rest."""

    config: _Config
    _deadline: asyncio.TimerHandle | None = None
    """When a client must have sent its headers, or the rest of a body that nobody waits for."""
    _head_bytes = 0
    _is_in_head = False
    _is_in_body = False

    # --- what a client sends --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                problem = f"the headers are larger than {HEAD_BYTES:,} bytes, which is the most that is read"
                self._refuse(431, problem, "headers_too_large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]
        self._is_in_head, self._head_bytes = True, 0
        self._wait()

    def on_headers_complete(self) -> None:
        self._is_in_head, self._is_in_body = False, True
        self._wait_no_more()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._wait_no_more()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body:  # the answer did not need it, and what follows can only be read after it
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is no valid HTTP request", "invalid_http")

    # --- how long, and what then ------------------------------------------------------------------------

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.config.receive_timeout_s, self._give_up)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self._is_in_head:
            problem = f"the headers did not come within {self.config.receive_timeout_s:g} s"
            self._refuse(408, problem, "request_timeout")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str, code: str) -> None:
        self._is_in_head = False
        if self.transport.is_closing():
            return
        body = problem_body(message, "invalid_request_error", code=code)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
