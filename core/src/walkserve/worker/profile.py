"""What a worker notes of one request while it runs, where profiles are on: each call, and what it moved."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from walkserve.messages import EdgeTotal, MethodTotal, Profiled, size_bytes
from walkserve.profiles.report import FLOW_FIELDS, STEP_FIELDS

if TYPE_CHECKING:
    from walkserve.engine.rows import RowResult
    from walkserve.worker.scheduler import Work
    from walkserve.worker.walk_run import Call

MOST_STEPS = 20_000
"""Calls of one request that are kept one by one; of later ones only totals are. The same of flows."""


class _Waits:
    """Of a call that has not run."""

    __slots__ = ("parked_ns", "queued_ns", "ready_ns", "stream", "stream_wait_ns")

    def __init__(self, now_ns: int) -> None:
        self.ready_ns = self.queued_ns = now_ns
        self.parked_ns = 0  # since when, while it is
        self.stream = -1  # that it waited for last
        self.stream_wait_ns = 0


class _Method:
    """What a method has cost."""

    __slots__ = (
        *("batch_wait_ns", "branch_wait_ns", "busy_ns", "calls", "cost_ns"),
        *("number", "rows", "stream_wait_ns", "tokens"),
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = self.rows = self.tokens = self.busy_ns = self.cost_ns = 0
        self.stream_wait_ns = self.branch_wait_ns = self.batch_wait_ns = 0


class _Edge:
    """What has gone over an edge, at one of its ends."""

    __slots__ = ("items", "number", "size_bytes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.items = self.size_bytes = 0


class RequestProfile:
    """One request in one worker.

    Args:
        clock: Nanoseconds of CLOCK_MONOTONIC.
        most: Calls, and flows, that are kept one by one.
    """

    def __init__(self, clock: Callable[[], int] = monotonic_ns, *, most: int = MOST_STEPS) -> None:
        self._clock = clock
        self._most = most
        self._waiting: dict[Call, _Waits] = {}
        self._methods: dict[tuple[str, str], _Method] = {}
        self._edges: dict[tuple[str, str, str, bool], _Edge] = {}
        self._tracks: dict[str, int] = {}
        self._streams: dict[str, int] = {}
        self._steps = array("q")
        self._flows = array("q")
        self._uncounted = 0
        self._last_began_ns = -1

    # --- a call waits -----------------------------------------------------------------------------

    def offered(self, call: Call) -> None:
        """Its values are there; said again when what it waited for may have come."""
        now = self._clock()
        waits = self._waiting.get(call)
        if waits is None:
            self._waiting[call] = _Waits(now)
        elif waits.parked_ns:
            waits.stream_wait_ns += now - waits.parked_ns
            waits.parked_ns = 0

    def parked(self, call: Call, stream: str) -> None:
        """It waits for a stream, to be read or to have room."""
        waits = self._waiting[call]
        waits.parked_ns = self._clock()
        waits.stream = _number(self._streams, stream)

    def queued(self, call: Call) -> None:
        """It waits for nothing but a batch."""
        self._waiting[call].queued_ns = self._clock()

    def forget(self, call: Call) -> None:
        """It will not be run."""
        self._waiting.pop(call, None)

    # --- a call runs ------------------------------------------------------------------------------

    def ran(self, call: Call, piece: int, work: Work, result: RowResult) -> None:
        """A batch with this call is done; said before what it gave is committed."""
        waits = self._waiting.pop(call, None) or _Waits(work.began_ns)
        method = self._methods.get(work.key)
        if method is None:
            method = self._methods[work.key] = _Method(len(self._methods))
        self._count(method, piece, work, waits)
        self._note(method, call, piece, work, waits)
        if call.run.is_closed or call.frame.is_dropped:
            return  # the extra turn of a loop that has stopped: computed, and thrown away
        if call.done + piece < call.tokens:
            self._waiting[call] = _Waits(work.ended_ns)  # the rest of it is queued at once
        else:
            self._move(call, work.ended_ns, waits, result)

    def spared(self, call: Call, result: RowResult) -> None:
        """It was not run, as an equal one was: it has cost nothing, and moved the same."""
        now = self._clock()
        self._move(call, now, self._waiting.pop(call), result)

    def _count(self, method: _Method, piece: int, work: Work, waits: _Waits) -> None:
        took_ns, rows = work.ended_ns - work.began_ns, len(work.calls)
        method.calls += 1
        method.rows += rows
        method.tokens += piece
        method.cost_ns += took_ns // rows
        if work.began_ns != self._last_began_ns:  # else the batch held another row of this request
            self._last_began_ns = work.began_ns
            method.busy_ns += took_ns
        method.stream_wait_ns += waits.stream_wait_ns
        method.branch_wait_ns += waits.queued_ns - waits.ready_ns - waits.stream_wait_ns
        method.batch_wait_ns += max(0, work.began_ns - waits.queued_ns)

    def _note(self, method: _Method, call: Call, piece: int, work: Work, waits: _Waits) -> None:
        if len(self._steps) >= self._most * len(STEP_FIELDS):
            self._uncounted += 1
            return
        run, rows = call.run, len(work.calls)
        track = _number(self._tracks, run.track)
        self._steps.extend((method.number, track, run.walk, call.frame.turn, piece, rows))
        self._steps.extend((waits.ready_ns, waits.queued_ns, work.began_ns, work.ended_ns))
        self._steps.extend((waits.stream, waits.stream_wait_ns))

    # --- what it moved ----------------------------------------------------------------------------

    def _move(self, call: Call, ended_ns: int, waits: _Waits, result: RowResult) -> None:
        op, gives = call.op, result.gives
        for stream, helping in zip(op.reads, call.helpings, strict=True):
            if helping.fresh:
                self._moved(("stream", stream, op.component, True), waits.queued_ns, helping.fresh, 0)
        if result.stop is not None and not result.stop.keep:
            return
        for name, stream in op.streams:
            if (value := gives.get(name)) is not None:
                self._moved(("stream", stream, op.component, False), ended_ns, 1, size_bytes(value))
        for name, output in op.outputs:
            if (value := gives.get(name)) is not None and output in call.run.live.opened.outputs:
                self._moved(("output", output, op.component, False), ended_ns, 1, size_bytes(value))

    def _moved(self, key: tuple[str, str, str, bool], at_ns: int, items: int, size: int) -> None:
        edge = self._edges.get(key)
        if edge is None:
            edge = self._edges[key] = _Edge(len(self._edges))
        edge.items += items
        edge.size_bytes += size
        if len(self._flows) < self._most * len(FLOW_FIELDS):
            self._flows.extend((edge.number, at_ns, items))

    # --- told -------------------------------------------------------------------------------------

    def told(self, tag: int, worker: str, address: str) -> Profiled:
        """All of it, when the request is let go of."""
        return Profiled(
            tag=tag,
            worker=worker,
            address=address,
            methods=tuple(
                MethodTotal(
                    *key,
                    calls=method.calls,
                    rows=method.rows,
                    tokens=method.tokens,
                    busy_ns=method.busy_ns,
                    cost_ns=method.cost_ns,
                    stream_wait_ns=method.stream_wait_ns,
                    branch_wait_ns=method.branch_wait_ns,
                    batch_wait_ns=method.batch_wait_ns,
                )
                for key, method in self._methods.items()
            ),
            edges=tuple(
                EdgeTotal(*key, items=edge.items, size_bytes=edge.size_bytes)
                for key, edge in self._edges.items()
            ),
            tracks=tuple(self._tracks),
            streams=tuple(self._streams),
            steps=_packed(self._steps),
            flows=_packed(self._flows),
            uncounted=self._uncounted,
        )


def _number(names: dict[str, int], name: str) -> int:
    return names.setdefault(name, len(names))


def _packed(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
