"""When requests must have ended, and clients written: the conductor's one clock.

Nothing follows from it but ``expire`` and ``was_silent``.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from time import monotonic

from walkserve.conductor.state import ConductorState

LONGEST_S = 3600.0
"""To wait at a time: what a request may ask for is more than some clocks can wait."""
_SPARE = 256
_BRIEFEST_S = 0.001


class Deadlines:
    """Watches over the requests of one conductor.

    Args:
        clock: Seconds, of a clock that is never set.
    """

    def __init__(self, state: ConductorState, clock: Callable[[], float] = monotonic) -> None:
        self._state = state
        self._clock = clock
        self._ends: list[tuple[float, int]] = []  # a heap; requests that have ended stay in it for a while
        self._heard: dict[
            int, float
        ] = {}  # request whose client writes -> when something was last heard of it
        self._looks: list[tuple[float, int]] = []  # a heap, of each of these once: when to look at it

    def __len__(self) -> int:
        return len(self._ends) + len(self._looks)

    def keep(self) -> None:
        """Note what was accepted, and expire what has had its time. Called whenever something was heard."""
        lives = self._state.lives
        if lives.due or self._ends:
            self._keep_deadlines(self._clock())
        if lives.touched or self._looks:
            self._keep_silence(self._clock())

    def _keep_deadlines(self, now: float) -> None:
        lives = self._state.lives
        for number, within_s in lives.due:
            heappush(self._ends, (now + within_s, number))
        lives.due.clear()
        if len(self._ends) > 2 * len(lives) + _SPARE:  # a long deadline outlives most of its requests
            self._ends = [end for end in self._ends if end[1] in lives]
            heapify(self._ends)
        while self._ends and self._ends[0][0] <= now:
            self._state.expire(heappop(self._ends)[1])

    def _keep_silence(self, now: float) -> None:
        lives = self._state.lives
        for number in lives.touched:
            if number not in self._heard:
                heappush(self._looks, (now, number))
            self._heard[number] = now
        lives.touched.clear()
        if len(self._looks) > 2 * len(lives) + _SPARE:
            self._heard = {number: at for number, at in self._heard.items() if number in lives}
            self._looks = [look for look in self._looks if look[1] in lives]
            heapify(self._looks)
        while self._looks and self._looks[0][0] <= now:
            number = heappop(self._looks)[1]
            within_s = lives.may_be_silent_s(number)
            if within_s is None:
                del self._heard[number]
                continue
            due = self._heard[number] + within_s
            if due <= now:
                self._state.was_silent(number)
                due = now + within_s
            heappush(self._looks, (max(due, now + _BRIEFEST_S), number))

    def wait_s(self) -> float | None:
        """How long nothing has to be done; None for as long as nothing is heard."""
        while self._ends and self._ends[0][1] not in self._state.lives:
            heappop(self._ends)
        while self._looks and self._looks[0][1] not in self._state.lives:
            del self._heard[heappop(self._looks)[1]]
        nearest = [heap[0][0] for heap in (self._ends, self._looks) if heap]
        if not nearest:
            return None
        return min(max(0.0, min(nearest) - self._clock()), LONGEST_S)
