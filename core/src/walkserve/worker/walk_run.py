"""One traversal of a plan for one request: which node may run now, and what its result leads to.

A loop whose last node trails, three turns of it. The next turn waits for ``next`` alone, and ``decode``
follows in order; when ``decode`` of turn 1 says stop, that turn's values are discarded, and all that
turn 2 did meanwhile is undone::

    turn 0   next ── decode
    turn 1      next ┄┄┄┄┄┄┄ decode  stop!
    turn 2         next                       the loop's carry is turn 0's; the cache ends with turn 1

The run holds no engine and no socket. It tells its ``Host`` what has become ready, and is told by it what
a call gave. Calls become visible here only when their batch is finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from walkserve.graph.plan import Child, FanOp, LoopOp, Op, Plan
from walkserve.worker.fan_run import FanRow, FanRun
from walkserve.worker.frame import Frame
from walkserve_sdk.runtime import Stop

if TYPE_CHECKING:
    from walkserve.worker.live import Live


class Host(Protocol):
    """What a run needs of the worker around it."""

    def offer(self, call: Call) -> None:
        """This call's inputs are there; run it when its streams and its branch allow."""

    def forget(self, call: Call) -> None:
        """An offered call of a turn that no longer counts; it will not be run."""

    def push(self, run: WalkRun, stream: str, value: Any) -> None:
        """A committed turn wrote to a stream."""

    def emit(self, run: WalkRun, output: str, value: Any, index: int | None) -> None:
        """A committed turn gave an output; in a row of a Fan, the row's index says which."""

    def is_over(self, run: WalkRun, stream: str) -> bool:
        """Whether the stream's last helping was handed over before."""

    def stop_writer(self, run: WalkRun, stream: str, reason: str) -> None:
        """A reader wants its writer to stop."""

    def begin_fan(self, fan: FanRun) -> None:
        """Rows are about to start: they all go on from the branches as they are now."""

    def start_rows(self, fan: FanRun) -> list[FanRow]:
        """Start as many as there is room for, one at least if none runs; ``more_rows`` is called later."""

    def end_row(self, row: FanRow) -> None:
        """Nothing of this row counts any more."""

    def end_fan(self, fan: FanRun) -> None:
        """The same of the whole Fan; its rows are over."""

    def stack(self, values: list[Any]) -> Any:
        """What all rows gave, None from a row that gave nothing: one tensor if that can be, else a list."""

    def ended(self, run: WalkRun) -> None:
        """The run is over; read ``ended_by`` and ``results()``."""


class Call:
    """One node, ready to run once: a row of some batch to come."""

    __slots__ = ("arrival", "branch", "done", "frame", "helpings", "op", "run", "tokens", "values")

    def __init__(self, run: WalkRun, op: Op, frame: Frame) -> None:
        self.run = run
        self.op = op
        self.frame = frame
        slots = frame.slots
        self.values: dict[str, Any] = {name: slots[slot] for name, slot in op.takes}
        self.helpings: list[Any] = []
        self.branch: Any = None  # worker.live.Branch, once its turn on the branch has come
        self.tokens = 1  # of a cached component: how many in all
        self.done = 0  # and how many of them earlier pieces have brought into the cache
        self.arrival = 0


class LoopRun:
    """One loop of one frame while it turns."""

    __slots__ = (
        "base",
        "carried",
        "collected",
        "each",
        "ended_by",
        "frames",
        "is_over",
        "op",
        "outer",
        "queues",
        "streams",
        "times",
        "turns",
    )

    def __init__(self, op: LoopOp, outer: Frame) -> None:
        slots = outer.slots
        self.op = op
        self.outer = outer
        self.base: list[Any] = [None] * op.body.slots
        for source, target in op.imports:
            self.base[target] = slots[source]
        self.carried: list[Any] = [slots[source] for source, _ in op.carry_in]
        self.each: list[tuple[int, Sequence[Any]]] = [(target, slots[source]) for source, target in op.each]
        self.times: int | None = op.times if op.times_slot is None else int(slots[op.times_slot])
        self.collected: list[list[Any]] = [[] for _ in op.collect]
        self.turns = 0  # started
        self.frames: list[Frame] = []  # started and not finished, in order
        self.ended_by: str | None = None
        self.is_over = False
        self.streams = set(op.streams)  # read here and not at their end
        self.queues: dict[int, deque[Frame]] = {}  # trailing node -> frames it has still to run for, in order


class WalkRun:
    """A Walk while it happens.

    Args:
        live: The request it belongs to.
        track: Name of its track; ``walk`` counts the track's Walks from 0.
        most: Tokens that a branch of each cached component may come to; only of a graph with a Fan.
    """

    __slots__ = (
        "_todo",
        "counts",
        "emitted",
        "ended_by",
        "fans",
        "host",
        "is_closed",
        "live",
        "loops",
        "most",
        "plan",
        "sampled",
        "top",
        "track",
        "turns",
        "walk",
        "wrote",
    )

    def __init__(
        self,
        host: Host,
        live: Live,
        plan: Plan,
        track: str,
        walk: int,
        inputs: dict[str, Any],
        most: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.host = host
        self.live = live
        self.plan = plan
        self.track = track
        self.walk = walk
        self.ended_by = "end"
        self.turns = 0  # committed turns of all loops
        self.sampled = 0  # tokens drawn and kept
        self.counts: dict[str, int] = {}
        self.wrote: dict[str, int] = {}
        self.emitted: dict[str, int] = {}
        self.is_closed = False
        self.most = most
        self.loops: list[LoopRun] = []
        self.fans: list[FanRun] = []
        self._todo: deque[tuple[Frame, Child]] = deque()  # children whose waiting is over
        slots: list[Any] = [None] * plan.top.slots
        for name, slot in plan.inputs:
            slots[slot] = inputs[name]
        self.top = Frame(plan.top, slots, None, 0)

    def start(self) -> None:
        """Offer what waits for nothing."""
        self._begin(self.top)
        self._settle()

    def results(self) -> dict[str, Any]:
        """What the outcome holds, by name."""
        slots = self.top.slots
        return {name: slots[slot] for name, slot in self.plan.results if slots[slot] is not None}

    def finish(self, call: Call, gives: dict[str, Any], stop: Stop | None) -> None:
        """Commit one call: its values are seen, written, emitted, and what waited for them goes on."""
        frame, op = call.frame, call.op
        if self.is_closed or frame.is_dropped:
            return  # stopped while it ran: the extra turn is thrown away
        if stop is not None and stop.upstream:
            for stream in op.reads:
                self.host.stop_writer(self, stream, stop.reason)
        if stop is None or stop.keep:
            self._keep(op, frame, gives)
        if frame.loop is not None:
            self._finish_in_loop(call, frame.loop, stop)
        elif stop is not None and frame.row is not None:
            self._stop_row(op, frame.row, stop)
        elif stop is not None:
            self._end(stop.reason)
        else:
            self._done(frame, op)
        self._settle()

    def _keep(self, op: Op, frame: Frame, gives: dict[str, Any]) -> None:
        slots = frame.slots
        for name, slot in op.gives:
            slots[slot] = gives.get(name)
        for name, stream in op.streams:
            value = gives.get(name)
            if value is not None:
                self.wrote[stream] = self.wrote.get(stream, 0) + 1
                self.host.push(self, stream, value)
        row = frame.row
        index = None if row is None else row.index
        for name, output in op.outputs:
            value = gives.get(name)
            if value is not None:
                self.emitted[output] = self.emitted.get(output, 0) + 1
                self.host.emit(self, output, value, index)

    def _finish_in_loop(self, call: Call, loop: LoopRun, stop: Stop | None) -> None:
        frame, op = call.frame, call.op
        if not op.critical:
            loop.queues[op.index].popleft()
        if op.reads:
            for stream, helping in zip(op.reads, call.helpings, strict=True):
                if helping.last:
                    loop.streams.discard(stream)
            if not loop.streams and loop.ended_by is None:
                loop.ended_by = "stream"
        if stop is not None:
            self._stop_loop(loop, frame, stop)
        if not frame.is_dropped:
            self._done(frame, op)
        if loop.ended_by is not None:
            self._end_if_over(loop)
        if not op.critical:
            self._trail(loop, op)

    # --- going on ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Launch what has become ready, and what becomes ready by that; a list, so that nothing nests."""
        todo = self._todo
        while todo and not self.is_closed:
            frame, child = todo.popleft()
            if not frame.is_dropped:
                self._launch(frame, child)

    def _begin(self, frame: Frame) -> None:
        for index in frame.block.firsts:
            self._todo.append((frame, frame.block.children[index]))

    def _launch(self, frame: Frame, child: Child) -> None:
        if isinstance(child, Op):  # first: of all children that is what most are
            if frame.loop is not None and not child.critical:
                queue = frame.loop.queues.setdefault(child.index, deque())
                queue.append(frame)
                if len(queue) == 1:  # else an earlier turn of this node is still to run
                    self._trail(frame.loop, child)
            elif child.when is None or frame.slots[child.when]:
                self.host.offer(Call(self, child, frame))
            else:
                self._done(frame, child)
        elif isinstance(child, LoopOp):
            self._begin_loop(child, frame)
        else:
            self._begin_fan(child, frame)

    def _trail(self, loop: LoopRun, op: Op) -> None:
        """Offer a trailing node's next turn, if one has come as far."""
        queue = loop.queues[op.index]
        while queue and not self.is_closed:
            frame = queue[0]
            if not frame.is_dropped:
                if op.when is None or frame.slots[op.when]:
                    self.host.offer(Call(self, op, frame))
                    return
                self._done(frame, op)
            queue.popleft()

    def _done(self, frame: Frame, child: Child) -> None:
        """A child of this frame's block is complete, or skipped."""
        loop = frame.loop
        frame.left -= 1
        for one in child.after:
            frame.waits[one] -= 1
            if frame.waits[one] == 0:
                self._todo.append((frame, frame.block.children[one]))
        if loop is None:
            if frame.left == 0 and frame.row is not None:
                self._end_row(frame.row)
            elif frame.left == 0:
                self._end(self.ended_by)
            return
        if child.critical:
            frame.critical -= 1
            if frame.critical == 0:
                self._turn_over(loop, frame)
        if frame.left == 0:
            loop.frames.remove(frame)
            if loop.ended_by is not None:
                self._end_if_over(loop)

    # --- turns ------------------------------------------------------------------------------------

    def _begin_loop(self, op: LoopOp, outer: Frame) -> None:
        loop = LoopRun(op, outer)
        self.loops.append(loop)
        if op.streams:
            loop.streams = {stream for stream in op.streams if not self.host.is_over(self, stream)}
            if not loop.streams:
                loop.ended_by = "stream"  # an earlier Walk has had its last helping
        self._next_turn(loop)

    def _turn_over(self, loop: LoopRun, frame: Frame) -> None:
        """What the next turn waits for is there. A skipped node gives nothing, and what it would have given
        is carried on as it was."""
        slots = frame.slots
        if frame.undo is not None:
            frame.before = (loop.carried, [len(collected) for collected in loop.collected])
        carried = loop.carried.copy()
        for index, (source, _) in enumerate(loop.op.carry_next):
            if slots[source] is not None:
                carried[index] = slots[source]
        loop.carried = carried
        for index, (source, _) in enumerate(loop.op.collect):
            if slots[source] is not None:
                loop.collected[index].append(slots[source])
        self.turns += 1
        if loop.ended_by is None:
            self._next_turn(loop)

    def _next_turn(self, loop: LoopRun) -> None:
        turn = loop.turns
        if loop.ended_by is None:
            if loop.times is not None and turn >= loop.times:
                loop.ended_by = "times"
            elif loop.each and any(turn >= len(items) for _, items in loop.each):
                loop.ended_by = "each"
        if loop.ended_by is not None:
            self._end_if_over(loop)
            return
        slots = loop.base.copy()
        for index, (_, target) in enumerate(loop.op.carry_in):
            slots[target] = loop.carried[index]
        for target, items in loop.each:
            slots[target] = items[turn]
        loop.turns += 1
        frame = Frame(loop.op.body, slots, loop, turn, loop.outer.row)
        loop.frames.append(frame)
        self._begin(frame)

    def _stop_loop(self, loop: LoopRun, frame: Frame, stop: Stop) -> None:
        """No turn after this one counts; this one only if the stop keeps it, and then all of it.

        A node that trails learns of the end when later turns have run ahead: they are forgotten, with what
        they carried, collected and cached. What they wrote to streams stays written.
        """
        loop.ended_by = stop.reason
        first = frame.turn + 1 if stop.keep else frame.turn
        dropped = [one for one in loop.frames if one.turn >= first]
        ahead = [one for one in dropped if one.before is not None]
        if ahead and ahead[0].before is not None:
            loop.carried, lengths = ahead[0].before
            for collected, length in zip(loop.collected, lengths, strict=True):
                del collected[length:]
            self.turns -= len(ahead)
        for one in reversed(dropped):
            self._drop(one, undoes=one.turn > frame.turn)
            loop.frames.remove(one)

    def _drop(self, frame: Frame, *, undoes: bool) -> None:
        """The frame counts no more. What the stopping turn itself cached stays: it was computed in order."""
        frame.is_dropped = True
        for loop in [loop for loop in self.loops if loop.outer is frame]:
            for inner in reversed(loop.frames):
                self._drop(inner, undoes=undoes)
            loop.is_over = True
            self.loops.remove(loop)
        for fan in [fan for fan in self.fans if fan.outer is frame]:
            self._drop_fan(fan)
        for undo in reversed(frame.undo or ()) if undoes else ():
            undo()

    def _end_if_over(self, loop: LoopRun) -> None:
        if loop.ended_by is None or loop.frames or loop.is_over:
            return
        loop.is_over = True
        self.loops.remove(loop)
        outer = loop.outer
        if outer.row is None:
            self.ended_by = loop.ended_by
        else:
            outer.row.ended_by = loop.ended_by
        for (_, target), value in zip(loop.op.carry_out, loop.carried, strict=True):
            outer.slots[target] = value
        for (_, target), collected in zip(loop.op.collect, loop.collected, strict=True):
            outer.slots[target] = collected
        self._done(outer, loop.op)

    # --- rows -------------------------------------------------------------------------------------

    def more_rows(self, fan: FanRun) -> None:
        """There may be room for rows that waited for it."""
        self._start_rows(fan)
        self._settle()

    def drop_rows(self) -> None:
        """The Walk has come to its end, however that was: no row counts any more."""
        for fan in list(self.fans):
            self._drop_fan(fan)

    def _begin_fan(self, op: FanOp, outer: Frame) -> None:
        fan = FanRun(self, op, outer)
        self.fans.append(fan)
        self.host.begin_fan(fan)
        self._start_rows(fan)

    def _start_rows(self, fan: FanRun) -> None:
        for row in self.host.start_rows(fan):
            self._begin(row.frame)
        if fan.is_done:
            fan.give(self.host.stack)
            if fan.ended_by is not None:
                self.ended_by = fan.ended_by
            self._drop_fan(fan)
            self._done(fan.outer, fan.op)

    def _stop_row(self, op: Op, row: FanRow, stop: Stop) -> None:
        """Outside a loop a Stop ends its row: at once, or when all of it is done if it keeps that."""
        row.ended_by = stop.reason
        if stop.keep:
            self._done(row.frame, op)
        else:
            self._end_row(row)

    def _end_row(self, row: FanRow) -> None:
        fan = row.fan
        self._drop_row(row)
        self._start_rows(fan)

    def _drop_row(self, row: FanRow) -> None:
        """Its branches are its own, so there is nothing to undo."""
        self._drop(row.frame, undoes=False)
        row.fan.end_row(row)
        self.host.end_row(row)

    def _drop_fan(self, fan: FanRun) -> None:
        for row in list(fan.open):
            self._drop_row(row)
        self.fans.remove(fan)
        self.host.end_fan(fan)

    def _end(self, reason: str) -> None:
        self.ended_by = reason
        self.is_closed = True
        if self.fans:
            self.drop_rows()
        self.host.ended(self)
