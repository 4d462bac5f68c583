"""One running request as its caller sees it: an iterator over what it gives, with streams to write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Self
from weakref import finalize

from walkserve import messages as m
from walkserve.delivery import Delivery, Done, Failed
from walkserve.writing import Writing, raised
from walkserve_sdk.results import OutputEvent

LOOK_UP_S = 1.0
"""How often a waiting reader looks up: a Ctrl-C that comes just before it waits does not end its wait."""


class Call:
    """What lies between the thread that hears of a request and those that read it, or write its streams."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing
        self.delivery = Delivery()
        self.events: SimpleQueue[OutputEvent | Done | Failed] = SimpleQueue()

    def end(self, event: Done | Failed) -> None:
        """Nothing more comes of it, and what is still written goes nowhere."""
        self.writing.over = event
        self.events.put(event)


class Generation(Iterator[OutputEvent]):
    """One running request: iterate over what it gives; afterwards ``ended`` says how it ended.

    Closing it early, leaving its ``with`` block or dropping it cancels the request. It may be
    read by one thread and closed by another, whose reader then gets ``Cancelled``.

    Of a model with ``Stream(by="client")`` the caller writes those streams with ``send``, while the request
    runs, and says with ``end`` that no more comes. A request that waits for a stream which nobody writes nor
    ends fails with ``ClientIdle``, after the ``idle_s`` of that stream.

    Args:
        tag: The engine's name for it.
        cancel: Called when the caller wants no more of it, also where it has ended.
        check: Raises where it cannot be read, in a forked process.
        write: Waits until an item has room, and sends it.
        finish: Sends the end of a stream.
    """

    def __init__(
        self,
        tag: int,
        call: Call,
        cancel: Callable[[int], None],
        check: Callable[[], None],
        write: Callable[[Writing, str, Any], None],
        finish: Callable[[Writing, str], None],
    ) -> None:
        self.tag = tag
        self.ended: m.RequestEnded | None = None
        self._events = call.events
        self._writing = call.writing
        self._write = write
        self._finish = finish
        self._check = check
        self._cancel = finalize(self, cancel, tag)  # dropped, it is cancelled as well

    def __next__(self) -> OutputEvent:
        self._check()
        event = self._next_event()
        if isinstance(event, OutputEvent):
            return event
        self._events.put(event)  # the end stays, for other readers and for who asks again
        if isinstance(event, Failed):
            raise raised(event.fault)
        self.ended = event.ended
        raise StopIteration

    def _next_event(self) -> OutputEvent | Done | Failed:
        while True:
            try:
                return self._events.get(timeout=LOOK_UP_S)
            except Empty:
                continue

    def send(self, stream: str, value: Any) -> None:
        """Write one item to a stream of this request; from any thread.

        Waits while as many items as the stream's limit, or 64 MiB of them, are not read yet. Where the track
        that reads them has returned, or the request has ended well, the item goes nowhere.

        Args:
            value: Bytes, text, a number, an array in host memory, a list of these, or a record of all but
                bytes; it is copied.

        Raises:
            BadRequest: It is no such stream, or was ended, or cannot hold this; the request goes on.
            WalkserveError: What the request failed with.
        """
        self._check()
        self._write(self._writing, stream, value)

    def end(self, stream: str) -> None:
        """Write no more to a stream; its reader has its last helping when it has read the rest.

        Raises:
            BadRequest: It is no such stream.
            WalkserveError: What the request failed with.
        """
        self._check()
        self._finish(self._writing, stream)

    def close(self) -> None:
        """Cancel what is left of it."""
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
