"""``WS /v1/stream``: any number of requests on one socket, and what comes of them as it comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from litestar import WebSocket
from litestar import websocket as websocket_route
from litestar.handlers import BaseRouteHandler

from walkserve.http.callers import Caller
from walkserve.http.generate_events import Telling, apart
from walkserve.http.generate_run import Next, Run
from walkserve.http.media_checks import check_media
from walkserve.http.problems import told
from walkserve.http.settings import HttpSettings
from walkserve.http.stream_protocol import DRAIN, SERVICE_RESTART
from walkserve.http.stream_session import Call, Cancel, Close, Order, Session, Tell
from walkserve.http.terms import Terms
from walkserve_sdk import Model
from walkserve_sdk.events import Event, Failed, Piece, Stopped

MOST_REPLIES = 64
"""How many answers to frames may wait to be sent before no further frame is read."""

Frame = str | bytes
Socket = WebSocket[Any, Any, Any]


def stream_route(caller: Caller, models: Mapping[str, Model], settings: HttpSettings) -> BaseRouteHandler:
    """The route."""

    @websocket_route("/v1/stream")
    async def stream(socket: Socket) -> None:
        """Run requests to any model over one socket, several at once."""
        await socket.accept()
        await _Streaming(socket, caller, Session(models, settings), settings).serve()

    return stream


class _Streaming:
    """One socket: frames go to its session, orders are carried out, and every event leaves by one writer."""

    def __init__(self, socket: Socket, caller: Caller, session: Session, settings: HttpSettings) -> None:
        self._socket = socket
        self._settings = settings
        self._caller = caller
        self._session = session
        self._writer = _Writer(socket)
        self._running: dict[str, _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def serve(self) -> None:
        """Until either side closes it; whatever is open then is cancelled."""
        writing = asyncio.create_task(self._writer.run())
        leaving = asyncio.create_task(self._leave())
        try:
            while (frame := await self._receive()) is not None:
                self._obey(self._session.hear(frame))
        finally:
            tasks = [writing, leaving, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self) -> Frame | None:
        """The next frame; None when there will be none. What is not read waits at the client."""
        await self._writer.has_room.wait()
        event = await self._socket.receive()
        if event["type"] != "websocket.receive":
            return None
        text, data = event.get("text"), event.get("bytes")
        return text if text is not None else data or b""

    async def _leave(self) -> None:
        """When the server stops: what runs may end, then the socket is closed."""
        drain = (self._socket.scope.get("extensions") or {}).get(DRAIN)
        if not isinstance(drain, asyncio.Event):
            return
        await drain.wait()
        self._obey(self._session.leave())
        while not (self._session.is_idle and self._writer.is_idle):
            self._changed.clear()
            await self._changed.wait()
        await self._socket.close(SERVICE_RESTART, "the server stops")

    # --- orders ---------------------------------------------------------------------------------------

    def _obey(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case Tell(event=event):
                    self._writer.reply(event)
                case Call(label=label):
                    running = self._running.get(label) or self._start(order)
                    running.calls.put_nowait(order.request)
                case Close(label=label, error=error):
                    self._running[label].calls.put_nowait(error)
                case Cancel(label=label):
                    self._running.pop(label).task.cancel()
                    self._writer.reply(Stopped(id=label))
        self._changed.set()

    def _start(self, call: Call) -> _Running:
        terms = Terms(client_id=call.label, timeout_s=call.ask.timeout_s)
        telling = Telling(call.ask.name, call.ask.model, call.request, terms, call.label)
        calls: asyncio.Queue[Next] = asyncio.Queue()
        running = self._running[call.label] = _Running(calls)
        running.task = asyncio.create_task(self._run(call, telling, running))
        self._tasks.add(running.task)
        running.task.add_done_callback(self._tasks.discard)
        return running

    async def _run(self, call: Call, telling: Telling, running: _Running) -> None:
        label = call.label
        try:
            await check_media(call.request.parts, self._settings)
            run = Run(self._caller, telling, running.calls, self._writer.send)
            await run.to_its_end(tells_start=True)
        except Exception as error:
            _, problem = told(error, f"{telling.started.model}: a request of a socket")
            await self._writer.send([Failed(id=label, error=problem)])
        # not after a cancel: its name may be another's by now
        del self._running[label]
        self._session.over(label)
        self._changed.set()


class _Running:
    """A request that has been called."""

    task: asyncio.Task[None]

    def __init__(self, calls: asyncio.Queue[Next]) -> None:
        self.calls = calls


class _Writer:
    """All that is sent on one socket, in turn: a header and its numbers are never parted."""

    def __init__(self, socket: Socket) -> None:
        self.has_room = asyncio.Event()
        self.has_room.set()
        self._socket = socket
        self._replies: deque[Event] = deque()
        self._turns: deque[tuple[Sequence[Event], asyncio.Future[None]]] = deque()
        self._work = asyncio.Event()
        self.is_idle = True

    def reply(self, event: Event) -> None:
        """Send an answer to a frame, before the events of requests."""
        self._replies.append(event)
        self._ring()
        if len(self._replies) >= MOST_REPLIES:
            self.has_room.clear()

    async def send(self, events: Sequence[Event]) -> None:
        """Send events, and return when they are sent. Cancelled before its turn, it sends nothing."""
        sent = asyncio.get_running_loop().create_future()
        self._turns.append((events, sent))
        self._ring()
        await sent

    def _ring(self) -> None:
        self.is_idle = False
        self._work.set()

    async def run(self) -> None:
        """Send, as long as the socket takes it."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._replies or self._turns:
                while self._replies:
                    await self._write(self._replies.popleft())
                self.has_room.set()
                if self._turns:
                    events, sent = self._turns.popleft()
                    if sent.cancelled():
                        continue
                    for event in events:
                        await self._write(event)
                    if not sent.done():  # cancelled in the middle, it has been sent all the same
                        sent.set_result(None)
            self.is_idle = True

    async def _write(self, event: Event) -> None:
        for frame in frames(event):
            if isinstance(frame, str):
                await self._socket.send({"type": "websocket.send", "text": frame, "bytes": None})
            else:
                await self._socket.send({"type": "websocket.send", "text": None, "bytes": frame})


def frames(event: Event) -> Iterator[Frame]:
    """An event as frames: JSON, and the numbers of its arrays in a binary frame right after it."""
    numbers = None
    if isinstance(event, Piece):
        event, numbers = apart(event)
    yield msgspec.json.encode(event).decode()
    if numbers is not None:
        yield numbers
