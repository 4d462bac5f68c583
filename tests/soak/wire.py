"""A client of the soak's own: HTTP and WebSocket in plain sight, with every way to leave."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import h11
from websockets.asyncio.client import ClientConnection, connect

Leaving = Literal["close", "reset", "cancel"]
"""An ordinary end of the connection, one without a word, and a frame on a WebSocket that says so."""
SMALL_BUFFER = 4096
PATIENCE_S = 120.0
"""No answer of this soak takes as long; a request without an end is found by it."""


class NoEnd(AssertionError):
    """A request has had no end within the patience of its client."""


@dataclass
class Answer:
    """What came of one HTTP request.

    Args:
        status: 0 while nothing has come.
        is_complete: Whether the end of the body was said; a body that is cut is not.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    is_complete: bool = False


class Connection:
    """One HTTP connection, for one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self.answer = Answer()

    async def send(self, path: str, fields: dict[str, Any], *, accept: str = "", upto: float = 1.0) -> None:
        """Send a request, or only so much of its body."""
        body = json.dumps(fields).encode()
        headers = [
            ("host", self._host),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            *([("accept", accept)] if accept else []),
        ]
        said = self._http.send(h11.Request(method="POST", target=path, headers=headers))
        self._writer.write(said or b"")
        some = body[: int(len(body) * upto)]
        if some:
            self._writer.write(self._http.send(h11.Data(data=some)) or b"")
        if upto == 1.0:
            self._http.send(h11.EndOfMessage())
        await self._writer.drain()

    async def read(self, *, least: int | None = None, slowly_s: float = 0.0) -> bool:
        """Read up to the end of the answer, or until its body has so many bytes; whether there is more."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:  # it ended in the middle
                return False
            if event is h11.NEED_DATA:
                if slowly_s:
                    await asyncio.sleep(slowly_s)
                if self._http.trailing_data[1]:
                    return False
                self._http.receive_data(await self._receive())
            elif isinstance(event, h11.Response):
                self.answer.status = event.status_code
                self.answer.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                self.answer.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self.answer.is_complete = True
                return False
            elif isinstance(event, h11.ConnectionClosed):
                return False
            if least is not None and self.answer.status and len(self.answer.body) >= least:
                return True

    async def _receive(self) -> bytes:
        try:
            return await self._reader.read(65536)
        except ConnectionResetError:
            return b""

    def leave(self, how: Leaving) -> None:
        """End the connection."""
        if how == "reset":
            raw = self._writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        else:
            self._writer.close()


@asynccontextmanager
async def connection(url: str, *, is_slow: bool = False) -> AsyncIterator[Connection]:
    """A connection; one of a slow reader takes in as little as can be on its own."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    raw = socket.socket()
    try:
        raw.setblocking(False)
        if is_slow:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        await asyncio.get_running_loop().sock_connect(raw, (parts.hostname, parts.port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=SMALL_BUFFER if is_slow else 1 << 16)
    except BaseException:
        raw.close()
        raise
    try:
        yield Connection(reader, writer, parts.netloc)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def websocket(url: str, *, is_slow: bool = False) -> AsyncIterator[ClientConnection]:
    """A WebSocket to ``/v1/stream``."""
    settings: dict[str, Any] = {"max_size": None, "compression": None, "ping_interval": None}
    if is_slow:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        parts = urlsplit(url)
        raw.connect((parts.hostname, parts.port))
        raw.setblocking(False)
        settings |= {"sock": raw, "max_queue": 1}
    async with connect(f"ws{url.removeprefix('http')}/v1/stream", close_timeout=1, **settings) as opened:
        yield opened


def drop(opened: ClientConnection) -> None:
    """End a WebSocket's connection without a word."""
    raw = opened.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    opened.transport.abort()
