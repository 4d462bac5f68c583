"""One worker's side of all streams: which ends are here, who waits for them, what goes to other workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from walkserve import messages as m
from walkserve.graph.plan import Op, Plan
from walkserve.streams.ends import ReadEnd, WriteEnd
from walkserve.worker.lending import Lending
from walkserve.worker.live import Live
from walkserve.worker.walk_run import Call
from walkserve_sdk import ModelSpec
from walkserve_sdk.streams import Helping


class HandOver:
    """Streams between the tracks of each request.

    Args:
        address: This worker's.
        plans: The model's graphs; each stream has one component that reads it and one that writes it.
        ranks: Component -> name of the rank that holds it.
        offer: Asks again for a call that waited for a stream.
    """

    def __init__(
        self,
        address: str,
        spec: ModelSpec,
        plans: Iterable[Plan],
        ranks: Mapping[str, str],
        lending: Lending,
        say: Callable[[str, m.Message], None],
        offer: Callable[[Call], None],
    ) -> None:
        self.peers: Mapping[str, str] = {}
        """Rank name -> address, as the conductor last said."""
        self._rank = address.rpartition(".")[0]
        self._spec = spec
        self._lending = lending
        self._say = say
        self._offer = offer
        ops = [op for plan in plans for op in plan.ops]
        self._reader_rank = {stream: ranks[op.component] for op in ops for stream in op.reads}
        self._writer_rank = {stream: ranks[op.component] for op in ops for _, stream in op.streams}

    # --- ends -------------------------------------------------------------------------------------

    def read_end(self, live: Live, stream: str) -> ReadEnd:
        if stream not in live.read_ends:
            live.read_ends[stream] = ReadEnd(self._spec.streams[stream].policy)
        return live.read_ends[stream]

    def write_end(self, live: Live, stream: str) -> WriteEnd:
        if stream not in live.write_ends:
            live.write_ends[stream] = WriteEnd(self._spec.streams[stream].limit)
        return live.write_ends[stream]

    # --- calls wait, and take ---------------------------------------------------------------------

    def holds_up(self, call: Call) -> bool:
        """Whether a call has to wait for a helping to read, or for room to write; then it is parked."""
        live, op = call.run.live, call.op
        for stream in op.reads:
            end = self.read_end(live, stream)
            if not end.has_next and not end.is_done:
                self._park(live, stream, call)
                return True
        for _, stream in op.streams:
            if not self.write_end(live, stream).is_open:
                self._park(live, stream, call)
                if not live.has_blocked:
                    live.has_blocked = True
                    self._say("conductor", m.Blocked(live.opened.number))  # it may wait for ever
                return True
        return False

    @staticmethod
    def _park(live: Live, stream: str, call: Call) -> None:
        live.parked.setdefault(stream, []).append(call)
        if live.profile is not None:
            live.profile.parked(call, stream)

    def helpings(self, live: Live, op: Op) -> list[Helping]:
        """The next of every stream the node reads.

        Of several streams one may be at its end before the others: it goes on with empty helpings.
        """
        ends = [self.read_end(live, stream) for stream in op.reads]
        return [end.next() if not end.is_done else Helping((), end.handed, 0, last=False) for end in ends]

    def unpark(self, live: Live, stream: str) -> None:
        """Something about this stream has changed."""
        for call in live.parked.pop(stream, ()):
            self._offer(call)

    # --- items ------------------------------------------------------------------------------------

    def write(self, live: Live, stream: str, value: Any) -> None:
        """A committed turn gave an item."""
        end = self.write_end(live, stream)
        index = end.number()
        if end.discarded:
            return
        rank = self._reader_rank[stream]
        if rank == self._rank:
            self.read_end(live, stream).push(index, [value])
            self.unpark(live, stream)
        else:
            items = [self._lending.lend(live, value)]
            sent = m.StreamItems(live.opened.number, stream, index, items)
            self._say(self.peers[rank], sent)

    def items_came(self, live: Live, message: m.StreamItems) -> None:
        try:
            items = [self._lending.receive(item) for item in message.items]
        finally:
            self._lending.give_back(message.items)
        self.read_end(live, message.stream).push(message.first, items)
        self.unpark(live, message.stream)

    def took(self, live: Live, stream: str) -> None:
        """A committed turn has read what was handed to it: tell the writer; of a client's, the conductor."""
        taken = self.read_end(live, stream).handed
        rank = self._writer_rank.get(stream)
        if rank == self._rank:
            self.taken(live, stream, taken)
        else:
            writer = self.peers[rank] if rank is not None else "conductor"
            self._say(writer, m.StreamTaken(live.opened.number, stream, taken, live.has_sent))

    def taken(self, live: Live, stream: str, taken: int) -> None:
        """The reader has read so many items."""
        self.write_end(live, stream).took(taken)
        self.unpark(live, stream)

    def ended(self, live: Live, stream: str, total: int) -> None:
        """The writer has ended; it wrote ``total`` items, and some may still be on their way."""
        self.read_end(live, stream).end(total)
        self.unpark(live, stream)

    def discard(self, live: Live, stream: str) -> None:
        """The reader has ended: what is written from now on goes nowhere."""
        self.write_end(live, stream).discarded = True
        self.unpark(live, stream)
