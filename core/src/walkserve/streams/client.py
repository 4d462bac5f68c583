"""A stream that a client writes, as whoever does not read it counts it: what was written, and what is taken.

Two keep such an account. The client has one, to wait before it writes more than may lie unread. The conductor
has the other, and fails the request of a client that did not wait. What was taken the conductor hears first,
so it never finds more unread than the client does: who waits by its own account is not refused.
"""

from __future__ import annotations

from collections import deque

MOST_BYTES = 64 * 1024 * 1024
"""Of one stream's items that may lie unread; a single one is never too large."""


class ClientEnd:
    """The writing end of one request's stream, where its client writes it.

    Args:
        limit: Items that may lie unread.
        most_bytes: And bytes of them.
    """

    __slots__ = ("_sizes", "is_discarded", "is_ended", "limit", "most_bytes", "taken", "unread_bytes")

    def __init__(self, limit: int, most_bytes: int = MOST_BYTES) -> None:
        self.limit = limit
        self.most_bytes = most_bytes
        self.taken = 0
        self.unread_bytes = 0
        self.is_ended = False  # the client writes no more
        self.is_discarded = False  # nobody reads any more
        self._sizes: deque[int] = deque()  # of what is unread

    @property
    def written(self) -> int:
        """How many items, in all."""
        return self.taken + len(self._sizes)

    @property
    def is_open(self) -> bool:
        """Whether an item that is written now would be read."""
        return not (self.is_ended or self.is_discarded)

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether an item of this size may be written now."""
        unread = len(self._sizes)
        return unread == 0 or (unread < self.limit and self.unread_bytes + size_bytes <= self.most_bytes)

    def write(self, size_bytes: int) -> None:
        """An item is written."""
        self._sizes.append(size_bytes)
        self.unread_bytes += size_bytes

    def took(self, taken: int) -> None:
        """The reader has taken so many in all. What is older than what is known says nothing new."""
        if not 0 <= taken <= self.written:
            raise ValueError(f"{taken} stream items were taken where {self.written} were written")
        while self.taken < taken:
            self.unread_bytes -= self._sizes.popleft()
            self.taken += 1

    def discard(self) -> None:
        """The reader has ended: what is unread, and what still comes, goes nowhere."""
        self.is_discarded = True
        self.took(self.written)
