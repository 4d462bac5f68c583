"""The two ends of one request's stream. They may be in one worker or in two; counts join them."""

from __future__ import annotations

from collections import deque
from typing import Any

from walkserve_sdk.streams import ChunkPolicy, Cut, Helping


class WriteEnd:
    """Where items leave: numbers them, and knows how many are still held by the reader.

    Args:
        limit: Held items from which on no writer is started.
    """

    __slots__ = ("discarded", "limit", "taken", "written")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.written = 0
        self.taken = 0
        self.discarded = False  # the reader has ended

    @property
    def is_open(self) -> bool:
        """Whether a writer may be started."""
        return self.discarded or self.written - self.taken < self.limit

    def number(self) -> int:
        """The index of the item being written now."""
        index = self.written
        self.written += 1
        return index

    def took(self, taken: int) -> None:
        """The reader has taken so many of them in all. What is older than what is known says nothing new."""
        if not 0 <= taken <= self.written:
            raise ValueError(f"{taken} stream items were taken where {self.written} were written")
        self.taken = max(self.taken, taken)


class ReadEnd:
    """Where items arrive and are handed over in helpings.

    The end is known once the writer's total is; the helping that reaches it is the last.
    """

    __slots__ = ("arrived", "first", "handed", "is_done", "items", "policy", "total")

    def __init__(self, policy: ChunkPolicy) -> None:
        self.policy = policy
        self.items: deque[Any] = deque()
        self.first = 0  # absolute index of items[0]
        self.arrived = 0
        self.handed = 0
        self.total: int | None = None
        self.is_done = False  # the last helping was handed over

    def push(self, first: int, items: list[Any]) -> None:
        """Items have arrived, in order. ``first`` must be the next index, or the stream lost something."""
        if first != self.arrived:
            raise ValueError(f"stream items from {first} arrived where {self.arrived} was due")
        if self.total is not None and first + len(items) > self.total:
            raise ValueError(f"{first + len(items)} stream items arrived where {self.total} were written")
        self.items.extend(items)
        self.arrived += len(items)

    def end(self, total: int) -> None:
        """The writer wrote ``total`` items in all."""
        if total < self.arrived or self.total not in (None, total):
            known = f"{self.arrived} have arrived" if self.total is None else f"it has {self.total}"
            raise ValueError(f"a stream is said to end with {total} items, but {known}")
        self.total = total

    def _cut(self) -> Cut | None:
        if self.is_done:
            return None
        return self.policy.cut(
            self.handed, self.arrived, self.total is not None and self.arrived >= self.total
        )

    @property
    def has_next(self) -> bool:
        """Whether a helping is there."""
        return self._cut() is not None

    def next(self) -> Helping:
        """Hand over the next helping; only while ``has_next``."""
        cut = self._cut()
        assert cut is not None
        self._forget(cut.start)
        count = cut.stop - cut.start
        items = [self.items[index] for index in range(count)]
        self.handed += cut.fresh
        self.is_done = cut.last
        self._forget(self.policy.oldest(self.handed))
        return Helping(items, cut.start, cut.fresh, cut.last)

    def _forget(self, before: int) -> None:
        while self.first < before and self.items:
            self.items.popleft()
            self.first += 1
