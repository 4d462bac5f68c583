"""Which calls form the next batch.

Calls wait by ``(component, method)``, so that any requests, Walks and branches share a batch. The key whose
oldest call has waited longest is served, so that no component stands still for another. Within a batch,
rows of one token go before long ones, rows whose client has nothing yet before others, and otherwise first
come, first served; who has been passed too often goes before all of them.

Rows of one token are limited in number alone, long ones in tokens: how many depends on whether a row waits,
or has just run, whose client has something already and would notice a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from walkserve.worker.budget import TokenBudget
from walkserve.worker.live import Live
from walkserve.worker.walk_run import Call

Key = tuple[str, str]

PATIENCE = 128
"""Calls that may come after one before it goes first, whatever the others are: nothing starves."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a batch of one key may be.

    Args:
        rows: The most rows.
        tokens: The most tokens of long rows; a single row that cannot be split may exceed it, alone.
        splits: Whether long rows may be given in pieces.
        tile: Pieces end at multiples of this absolute position; 0 lets them end anywhere.
        beside: What takes the place of ``tokens`` where a client would notice a gap.
    """

    rows: int = 64
    tokens: int = 512
    splits: bool = False
    tile: int = 0
    beside: TokenBudget | None = None


@dataclass(slots=True)
class Work:
    """One batch: calls, and how many tokens of each are run now (1 for components without a cache).

    Whoever runs it notes when: nanoseconds of CLOCK_MONOTONIC.
    """

    key: Key
    calls: list[Call]
    pieces: list[int]
    began_ns: int = field(default=0, compare=False)
    ended_ns: int = field(default=0, compare=False)


class _Line:
    """Calls in order of arrival: those whose client has nothing yet, and the others."""

    __slots__ = ("later", "sooner")

    def __init__(self) -> None:
        self.sooner: deque[Call] = deque()
        self.later: deque[Call] = deque()

    def next(self, overdue: int) -> deque[Call] | None:
        """The deque whose head comes first."""
        if not self.later:
            return self.sooner or None
        if not self.sooner or self.sooner[0].arrival > self.later[0].arrival <= overdue:
            return self.later
        return self.sooner


class _Queue:
    """Calls of one key, by whether they bring one token or several."""

    __slots__ = ("deques", "long", "short")

    def __init__(self) -> None:
        self.short = _Line()
        self.long = _Line()
        self.deques = (self.short.sooner, self.short.later, self.long.sooner, self.long.later)

    def of(self, call: Call) -> deque[Call]:
        """Where a call stands, or will."""
        line = self.short if call.tokens - call.done == 1 else self.long
        return line.later if call.run.live.has_sent else line.sooner


class Scheduler:
    """Ready queues, kept as calls come and go; nothing rescans what lives."""

    def __init__(self, limits: Mapping[Key, Limits]) -> None:
        self.limits = dict(limits)
        self._queues: dict[Key, _Queue] = {key: _Queue() for key in limits}
        self._arrivals = 0
        self._someone_ran = False  # the last batch had a row whose client has something already
        self.waiting = 0

    def add(self, call: Call) -> None:
        """A call is ready."""
        self._arrivals += 1
        call.arrival = self._arrivals
        self._queues[call.op.key].of(call).append(call)
        self.waiting += 1

    def put_back(self, call: Call) -> None:
        """A piece of it was run, or it had to wait for room in the cache; it keeps its place."""
        self._queues[call.op.key].of(call).appendleft(call)
        self.waiting += 1

    def holds(self, live: Live) -> bool:
        """Whether a call of this request waits here, be it one that counts no more; it looks at them all."""
        lines = (line for queue in self._queues.values() for line in queue.deques)
        return any(call.run.live is live for line in lines for call in line)

    def wrong(self) -> list[str]:
        """What contradicts itself here."""
        there = sum(len(line) for queue in self._queues.values() for line in queue.deques)
        return [] if there == self.waiting else [f"{there} calls are queued, but {self.waiting} are counted"]

    def choose(self) -> Work | None:
        """Take the next batch out of the queues; None when nothing is ready."""
        if not self.waiting:
            return None
        oldest: tuple[int, Key] | None = None
        for key, queue in self._queues.items():
            for line in queue.deques:
                if line:
                    self._forget_dead(line)
                if line and (oldest is None or line[0].arrival < oldest[0]):
                    oldest = (line[0].arrival, key)
        return self._fill(oldest[1]) if oldest is not None else None

    def _forget_dead(self, line: deque[Call]) -> None:
        """Take calls that count no more from the head."""
        while line and (line[0].run.is_closed or line[0].frame.is_dropped):
            call = line.popleft()
            self.waiting -= 1
            call.run.host.forget(call)

    def _fill(self, key: Key) -> Work:
        """Short rows first, as they keep many streams going; long ones take the tokens that are theirs."""
        queue, work, overdue = self._queues[key], Work(key, [], []), self._arrivals - PATIENCE
        first = queue.long.next(overdue)
        used, listening = 0, len(queue.short.later)
        is_tight = first is not None and self._someone_listens()
        if first is not None and first[0].arrival <= overdue:  # it has waited long enough for room
            used = self._take_long(queue.long, work, overdue, 0, is_tight=is_tight, most=1)
            if used > self.limits[key].tokens:
                return work
        self._take_short(queue.short, work, overdue)
        self._someone_ran = len(queue.short.later) < listening
        if first is not None:
            self._take_long(queue.long, work, overdue, used, is_tight=is_tight)
        return work

    def _someone_listens(self) -> bool:
        """Whether a row waits, of whatever method, or may still run, whose client has something already."""
        return self._someone_ran or any(queue.short.later for queue in self._queues.values())

    def _take_short(self, line: _Line, work: Work, overdue: int) -> None:
        """Move calls of one token into the batch while there are rows."""
        rows, calls = self.limits[work.key].rows, work.calls
        while len(calls) < rows and (source := line.next(overdue)) is not None:
            # with nobody in the other line, nobody has to be asked who comes first
            most = 1 if line.sooner and line.later else min(len(source), rows - len(calls))
            for _ in range(most):
                call = source.popleft()
                self.waiting -= 1
                if call.run.is_closed or call.frame.is_dropped:
                    call.run.host.forget(call)
                else:
                    calls.append(call)
        work.pieces += [1] * (len(calls) - len(work.pieces))

    def _take_long(
        self, line: _Line, work: Work, overdue: int, used: int, *, is_tight: bool, most: int | None = None
    ) -> int:
        """Move long calls into the batch while they fit, ``most`` of them at most; how many tokens it has
        of such calls then."""
        limits = self.limits[work.key]
        beside = limits.beside if is_tight else None
        rows = limits.rows if most is None else min(limits.rows, len(work.calls) + most)
        while len(work.calls) < rows and (source := line.next(overdue)) is not None:
            call = source[0]
            if call.run.is_closed or call.frame.is_dropped:
                self._forget_dead(source)
                continue
            tokens = limits.tokens if beside is None else beside.at(call.branch.table.length)
            piece = _piece(call, limits, tokens - used, is_alone=not work.calls)
            if piece == 0:
                break
            source.popleft()
            self.waiting -= 1
            used += piece
            work.calls.append(call)
            work.pieces.append(piece)
        return used


def _piece(call: Call, limits: Limits, room: int, *, is_alone: bool) -> int:
    """How many tokens of a row fit now; 0 for none."""
    need = call.tokens - call.done
    if need > 1 and limits.splits:
        if limits.tile:  # the same cuts whatever else runs
            need = min(need, limits.tile - call.branch.table.length % limits.tile)
        else:
            need = min(need, max(room, 0))
    return need if need <= room or is_alone else 0
