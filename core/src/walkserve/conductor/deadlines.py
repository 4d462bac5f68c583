"""When requests must have ended: the conductor's one clock, from which nothing follows but ``expire``."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from time import monotonic

from walkserve.conductor.state import ConductorState

LONGEST_S = 3600.0
"""To wait at a time: what a request may ask for is more than some clocks can wait."""
_SPARE = 256


class Deadlines:
    """Watches over the requests of one conductor.

    Args:
        clock: Seconds, of a clock that is never set.
    """

    def __init__(self, state: ConductorState, clock: Callable[[], float] = monotonic) -> None:
        self._state = state
        self._clock = clock
        self._ends: list[tuple[float, int]] = []  # a heap; requests that have ended stay in it for a while

    def __len__(self) -> int:
        return len(self._ends)

    def keep(self) -> None:
        """Note what was accepted, and expire what has had its time. Called whenever something was heard."""
        lives = self._state.lives
        if not lives.due and not self._ends:
            return
        now = self._clock()
        for number, within_s in lives.due:
            heappush(self._ends, (now + within_s, number))
        lives.due.clear()
        if len(self._ends) > 2 * len(lives) + _SPARE:  # a long deadline outlives most of its requests
            self._ends = [end for end in self._ends if end[1] in lives]
            heapify(self._ends)
        while self._ends and self._ends[0][0] <= now:
            self._state.expire(heappop(self._ends)[1])

    def wait_s(self) -> float | None:
        """How long nothing has to be done; None for as long as nothing is heard."""
        while self._ends and self._ends[0][1] not in self._state.lives:
            heappop(self._ends)
        if not self._ends:
            return None
        return min(max(0.0, self._ends[0][0] - self._clock()), LONGEST_S)
