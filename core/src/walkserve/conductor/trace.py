"""What the conductor notes of one request, where profiles are on: what happened when, and each Walk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns

from msgspec.structs import replace

from walkserve.messages import Traced, Value, WalkBroke, WalkEnded, WalkTime, size_bytes

MOST_WALKS = 10_000
"""Of one request that are kept; of later ones nothing is."""


class Trace:
    """One request in the conductor. The only thing here that has a clock, and nothing follows from it.

    Args:
        workers: Addresses of those that will say ``Profiled``.
        clock: Nanoseconds of CLOCK_MONOTONIC.
    """

    def __init__(self, workers: Sequence[str], clock: Callable[[], int] = monotonic_ns) -> None:
        self._workers = tuple(workers)
        self._clock = clock
        self._marks = [("submitted", clock())]
        self._walks: dict[tuple[str, int], WalkTime] = {}

    def mark(self, what: str) -> None:
        """``what`` has happened now."""
        self._marks.append((what, self._clock()))

    def walk_started(
        self, track: str, walk: int, graph: str, worker: str, inputs: Mapping[str, Value]
    ) -> None:
        """A worker was told to."""
        if len(self._walks) < MOST_WALKS:
            self._walks[track, walk] = WalkTime(
                track=track,
                walk=walk,
                graph=graph,
                worker=worker,
                began_ns=self._clock(),
                ended_ns=0,
                ended_by="",
                turns=0,
                bytes_in=size_bytes(list(inputs.values())),
                bytes_out=0,
            )

    def walk_ended(self, message: WalkEnded | WalkBroke) -> None:
        """A worker said so."""
        walk = self._walks.get((message.track, message.walk))
        if walk is None:
            return
        now = self._clock()
        if isinstance(message, WalkEnded):
            self._walks[message.track, message.walk] = replace(
                walk,
                ended_ns=now,
                ended_by=message.ended_by,
                turns=message.turns,
                bytes_out=size_bytes(list(message.values.values())),
            )
        else:
            self._walks[message.track, message.walk] = replace(walk, ended_ns=now, ended_by="failed")

    def told(self, tag: int) -> Traced:
        """All of it, when the request ends or is given up."""
        if self._marks[-1][0] not in ("ended", "failed"):
            self.mark("cancelled")
        return Traced(tag, self._workers, tuple(self._marks), tuple(self._walks.values()))
