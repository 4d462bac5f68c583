"""Clients of the soak: each makes one request, reads or leaves as it is told, and says what it has seen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from tests.soak.asks import Ask
from tests.soak.seen import TERMINAL, Seen, SeveralEnds, seen_of_answer, seen_of_frames
from tests.soak.wire import PATIENCE_S, NoEnd, connection, drop, websocket
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

Frame = dict[str, Any]


class SharedSocket:
    """A WebSocket with any number of requests on it; what comes is dealt to them by their names."""

    def __init__(self, opened: ClientConnection, *, slowly_s: float = 0.0) -> None:
        self.opened = opened
        self._slowly_s = slowly_s
        self._names = count(1)
        self._open: dict[str, asyncio.Queue[Frame | None]] = {}
        self._to_be_answered: set[str] = set()  # every cancel is, also one that came after the end
        self.strays: list[Frame] = []
        """What came for a request after its end."""

    async def hear(self) -> None:
        """Deal what comes, until the socket is closed."""
        try:
            while True:
                event = json.loads(await self.opened.recv())
                if "bytes" in event:
                    event["numbers"] = await self.opened.recv(decode=False)
                self._deal(event)
                if self._slowly_s:
                    await asyncio.sleep(self._slowly_s)
        except ConnectionClosed:
            for frames in self._open.values():
                frames.put_nowait(None)

    def _deal(self, event: Frame) -> None:
        name = event.get("id", "")
        frames = self._open.get(name)
        if event["type"] == "cancelled" and name in self._to_be_answered:
            self._to_be_answered.remove(name)
            if frames is None:
                return
        if frames is None:
            self.strays.append(event)
            return
        frames.put_nowait(event)
        if event["type"] in TERMINAL:
            del self._open[event["id"]]

    async def begin(self, fields: Frame) -> tuple[str, asyncio.Queue[Frame | None]]:
        """Send a ``generate``; its name, and where its events will be. None there is the socket's end."""
        name = f"r{next(self._names)}"
        frames = self._open[name] = asyncio.Queue()
        await self.opened.send(json.dumps({"type": "generate", "id": name, **fields}))
        return name, frames

    async def cancel(self, name: str) -> None:
        """Send a ``cancel``."""
        self._to_be_answered.add(name)
        await self.opened.send(json.dumps({"type": "cancel", "id": name}))


@asynccontextmanager
async def shared_socket(url: str, *, slowly_s: float = 0.0) -> AsyncIterator[SharedSocket]:
    """A socket that hears as long as it is open.

    Raises:
        SeveralEnds: Something came for a request that had ended.
    """
    async with websocket(url, is_slow=slowly_s > 0) as opened:
        socket = SharedSocket(opened, slowly_s=slowly_s)
        hearing = asyncio.create_task(socket.hear())
        try:
            yield socket
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
    if socket.strays:
        raise SeveralEnds(f"after their ends: {socket.strays[:3]}")


async def ask_once(url: str, ask: Ask, shared: SharedSocket | None = None) -> Seen:
    """Make a request and see it to its end, or to where its client leaves.

    Args:
        shared: For a request that needs no WebSocket of its own.

    Raises:
        NoEnd: It had none.
        SeveralEnds: It had more than one.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_S):
            seen = await (_over_a_socket(url, ask, shared) if ask.route == "socket" else _over_http(url, ask))
    except TimeoutError:
        raise NoEnd(f"{ask.name}: no end within {PATIENCE_S:g} s") from None
    return replace(seen, began=began, ended=time.monotonic())


async def _over_http(url: str, ask: Ask) -> Seen:
    async with connection(url, is_slow=ask.is_slow) as client:
        await client.send(ask.path, ask.fields, accept=ask.accept)
        if ask.leaves is None:
            await client.read(slowly_s=ask.slowly_s)
            return seen_of_answer(ask, client.answer)
        if ask.after is None:
            await asyncio.sleep(0.002)  # it is on its way
        elif not await client.read(least=ask.after):
            return seen_of_answer(ask, client.answer)  # it had ended before
        client.leave(ask.leaves)
        return Seen(ask, "left", client.answer.headers.get("x-request-id", ""), status=client.answer.status)


async def _over_a_socket(url: str, ask: Ask, shared: SharedSocket | None) -> Seen:
    async with AsyncExitStack() as stack:
        if shared is None or ask.is_slow or ask.leaves in ("close", "reset"):
            shared = await stack.enter_async_context(shared_socket(url, slowly_s=ask.slowly_s))
        name, frames = await shared.begin(ask.fields)
        events: list[Frame] = []
        after = -1 if ask.leaves is None else ask.after or 0
        while not (events and events[-1]["type"] in TERMINAL):
            if len(events) == after:
                if ask.leaves == "cancel":
                    await shared.cancel(name)
                else:
                    _leave(shared.opened, ask)
                    return replace(seen_of_frames(ask, events), end="left")
            event = await frames.get()
            if event is None:
                break
            events.append(event)
        return seen_of_frames(ask, events)


def _leave(opened: ClientConnection, ask: Ask) -> None:
    if ask.leaves == "reset":
        drop(opened)
    else:
        opened.transport.close()
