"""One stream of one toy request: items in, helpings out, by the stream's own chunk policy."""

from __future__ import annotations

from typing import Any

from walkserve_sdk.streams import Cut, Helping, Stream
from walkserve_sdk.testing.toy_result import StreamTotal


class ToyStream:
    """Forgets an item as soon as the policy says that no later helping holds it."""

    def __init__(self, stream: Stream) -> None:
        self.name = stream.name
        self.policy = stream.policy
        self.limit = stream.limit
        self.total = StreamTotal()
        self.items: list[Any] = []
        self.first = 0  # absolute index of items[0]
        self.arrived = 0
        self.handed = 0
        self.is_ended = False  # nothing more will be written
        self.is_done = False  # the last helping was handed over
        self.is_discarded = False  # nobody will read any more
        self.stopped: str | None = None  # a reader asked its writer to stop, with this reason

    # --- the writer's side ------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether a writer may be started."""
        return self.is_discarded or self.arrived - self.handed < self.limit

    def push(self, item: Any) -> None:
        self.total.written += 1
        if self.is_discarded:
            self.total.discarded += 1
        else:
            self.items.append(item)
            self.arrived += 1

    def end(self) -> None:
        """The writer's track is over, or the client has closed it."""
        self.is_ended = True

    # --- the reader's side ------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether a call that reads it may start; a stream that is done never holds one up."""
        return self.is_done or self._cut() is not None

    def take(self) -> Helping:
        """The next helping; once the last was taken, an empty one that is not the last.

        That is for a loop that reads two streams of which one is done before the other.
        """
        self.total.helpings += 1
        cut = None if self.is_done else self._cut()
        if cut is None:
            return Helping((), self.handed, 0, last=False)
        if cut.start < self.first:
            raise AssertionError(f"{self.policy!r}: cut {cut} reaches back behind oldest()={self.first}")
        items = self.items[cut.start - self.first : cut.stop - self.first]
        self.handed += cut.fresh
        self.total.taken += cut.fresh
        self.is_done = cut.last
        self._forget(self.policy.oldest(self.handed))
        return Helping(items, cut.start, cut.fresh, cut.last)

    def discard(self) -> None:
        """The reader is over: what is held and whatever follows goes nowhere."""
        if not self.is_discarded:
            self.is_discarded = True
            self.total.discarded += self.arrived - self.handed
            self.items.clear()

    def stop(self, reason: str) -> None:
        """The reader closes it and asks whatever writes it to stop."""
        self.stopped = self.stopped or reason
        self.discard()
        self.is_done = True

    def _cut(self) -> Cut | None:
        return self.policy.cut(self.handed, self.arrived, self.is_ended)

    def _forget(self, oldest: int) -> None:
        if oldest > self.first:
            del self.items[: oldest - self.first]
            self.first = oldest
