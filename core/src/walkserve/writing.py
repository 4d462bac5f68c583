"""A request's streams as its client writes them: whether it has to wait, and what is then said.

Whoever has threads or coroutines does the waiting: ``api/`` and ``http/``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from walkserve import messages as m
from walkserve.delivery import Done, Failed
from walkserve.streams.client import ClientEnd
from walkserve.transport.values import as_value
from walkserve_sdk import Stream
from walkserve_sdk.errors import BadRequest, WalkserveError, did_you_mean, error_of


@dataclass(frozen=True, slots=True)
class Item:
    """One item on its way to a stream."""

    stream: str
    value: m.Value
    size_bytes: int


class Writing:
    """The streams of one request that its client writes.

    Args:
        client: The client's address; ``tag`` its name for the request.
        streams: Those that it has said it would write.
    """

    def __init__(self, client: str, tag: int, streams: Iterable[Stream]) -> None:
        self.over: Done | Failed | None = None
        """How the request ended, once it has: then nothing is sent any more."""
        self._client = client
        self._tag = tag
        self._ends = {stream.name: ClientEnd(stream.limit) for stream in streams}

    def item(self, stream: str, value: Any) -> Item:
        """What is to be written. Raises BadRequest: it is no such stream, or can hold no such value."""
        self._end(stream)
        item = as_value(value, stream)
        return Item(stream, item, m.size_bytes(item))

    def has_to_wait(self, item: Item) -> bool:
        """Whether it has no room yet, while somebody would read it."""
        end = self._ends[item.stream]
        return self.over is None and end.is_open and not end.has_room_for(item.size_bytes)

    def write(self, item: Item) -> m.WriteStream | None:
        """What to say for it; None where nobody reads any more. Raises what the request failed with."""
        end = self._ends[item.stream]
        if not self._is_read(end):
            return None
        if end.is_ended:
            raise BadRequest(f"{item.stream}: the stream was ended, and takes no more", param=item.stream)
        first = end.written
        end.write(item.size_bytes)
        return m.WriteStream(self._client, self._tag, item.stream, first, [item.value])

    def finish(self, stream: str) -> m.FinishStream | None:
        """What to say for its end; None where that was said, or nobody reads any more."""
        end = self._end(stream)
        if not self._is_read(end) or end.is_ended:
            return None
        end.is_ended = True
        return m.FinishStream(self._client, self._tag, stream, end.written)

    def took(self, message: m.ItemsTaken) -> None:
        """The conductor says how much is read."""
        end = self._ends.get(message.stream)
        if end is not None and message.is_discarded:
            end.discard()
        elif end is not None:
            end.took(message.taken)

    def _is_read(self, end: ClientEnd) -> bool:
        if isinstance(self.over, Failed):
            raise raised(self.over.fault)
        return self.over is None and not end.is_discarded

    def _end(self, stream: str) -> ClientEnd:
        if stream not in self._ends:
            cure = did_you_mean(stream, self._ends) or "; it writes none"
            raise BadRequest(f"{stream!r} is no stream that this request's client writes{cure}", param=stream)
        return self._ends[stream]


def raised(fault: m.Fault) -> WalkserveError:
    """The error a fault was before it travelled."""
    return error_of(fault.message, fault.type, code=fault.code, param=fault.param, status=fault.status)
