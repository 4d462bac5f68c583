"""What a worker has run since it started: plain counts per method, for metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from walkserve.cache.pages import PagePool
from walkserve.messages import Held, Moved, Reported, Tallied
from walkserve.worker.room import Moves
from walkserve.worker.scheduler import Key, Work

ROWS_BUCKETS = 11
"""Batches of up to 1, 2, 4, … 512 rows, and all larger ones."""
TIME_BUCKETS = 18
"""Batches of up to 0.1, 0.2, 0.4, … 6,554 ms, and all longer ones."""
TIME_UNIT_NS = 100_000


class _Counts:
    """Of one method."""

    __slots__ = ("batches", "broken", "busy_ns", "rows", "rows_up_to", "spared", "time_up_to", "tokens")

    def __init__(self) -> None:
        self.batches = self.broken = self.rows = self.spared = self.tokens = self.busy_ns = 0
        self.rows_up_to = [0] * ROWS_BUCKETS
        self.time_up_to = [0] * TIME_BUCKETS


class Tally:
    """Counts batches as they are finished; costs about a microsecond each.

    A batch's time is from when it began to when its results were there, but never from before the one
    before it was done: on a device the next is begun early, and waits. So times add up to no more than
    the worker has lived.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self._counts = {key: _Counts() for key in keys}
        self._free_since = 0

    def ran(self, work: Work) -> None:
        """A batch is done; ``work`` says when it began and ended."""
        work.began_ns = max(work.began_ns, self._free_since)
        self._free_since = work.ended_ns
        took_ns = work.ended_ns - work.began_ns
        rows = len(work.calls)
        counts = self._counts[work.key]
        counts.batches += 1
        counts.rows += rows
        counts.tokens += sum(work.pieces)
        counts.busy_ns += took_ns
        counts.rows_up_to[min((rows - 1).bit_length(), ROWS_BUCKETS - 1)] += 1
        units = max(took_ns - 1, 0) // TIME_UNIT_NS
        counts.time_up_to[min(units.bit_length(), TIME_BUCKETS - 1)] += 1

    def broke(self, key: Key) -> None:
        """A batch raised."""
        self._counts[key].broken += 1

    def spared(self, key: Key) -> None:
        """A row was not run, as an equal one was."""
        self._counts[key].spared += 1

    def report(
        self, worker: str, address: str, moves: Mapping[str, Moves], pools: Mapping[str, PagePool]
    ) -> Reported:
        """All of it as it is now, the caches that have moved, and the pages that are held."""
        return Reported(
            worker,
            address,
            tuple(
                Tallied(
                    *key,
                    batches=counts.batches,
                    broken=counts.broken,
                    rows=counts.rows,
                    tokens=counts.tokens,
                    busy_ns=counts.busy_ns,
                    rows_up_to=tuple(counts.rows_up_to),
                    time_up_to=tuple(counts.time_up_to),
                    spared=counts.spared,
                )
                for key, counts in self._counts.items()
            ),
            tuple(
                Moved(
                    component,
                    caches_out=moved.caches_out,
                    caches_back=moved.caches_back,
                    pages_out=moved.pages_out,
                    pages_back=moved.pages_back,
                )
                for component, moved in moves.items()
            ),
            tuple(Held(component, pool.held, pool.most_held) for component, pool in pools.items()),
        )
