"""One running request as its caller sees it: an iterator over what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Self
from weakref import finalize

from walkserve import messages as m
from walkserve.delivery import Delivery, Done, Failed
from walkserve_sdk.errors import WalkserveError, error_of
from walkserve_sdk.results import OutputEvent


class Call:
    """What lies between the thread that hears of a request and those that read it."""

    def __init__(self) -> None:
        self.delivery = Delivery()
        self.events: SimpleQueue[OutputEvent | Done | Failed] = SimpleQueue()


class Generation(Iterator[OutputEvent]):
    """One running request: iterate over what it gives; afterwards ``ended`` says how it ended.

    Closing it early, leaving its ``with`` block or dropping it cancels the request. It may be
    read by one thread and closed by another, whose reader then gets ``Cancelled``.

    Args:
        tag: The engine's name for it.
        cancel: Called when the caller wants no more of it, also where it has ended.
        check: Raises where it cannot be read, in a forked process.
    """

    def __init__(
        self, tag: int, call: Call, cancel: Callable[[int], None], check: Callable[[], None]
    ) -> None:
        self.tag = tag
        self.ended: m.RequestEnded | None = None
        self._events = call.events
        self._check = check
        self._cancel = finalize(self, cancel, tag)  # dropped, it is cancelled as well

    def __next__(self) -> OutputEvent:
        self._check()
        event = self._events.get()
        if isinstance(event, OutputEvent):
            return event
        self._events.put(event)  # the end stays, for other readers and for who asks again
        if isinstance(event, Failed):
            raise raised(event.fault)
        self.ended = event.ended
        raise StopIteration

    def close(self) -> None:
        """Cancel what is left of it."""
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def raised(fault: m.Fault) -> WalkserveError:
    """The error a fault was before it travelled."""
    return error_of(fault.message, fault.type, code=fault.code, param=fault.param, status=fault.status)
