"""Messages between the processes of one host, over ZeroMQ.

A mailbox is a PULL socket at ``folder/address``, and a PUSH socket to each peer it has written to,
connected at the first message: it may come before the peer has bound, and waits for it in the queue.

The coroutine's mailbox watches the PULL socket's file descriptor itself instead of using
``zmq.asyncio``: a round trip is 69 µs instead of 79 (uvloop: 65 instead of 74; blocking: 52).
That descriptor says only that something *changed*, so it is watched only after asking the
socket and hearing that nothing is there, which arms it; and only while somebody waits, or the loop
would spin.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq

from walkserve.messages import Message
from walkserve.transport.base import Unsendable
from walkserve.transport.frames import Unpacker, pack

log = logging.getLogger(__name__)

HIGH_WATER = 10_000  # frames that wait at either end: minutes of a peer that is busy, not of one that is gone
LINGER_S = 0.2
MOST_FRAMES = 256  # of one receive, so that a fast sender cannot keep it from returning
LONGEST_PATH = 107  # bytes: what a Unix socket's address holds

# Plain numbers, because `&` on ZeroMQ's own flags takes longer than the question whether there is a frame.
_NOW, _READABLE, _EVENTS = int(zmq.NOBLOCK), int(zmq.POLLIN), int(zmq.EVENTS)


def socket_path(folder: Path, address: str) -> str:
    """Where the mailbox ``address`` listens.

    Raises:
        ValueError: If ``address`` is no file name, or the path is longer than a Unix socket's may be.
    """
    if not address or address in (".", "..") or "/" in address or "\0" in address:
        raise ValueError(f"{address!r} cannot be a mailbox's address: it has to be a plain file name")
    path = f"{folder}/{address}"
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise ValueError(
            f"the socket of mailbox {address!r} would have a path of {length} bytes, and a Unix socket's"
            f" may have {LONGEST_PATH}; use a shorter folder than {str(folder)!r}"
        )
    return path


class _Sockets:
    """What the two mailboxes share: sending, reading what is there, opening and closing."""

    def __init__(
        self,
        address: str,
        folder: Path,
        *,
        receives: Any,
        high_water: int = HIGH_WATER,
        linger_s: float = LINGER_S,
    ) -> None:
        self.address = address
        self.dropped = 0
        self._folder = folder
        self._path = socket_path(folder, address)
        if os.path.lexists(self._path):  # ZeroMQ would take it away from its owner without a word
            raise FileExistsError(f"the mailbox {address!r} in {str(folder)!r} is open already")
        self._unpacker = Unpacker(receives)
        self._high_water = high_water
        self._linger_ms = math.ceil(linger_s * 1000)
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        self._refusing: set[str] = set()
        self._context = zmq.Context()
        self._pull = self._context.socket(zmq.PULL)
        self._pull.setsockopt(zmq.RCVHWM, high_water)
        try:
            self._pull.bind(f"ipc://{self._path}")
        except BaseException:
            self._pull.close(0)
            self._context.term()
            raise

    def send(self, to: str, messages: Sequence[Message]) -> None:
        if not messages:
            return
        frame, unsendable = pack(messages)
        sent = len(messages) - len(unsendable)
        if sent:
            self._send_frame(to, frame, sent)
        if unsendable:
            raise Unsendable(to, [message for message, _ in unsendable], unsendable[0][1])

    def _send_frame(self, to: str, frame: bytes, count: int) -> None:
        try:
            peer = self._peers.get(to) or self._connect(to)
            peer.send(frame, _NOW)
        except (zmq.Again, ValueError) as error:
            self.dropped += count
            if to not in self._refusing:
                self._refusing.add(to)
                log.warning("%s drops what it has for %r: %s", self.address, to, error)
        else:
            if self._refusing:
                self._refusing.discard(to)

    def _connect(self, to: str) -> zmq.Socket[bytes]:
        path = socket_path(self._folder, to)
        peer = self._context.socket(zmq.PUSH)
        peer.setsockopt(zmq.SNDHWM, self._high_water)
        peer.setsockopt(zmq.RECONNECT_IVL, 10)  # soon, for a peer that is just starting,
        peer.setsockopt(zmq.RECONNECT_IVL_MAX, 100)  # and rarely, for one that never comes
        peer.connect(f"ipc://{path}")
        self._peers[to] = peer
        return peer

    def forget(self, to: str) -> None:
        peer = self._peers.pop(to, None)
        self._refusing.discard(to)
        if peer is not None:
            peer.close(0)

    def _waiting(self) -> list[Message]:
        """What has arrived, without waiting."""
        messages: list[Message] = []
        for _ in range(MOST_FRAMES):
            # asked, not tried: an exception costs twice as much as the question
            if not self._pull.getsockopt(_EVENTS) & _READABLE:  # type: ignore[operator]
                break
            messages += self._unpacker.unpack(self._pull.recv(_NOW))
        return messages

    def close(self) -> None:
        if self._pull.closed:
            return
        for peer in self._peers.values():
            peer.close(self._linger_ms)
        self._peers.clear()
        self._pull.close(0)
        self._context.term()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SocketMailbox(_Sockets):
    """A mailbox of a process whose loop blocks: a worker, the conductor.

    Args:
        address: Its name in ``folder``.
        folder: The server's run folder, where its peers' mailboxes are as well.
        receives: The union of the messages that may arrive.
        high_water: Frames that may wait at either end of each pair.
        linger_s: How long ``close`` waits for what was sent to leave.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        receives: Any,
        *,
        high_water: int = HIGH_WATER,
        linger_s: float = LINGER_S,
    ) -> None:
        super().__init__(address, folder, receives=receives, high_water=high_water, linger_s=linger_s)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._bell_lock = threading.RLock()  # a signal handler may ring while this thread closes
        self._poller = zmq.Poller()
        self._poller.register(self._pull, zmq.POLLIN)
        self._poller.register(self._bell, zmq.POLLIN)

    def receive(self, timeout_s: float | None = None) -> list[Message]:
        """See ``Mailbox``."""
        if timeout_s is not None and timeout_s <= 0:
            return self._waiting()  # a tenth of what the poller takes; a bell waits for who waits
        # rounded up: a millisecond cut to nothing would make the caller's loop spin
        for source, _ in self._poller.poll(None if timeout_s is None else math.ceil(timeout_s * 1000)):
            if source == self._bell:
                os.eventfd_read(self._bell)
        return self._waiting()

    def wake(self) -> None:
        with self._bell_lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        super().close()
        with self._bell_lock:
            bell, self._bell = self._bell, -1
            if bell >= 0:
                os.close(bell)


class AsyncSocketMailbox(_Sockets):
    """A mailbox read by a coroutine: the HTTP process. Arguments are those of ``SocketMailbox``."""

    def __init__(
        self,
        address: str,
        folder: Path,
        receives: Any,
        *,
        high_water: int = HIGH_WATER,
        linger_s: float = LINGER_S,
    ) -> None:
        super().__init__(address, folder, receives=receives, high_water=high_water, linger_s=linger_s)
        self._descriptor = self._pull.fileno()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False

    async def receive(self, timeout_s: float | None = None) -> list[Message]:
        """See ``AsyncMailbox``. One coroutine at a time."""
        loop = self._loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            messages = self._waiting()  # having found nothing, this has armed the descriptor
            if messages or self._woken or (deadline is not None and loop.time() >= deadline):
                self._woken = False
                return messages
            self._waiter = loop.create_future()
            loop.add_reader(self._descriptor, self._rouse)
            timer = None if deadline is None else loop.call_at(deadline, self._rouse)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
                if not self._pull.closed:
                    loop.remove_reader(self._descriptor)

    def _rouse(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def wake(self) -> None:
        self._woken = True  # before the loop is looked at: a first receive then sees it by itself
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, nobody waits in it
                self._loop.call_soon_threadsafe(self._rouse)

    def close(self) -> None:
        if self._waiter is not None and self._loop is not None and not self._pull.closed:
            self._loop.remove_reader(self._descriptor)
            self._waiter.cancel()
        super().close()
