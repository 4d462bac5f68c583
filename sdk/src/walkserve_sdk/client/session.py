"""The client that does not wait: ``WS /v1/stream``, any number of requests at once, text in pieces."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Self

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from walkserve_sdk.client.asking import Asking, asking
from walkserve_sdk.client.hearing import Heard, refused
from walkserve_sdk.errors import BadRequest, Unavailable, WalkserveError
from walkserve_sdk.events import Done, Failed, Piece, Started, Stopped, ToSocket
from walkserve_sdk.requests import Part
from walkserve_sdk.results import OutputEvent, Result

log = logging.getLogger(__name__)

_EVENT = msgspec.json.Decoder(ToSocket)
Event = Started | Piece | Done | Failed | Stopped


class AsyncClient:
    """A server: ``async with AsyncClient("http://127.0.0.1:8000").connect() as session: ...``

    Args:
        url: Where the server is, without a path of a route.
        api_key: Where the server wants one.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._address = f"ws{url.removeprefix('http').rstrip('/')}/v1/stream"
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Session]:
        """A socket for requests; leaving it cancels those that are open.

        Raises:
            Unavailable: The server is not there.
            WalkserveError: It refuses the socket.
        """
        try:
            socket = await connect(
                self._address, additional_headers=self._headers, max_size=None, compression=None
            )
        except InvalidStatus as error:
            raise refused(error.response.status_code, bytes(error.response.body or b"")) from error
        except (OSError, WebSocketException) as error:
            raise Unavailable(f"the server cannot be reached: {error}") from error
        async with socket:
            session = Session(socket)
            hearing = asyncio.create_task(session.hear())
            try:
                yield session
            finally:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)


class Session:
    """One socket, and the requests on it. What is not read of a request waits in memory."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._labels = count(1)
        self._open: dict[str, Generation] = {}
        self._sending = asyncio.Lock()  # media follow what announces them
        self._closed: Unavailable | None = None

    def generate(
        self,
        model: str,
        *,
        text: str | None = None,
        inputs: Sequence[Part] | None = None,
        outputs: Sequence[str] | None = None,
        split: str | None = None,
        timeout_s: float | None = None,
        text_open: bool = False,
        **fields: Any,
    ) -> Generation:
        """A request, which begins when it is first awaited, iterated over or entered.

        Args:
            text_open: Whether (more) text comes by ``send_text``; it is complete with ``end``. With
                ``split="sentence"`` each sentence is spoken as soon as it is complete.

        The other arguments are those of ``Client.generate``.
        """
        ask = asking(
            model, text=text, inputs=inputs, outputs=outputs, split=split, timeout_s=timeout_s, fields=fields
        )
        return Generation(self, ask, text_open=text_open)

    async def hear(self) -> None:
        """Take what comes to whoever asked for it, until the socket is closed."""
        why = "the connection was closed"
        try:
            while True:
                event = await self._receive()
                request = self._open.get(event.id or "")
                if request is not None:
                    request.put(event)
                elif isinstance(event, Failed):
                    log.warning("the server refuses frame %s: %s", event.frame, event.error.message)
        except ConnectionClosed as error:
            why = f"the connection was closed: {error}"
        except msgspec.DecodeError as error:
            why = f"what the server says is not understood: {error}"
        finally:
            self._closed = Unavailable(why)
            for request in list(self._open.values()):
                request.put(self._closed)

    async def _receive(self) -> Event:
        event: Event = _EVENT.decode(await self._socket.recv())
        if isinstance(event, Piece) and event.size_bytes is not None:
            data = await self._socket.recv(decode=False)
            return msgspec.structs.replace(event, data=data, size_bytes=None)
        return event

    async def begin(self, request: Generation, ask: Asking, text_open: bool) -> str:
        """Said by a request: begin it, under a name that is returned."""
        if self._closed is not None:
            raise self._closed
        label = str(next(self._labels))
        self._open[label] = request
        await self.say(*ask.frames(label, text_open=text_open))
        return label

    async def say(self, *frames: str | bytes) -> None:
        """Said by a request: send these, one right after the other."""
        try:
            async with self._sending:
                for frame in frames:
                    await self._socket.send(frame)
        except ConnectionClosed as error:
            raise Unavailable(f"the connection was closed: {error}") from error

    def over(self, label: str) -> None:
        """Said by a request: nothing more of it comes."""
        self._open.pop(label, None)


class Generation:
    """One request on a socket: iterate over what it gives; afterwards ``done`` says how it ended.

    Leaving its ``async with`` block early cancels it.
    """

    def __init__(self, session: Session, ask: Asking, *, text_open: bool) -> None:
        self._session = session
        self._ask = ask
        self._is_text_open = text_open
        self._label: str | None = None
        self._events: asyncio.Queue[Event | WalkserveError] = asyncio.Queue()
        self._heard = Heard()
        self._is_over = False

    @property
    def started(self) -> Started | None:
        """Its seed, and what it gives; None before the server has begun it."""
        return self._heard.started

    @property
    def done(self) -> Done | None:
        """How it ended; None before that."""
        return self._heard.done

    async def begin(self) -> None:
        """Send it on its way, without waiting for what it gives."""
        if self._label is None:
            self._label = await self._session.begin(self, self._ask, self._is_text_open)

    async def send_text(self, text: str) -> None:
        """More of its text.

        Raises:
            BadRequest: Its text is complete.
        """
        await self._say("text", text=text)

    async def end(self) -> None:
        """Its text is complete. Raises what ``send_text`` does."""
        await self._say("end")
        self._is_text_open = False

    async def cancel(self) -> None:
        """Stop it; whoever reads it gets ``Cancelled``. Harmless when it is over."""
        if self._label is not None and not self._is_over:
            await self._session.say(_frame("cancel", self._label))

    async def result(self) -> Result:
        """All of it, as ``Client.generate`` returns it; nothing of it may have been read before."""
        return self._heard.result([piece async for piece in self])

    def put(self, event: Event | WalkserveError) -> None:
        """Said by the session: this has come."""
        self._events.put_nowait(event)
        if isinstance(event, Done | Failed | Stopped | WalkserveError):
            self._is_over = True
            self._session.over(self._label or "")

    async def _say(self, type: str, **fields: str) -> None:
        if not self._is_text_open:
            raise BadRequest(
                "the text of this request is complete; begin it with text_open=True", param="text"
            )
        await self.begin()
        assert self._label is not None
        if not self._is_over:  # else whoever reads it is told
            await self._session.say(_frame(type, self._label, **fields))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> OutputEvent:
        await self.begin()
        while self._heard.done is None:
            event = await self._events.get()
            if isinstance(event, WalkserveError):
                self._events.put_nowait(event)  # for who asks again
                raise event
            if isinstance(event, Failed | Stopped):
                self._events.put_nowait(event)
            piece = self._heard.hear(event)
            if piece is not None:
                return piece
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._is_over:
            await self.cancel()


def _frame(type: str, label: str, **fields: str) -> str:
    return msgspec.json.encode({"type": type, "id": label, **fields}).decode()
