"""Which calls form the next batch.

Calls wait in one queue per ``(component, method)``, so that any requests, Walks and branches share a
batch. First come, first served; rows of requests whose client has nothing yet go before others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from walkserve.worker.walk_run import Call

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a batch of one key may be.

    Args:
        rows: The most rows.
        tokens: The most tokens of a cached component; a single row that cannot be split may exceed it, alone.
        splits: Whether long rows may be given in pieces.
        tile: Pieces end at multiples of this absolute position; 0 lets them end anywhere.
    """

    rows: int = 64
    tokens: int = 512
    splits: bool = False
    tile: int = 0


@dataclass(slots=True)
class Work:
    """One batch: calls, and how many tokens of each are run now (1 for components without a cache)."""

    key: Key
    calls: list[Call]
    pieces: list[int]


class _Queue:
    __slots__ = ("later", "sooner")

    def __init__(self) -> None:
        self.sooner: deque[Call] = deque()  # their client has nothing yet
        self.later: deque[Call] = deque()

    def head(self) -> tuple[int, int] | None:
        """Sort key of the call to serve first: sooner before later, then by arrival."""
        if self.sooner:
            return (0, self.sooner[0].arrival)
        return (1, self.later[0].arrival) if self.later else None


class Scheduler:
    """Ready queues, kept as calls come and go; nothing rescans what lives."""

    def __init__(self, limits: Mapping[Key, Limits]) -> None:
        self.limits = limits
        self._queues: dict[Key, _Queue] = {key: _Queue() for key in limits}
        self._arrivals = 0
        self.waiting = 0

    def add(self, call: Call) -> None:
        """A call is ready."""
        self._arrivals += 1
        call.arrival = self._arrivals
        queue = self._queues[call.op.key]
        (queue.later if call.run.live.has_sent else queue.sooner).append(call)
        self.waiting += 1

    def choose(self) -> Work | None:
        """Take the next batch out of the queues; None when nothing is ready."""
        while True:
            key = self._first_key()
            if key is None:
                return None
            work = self._fill(key, self._queues[key], self.limits[key])
            if work.calls:
                return work

    def _first_key(self) -> Key | None:
        best: tuple[tuple[int, int], Key] | None = None
        for key, queue in self._queues.items():
            head = queue.head()
            if head is not None and (best is None or head < best[0]):
                best = (head, key)
        return best[1] if best else None

    def _fill(self, key: Key, queue: _Queue, limits: Limits) -> Work:
        """Short rows first, as they keep many streams going; long ones take what room is left."""
        short: list[Call] = []
        long: list[Call] = []
        rows, tokens = 0, 0
        for line in (queue.sooner, queue.later):
            left: list[Call] = []
            while line and rows < limits.rows:
                call = line.popleft()
                self.waiting -= 1
                if call.run.is_closed or call.frame.is_dropped:
                    call.run.host.forget(call)
                    continue
                need = call.tokens - call.done
                if need == 1:
                    if tokens + 1 > limits.tokens:
                        left.append(call)
                        break
                    short.append(call)
                    tokens += 1
                    rows += 1
                else:
                    long.append(call)
                    rows += 1
            for call in reversed(left):
                line.appendleft(call)
                self.waiting += 1
        pieces = [1] * len(short)
        taken = short
        too_long: list[Call] = []
        for call in long:
            piece = self._piece(call, limits, limits.tokens - tokens, alone=not taken)
            if piece == 0:
                too_long.append(call)
                continue
            taken.append(call)
            pieces.append(piece)
            tokens += piece
        for call in reversed(too_long):
            (queue.later if call.run.live.has_sent else queue.sooner).appendleft(call)
            self.waiting += 1
        return Work(key, taken, pieces)

    @staticmethod
    def _piece(call: Call, limits: Limits, room: int, *, alone: bool) -> int:
        """How many tokens of a long row fit; 0 for not now."""
        need = call.tokens - call.done
        if not limits.splits:
            return need if need <= room or alone else 0
        if limits.tile:  # the same cuts whatever else runs
            need = min(need, limits.tile - call.branch.table.length % limits.tile)
            return need if need <= room or alone else 0
        return max(0, min(need, room))
