"""One call: what has arrived for it and waits to be taken, and the streams that its client writes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from walkserve import messages as m
from walkserve.delivery import Delivery, Done, Failed
from walkserve.http.meters import Meter
from walkserve.http.requests import Record
from walkserve.writing import Writing

TAKE_BYTES = 256 * 1024
NUMBER_BYTES = 8
"""About what a number takes while it waits."""
CANCELLED = m.Fault("the request was cancelled", 499, "cancelled", "cancelled")

Item = None | bool | int | float | str | bytes | list[Any] | dict[str, Any] | NDArray[Any]


@dataclass(slots=True)
class Items:
    """Items of one output, in order; tensors have become numpy arrays of this process's own.

    ``row`` is that of a Fan which gave them, if one did.
    """

    output: str
    items: list[Item]
    size_bytes: int
    row: int | None = None


CallEvent = Items | Done | Failed


class Call:
    """One request on its way. Leaving a ``with call:`` block before it is over cancels it.

    Args:
        writing: The streams that its client writes.
        say: Sends a message to the conductor.
    """

    def __init__(
        self,
        tag: int,
        record: Record,
        meter: Meter,
        cancel: Callable[[], None],
        on_cut: Callable[[], None],
        writing: Writing,
        say: Callable[[m.Message], None],
    ) -> None:
        self.tag = tag
        self.record = record
        self.waiting_bytes = 0
        self.on_cut = on_cut
        self.is_over = False
        """Nothing more arrives; what has arrived may still wait to be taken."""
        self._meter = meter
        self._cancel = cancel
        self._delivery = Delivery()
        self._events: deque[CallEvent] = deque()
        self._arrived = asyncio.Event()
        self._writing = writing
        self._say = say
        self._input_tokens = 0
        self._moved = asyncio.Event()  # rung and replaced whenever who waits to write may go on

    # --- its client writes ------------------------------------------------------------------------

    async def send(self, stream: str, value: Any) -> None:
        """Write one item to a stream, as soon as there is room for it: at most the stream's limit, or 64 MiB,
        lie unread. Where nobody reads any more, the item goes nowhere.

        Args:
            value: Bytes, text, a number, an array, a list of these, or a record of all but bytes; it is
                copied.

        Raises:
            BadRequest: It is no such stream, or was ended, or cannot hold this; the request goes on.
            WalkserveError: What the request failed with.
        """
        item = self._writing.item(stream, value)
        while self._writing.has_to_wait(item):
            await self._moved.wait()
        message = self._writing.write(item)
        if message is not None:
            self._say(message)

    def end(self, stream: str) -> None:
        """Write no more to a stream. Raises what ``send`` does, of the stream and of the request."""
        message = self._writing.finish(stream)
        if message is not None:
            self._say(message)
            self._ring()

    def _ring(self) -> None:
        rung, self._moved = self._moved, asyncio.Event()
        rung.set()

    # --- it is taken ------------------------------------------------------------------------------

    async def take(self, most_bytes: int = TAKE_BYTES) -> list[CallEvent]:
        """Wait for something, and return what has arrived since, up to about ``most_bytes`` of it.

        The last event of a call is ``Done`` or ``Failed``; do not ask for more after it.
        """
        await self._arrived.wait()
        taken: list[CallEvent] = []
        size = 0
        while self._events and size < most_bytes:
            event = self._events.popleft()
            size += event.size_bytes if isinstance(event, Items) else 0
            taken.append(event)
        self.waiting_bytes -= size
        if not self._events:
            self._arrived.clear()
        return taken

    def cancel(self) -> None:
        """Give everything back; harmless when the call is over. Whoever waits for it gets ``Failed``."""
        if not self.is_over:
            self.is_over = True
            self.record.cancelled()
            self._meter.cancelled()
            self._writing.over = Failed(CANCELLED)
            self._ring()
            self._cancel()
            self._events.clear()
            self.waiting_bytes = 0
            self._events.append(Failed(CANCELLED))
            self._arrived.set()

    def settle(self, finish_reason: str, output_tokens: int) -> m.RequestEnded:
        """Its client has all that it wants: what still runs of it is given back, and it has ended well.

        Args:
            output_tokens: How many its client has had, for nobody else will say so.
        """
        usage = {"input_tokens": self._input_tokens, "output_tokens": output_tokens}
        ended = m.RequestEnded(self.tag, finish_reason, self.record.seed, {}, usage, {})
        if not self.is_over:
            self._cancel()
            self.waiting_bytes = 0
            self._events.clear()
            self._end(Done(ended))
        return ended

    # --- said by the Caller -----------------------------------------------------------------------

    def give(self, output: str, item: Item, size_bytes: int, row: int | None = None) -> None:
        """An item of an output has arrived."""
        items = Items(output, [item], size_bytes, row)
        self.record.gave()
        self._meter.gave(items)
        self._events.append(items)
        self._arrived.set()
        self.waiting_bytes += size_bytes
        ended = self._delivery.received(output)
        if ended is not None:
            self._end(ended)

    def hear(self, message: m.Admitted | m.ItemsTaken | m.RequestEnded | m.RequestFailed) -> None:
        """The conductor has said something of it."""
        if isinstance(message, m.ItemsTaken):
            self._writing.took(message)
            self._ring()
        else:
            if isinstance(message, m.Admitted):
                self._input_tokens = message.input_tokens
            self._end(self._delivery.hear(message))

    def fail(self, fault: m.Fault) -> None:
        """It ends here, and what still waits to be taken is dropped."""
        self._events.clear()
        self.waiting_bytes = 0
        self._end(Failed(fault))

    def _end(self, event: Done | Failed | None) -> None:
        if event is None:
            return
        self.is_over = True
        self._writing.over = event
        self._ring()
        if isinstance(event, Done):
            self.record.ended(event.ended)
            self._meter.ended(event.ended)
        else:
            self.record.failed(event.fault)
            self._meter.failed(event.fault)
        self._events.append(event)
        self._arrived.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


def size_bytes(item: Item) -> int:
    """About what an item takes while it waits."""
    match item:
        case np.ndarray():
            return int(item.nbytes)
        case str() | bytes():
            return len(item)
        case list():
            return NUMBER_BYTES * len(item)
        case dict():
            return sum(map(size_bytes, item.values()))
        case _:
            return NUMBER_BYTES
