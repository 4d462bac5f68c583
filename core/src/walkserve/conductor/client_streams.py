"""Streams that clients write while their requests run: passed on to the workers that read them, and counted.

The conductor stands in for the writer. Workers know of a request before its client may write, so items go on
at once in every phase, and what they wait for there is the reader. What lies unread is limited
(``streams/client.py``): the client is told what was taken, and has to wait; one that does not is failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from walkserve import messages as m
from walkserve.conductor.life import Life
from walkserve.streams.client import ClientEnd
from walkserve_sdk.errors import BadRequest, did_you_mean
from walkserve_sdk.models import ModelSpec

Written = m.WriteStream | m.FinishStream


def written_by_clients(spec: ModelSpec) -> tuple[str, ...]:
    """The streams of a model that are its client's to write."""
    return tuple(name for name, stream in spec.streams.items() if stream.by == "client")


def check_writes(model: str, spec: ModelSpec, names: Iterable[str]) -> None:
    """Refuse a request whose client would write what is not its to write."""
    known = written_by_clients(spec)
    for name in names:
        if name not in known:
            cure = did_you_mean(name, known) or "; it has no stream that a client writes"
            raise BadRequest(f"{model} takes no stream {name!r} from its client{cure}", param=name)


class ClientStreams:
    """The conductor's side of them, of all requests.

    Args:
        say: Sends a message to an address.
    """

    def __init__(self, say: Callable[[str, m.Message], None]) -> None:
        self._say = say

    def begin(self, life: Life, writes: Iterable[str]) -> None:
        """A request is open on its workers. What nobody is to write has ended already."""
        spec, writes = life.served.model.spec, set(writes)
        for name in written_by_clients(spec):
            life.client_ends[name] = ClientEnd(spec.streams[name].limit)
            if name not in writes:
                self._end(life, name)

    def write(self, life: Life, message: Written) -> None:
        """Its client has written, or writes no more. Raises BadRequest where that cannot be."""
        name = message.stream
        if name not in life.client_ends:
            check_writes(life.served.name, life.served.model.spec, [name])
        end = life.client_ends[name]
        if end.is_ended:
            raise BadRequest(f"{name}: the stream has ended, and takes no more; end it last", param=name)
        first = message.first if isinstance(message, m.WriteStream) else message.total
        if first != end.written:
            raise BadRequest(
                f"{name}: item {first} came where {end.written} was due; number them as they are sent",
                param=name,
            )
        if life.journal is not None:
            life.journal.client_wrote(message)
        if isinstance(message, m.FinishStream):
            self._end(life, name)
        else:
            self._pass_on(life, name, end, message.items)

    def _pass_on(self, life: Life, name: str, end: ClientEnd, items: list[m.Value]) -> None:
        first = end.written
        for item in items:
            size = m.size_bytes(item)
            if not (end.is_discarded or end.has_room_for(size)):
                raise BadRequest(
                    f"{name}: {end.written - end.taken:,} items ({end.unread_bytes:,} bytes) are unread, and "
                    f"{end.limit:,} items or {end.most_bytes:,} bytes may be; wait until some are taken",
                    param=name,
                    code="stream_full",
                )
            end.write(size)
        if end.is_discarded:
            end.took(end.written)
        else:
            self._say(self._reader(life, name), m.StreamItems(life.number, name, first, items))

    def _end(self, life: Life, name: str) -> None:
        end = life.client_ends[name]
        end.is_ended = True
        if not end.is_discarded:
            self._say(self._reader(life, name), m.EndStream(life.number, name, end.written))

    def took(self, life: Life, message: m.StreamTaken) -> None:
        """The reader has taken some of it."""
        end = life.client_ends[message.stream]
        if not end.is_discarded:
            end.took(message.taken)
            self._tell(life, message.stream, end)

    def discard(self, life: Life, name: str) -> None:
        """The track that reads it has returned."""
        end = life.client_ends[name]
        end.discard()
        self._tell(life, name, end)

    def _tell(self, life: Life, name: str, end: ClientEnd) -> None:
        if not end.is_ended:  # else its client has nothing to wait for
            self._say(life.client, m.ItemsTaken(life.tag, name, end.taken, end.is_discarded))

    @staticmethod
    def _reader(life: Life, stream: str) -> str:
        served = life.served
        return served.workers[served.reader_of[stream]].address
