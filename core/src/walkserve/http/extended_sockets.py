"""WebSockets that plugins add: frames are read for them, errors told, and what runs ends with the socket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from litestar import WebSocket
from litestar import websocket as websocket_route
from litestar.handlers import BaseRouteHandler
from msgspec import Struct

from walkserve.http.callers import Caller
from walkserve.http.media_checks import by_name, check_media
from walkserve.http.models import find_model, require_surface
from walkserve.http.problems import BodyTooLarge, told
from walkserve.http.running import Running, written
from walkserve.http.settings import HttpSettings
from walkserve.http.stream_frames import read_tagged, refuse_unknown
from walkserve.http.stream_protocol import DRAIN, SERVICE_RESTART
from walkserve.http.terms import Terms, shortest
from walkserve.timeouts import check_timeout
from walkserve_sdk import Model, Part, Request, Stream
from walkserve_sdk.errors import BadRequest, WalkserveError
from walkserve_sdk.events import Failed
from walkserve_sdk.serving import SocketRoute

NORMAL = 1000
POLICY_VIOLATION = 1008
"""The code of a close that is the client's fault."""
INTERNAL_ERROR = 1011
MOST_FRAMES = 64
"""How many frames may wait for the handler before no further one is read."""

Frame = str | bytes


def extended_socket(
    route: SocketRoute, caller: Caller, models: Mapping[str, Model], settings: HttpSettings
) -> BaseRouteHandler:
    """The route."""

    @websocket_route(route.path)
    async def talk(socket: WebSocket[Any, Any, Any]) -> None:
        await socket.accept()
        await Socket(route, socket, caller, models, settings).serve()

    return talk


class Idle(BadRequest):
    """The client has said nothing for too long."""

    code = "idle_timeout"


class Socket:
    """As ``walkserve_sdk.serving.Socket`` has it; ``serve`` is for who has opened it."""

    def __init__(
        self,
        route: SocketRoute,
        socket: WebSocket[Any, Any, Any],
        caller: Caller,
        models: Mapping[str, Model],
        settings: HttpSettings,
    ) -> None:
        self._route = route
        self._frames = {str(each.__struct_config__.tag): each for each in route.frames}
        self._socket = socket
        self._caller = caller
        self._models = models
        self._settings = settings
        self._drain = _drain_of(socket)
        self._sending = asyncio.Lock()
        self._waiting: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._number = 0
        """Of the frame that the handler has last got."""
        self._running: list[Running] = []
        self._is_idle = asyncio.Event()
        """Set when the client has said nothing for too long."""

    # --- its life -------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Until the handler returns or the client leaves; whatever runs then is cancelled."""
        reading = asyncio.create_task(self._read())
        handling = asyncio.create_task(self._handle())
        idling = asyncio.create_task(self._is_idle.wait())
        draining = asyncio.create_task(self._wake_at_the_end())
        try:
            await asyncio.wait({reading, handling, idling}, return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                await self._socket.close(handling.result())
            elif idling.done():
                await self._tell(Idle(f"nothing has come for {self._route.idle_s:g} s"))
                await self._socket.close(POLICY_VIOLATION)
        finally:
            tasks = (reading, handling, idling, draining)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for running in self._running:
                running.cancel()

    async def _handle(self) -> int:
        """Run the handler; the code of the close."""
        try:
            await self._route.handle(self)
        except Exception as error:
            await self._tell(error)
            is_clients = isinstance(error, WalkserveError) and error.status < 500
            return POLICY_VIOLATION if is_clients else INTERNAL_ERROR
        return SERVICE_RESTART if self._drain.is_set() else NORMAL

    async def _read(self) -> None:
        """Take frames as they come, as many as may wait; return when the client has left."""
        while (event := await self._socket.receive())["type"] == "websocket.receive":
            text, data = event.get("text"), event.get("bytes")
            frame: Frame = text if text is not None else data or b""
            while self._waiting and not self._has_room(len(frame)):
                await self._change()
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)
            self._ring()

    def _has_room(self, size: int) -> bool:
        return len(self._waiting) < MOST_FRAMES and self._waiting_bytes + size <= self._settings.media_bytes

    async def _wake_at_the_end(self) -> None:
        await self._drain.wait()
        self._ring()

    def _ring(self) -> None:
        rung, self._changed = self._changed, asyncio.Event()
        rung.set()

    async def _change(self) -> None:
        await self._changed.wait()

    # --- for the handler ------------------------------------------------------------------------------

    async def receive(self) -> Struct | bytes | None:
        while (frame := await self._next()) is not None:
            if isinstance(frame, bytes):
                return frame
            try:
                return self._struct(frame)
            except BadRequest as error:
                await self._tell(error)
        return None

    async def __aiter__(self) -> AsyncIterator[Struct | bytes]:
        while (frame := await self.receive()) is not None:
            yield frame

    async def _next(self) -> Frame | None:
        while not self._waiting and not self._drain.is_set():
            try:
                async with asyncio.timeout(self._route.idle_s):
                    await self._change()
            except TimeoutError:
                if all(each.is_over for each in self._running):  # else it is the client that waits
                    self._is_idle.set()
        if self._drain.is_set():
            return None
        frame = self._waiting.popleft()
        self._waiting_bytes -= len(frame)
        self._number += 1
        self._ring()
        return frame

    def _struct(self, text: str) -> Struct:
        limit = self._settings.body_bytes
        if len(text) > limit or len(text.encode()) > limit:
            raise BodyTooLarge(f"the frame is larger than {limit:,} bytes, the most a text frame may have")
        frame, rest = read_tagged(self._frames, text)
        refuse_unknown(frame, rest)
        return frame

    async def send(self, event: object, data: bytes | None = None) -> None:
        async with self._sending:  # what belongs together is never parted
            text = msgspec.json.encode(event).decode()
            await self._socket.send({"type": "websocket.send", "text": text, "bytes": None})
            if data is not None:
                await self._socket.send({"type": "websocket.send", "text": None, "bytes": data})

    @asynccontextmanager
    async def answering(self, id: str | None = None) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            await self._tell(error, id)

    async def _tell(self, error: Exception, id: str | None = None) -> None:
        _, problem = told(error, f"{self._route}: frame {self._number}")
        await self.send(Failed(id=id, error=problem, frame=self._number or None))

    def find(self, model: str) -> tuple[str, Model]:
        name, found = find_model(self._models, model)
        require_surface(name, found, self._route.surface)
        return name, found

    async def check(self, parts: Sequence[Part]) -> None:
        await check_media(parts, self._settings, by_name)

    async def start(
        self,
        name: str,
        request: Request,
        *,
        id: str | None = None,
        timeout_s: float | None = None,
        writes: Iterable[str | Stream] = (),
    ) -> Running:
        streams = written(self._models[name], writes)
        await self.check(request.parts)
        most_s = self._settings.timeout_s
        asked_s = None if timeout_s is None else check_timeout(timeout_s, "timeout_s", most_s)
        terms = Terms(client_id=id, timeout_s=shortest(asked_s, most_s))
        call = self._caller.submit(name, request, terms=terms, writes=streams)
        running = Running(self._models[name], request, call)
        self._running = [each for each in self._running if not each.is_over]
        self._running.append(running)
        return running


def _drain_of(socket: WebSocket[Any, Any, Any]) -> asyncio.Event:
    """Set when the server stops; never, under a server that does not say so."""
    drain = (socket.scope.get("extensions") or {}).get(DRAIN)
    return drain if isinstance(drain, asyncio.Event) else asyncio.Event()
