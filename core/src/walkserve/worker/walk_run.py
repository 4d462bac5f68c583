"""One traversal of a plan for one request: which node may run now, and what its result leads to.

The run holds no engine and no socket. It tells its ``Host`` what has become ready, and is told by it what
a call gave. Calls become visible here only when their batch is finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from walkserve.graph.plan import Block, LoopOp, Op, Plan
from walkserve_sdk.runtime import Stop

if TYPE_CHECKING:
    from walkserve.worker.live import Live


DROPPED = -1


class Host(Protocol):
    """What a run needs of the worker around it."""

    def offer(self, call: Call) -> None:
        """This call's inputs are there; run it when its streams and its branch allow."""

    def forget(self, call: Call) -> None:
        """An offered call of a turn that no longer counts; it will not be run."""

    def push(self, run: WalkRun, stream: str, value: Any) -> None:
        """A committed turn wrote to a stream."""

    def emit(self, run: WalkRun, output: str, value: Any) -> None:
        """A committed turn gave an output."""

    def stop_writer(self, run: WalkRun, stream: str, reason: str) -> None:
        """A reader wants its writer to stop."""

    def ended(self, run: WalkRun) -> None:
        """The run is over; read ``ended_by`` and ``results()``."""


class Call:
    """One node, ready to run once: a row of some batch to come."""

    __slots__ = ("arrival", "branch", "done", "frame", "helpings", "op", "run", "tokens", "values")

    def __init__(self, run: WalkRun, op: Op, frame: Frame) -> None:
        self.run = run
        self.op = op
        self.frame = frame
        self.values: list[Any] = [frame.slots[slot] for _, slot in op.takes]
        self.helpings: list[Any] = []
        self.branch: Any = None  # worker.live.Branch, once its turn on the branch has come
        self.tokens = 1  # of a cached component: how many in all
        self.done = 0  # and how many of them earlier pieces have brought into the cache
        self.arrival = 0


class Frame:
    """One turn of one block."""

    __slots__ = ("critical", "left", "loop", "slots", "turn", "waits")

    def __init__(self, block: Block, slots: list[Any], loop: LoopRun | None, turn: int) -> None:
        self.slots = slots
        self.waits = block.waits.copy()
        self.left = len(block.children)
        self.critical = block.critical
        self.loop = loop
        self.turn = turn

    @property
    def is_dropped(self) -> bool:
        """Its loop had stopped before: nothing of this turn counts."""
        return self.left == DROPPED


class LoopRun:
    """One loop of one frame while it turns."""

    __slots__ = (
        "base",
        "carried",
        "collected",
        "each",
        "ended_by",
        "frames",
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
        self.streams = set(op.streams)  # read here and not at their end
        self.queues: dict[int, deque[Frame]] = {}  # trailing node -> frames it has still to run for, in order


class WalkRun:
    """A Walk while it happens.

    Args:
        live: The request it belongs to.
        track: Name of its track; ``walk`` counts the track's Walks from 0.
    """

    __slots__ = (
        "counts",
        "emitted",
        "ended_by",
        "host",
        "is_closed",
        "live",
        "loops",
        "plan",
        "top",
        "track",
        "turns",
        "walk",
        "wrote",
    )

    def __init__(
        self, host: Host, live: Live, plan: Plan, track: str, walk: int, inputs: dict[str, Any]
    ) -> None:
        self.host = host
        self.live = live
        self.plan = plan
        self.track = track
        self.walk = walk
        self.ended_by = "end"
        self.turns = 0  # committed turns of all loops
        self.counts: dict[str, int] = {}
        self.wrote: dict[str, int] = {}
        self.emitted: dict[str, int] = {}
        self.is_closed = False
        self.loops: list[LoopRun] = []
        slots: list[Any] = [None] * plan.top.slots
        for name, slot in plan.inputs:
            slots[slot] = inputs[name]
        self.top = Frame(plan.top, slots, None, 0)

    def start(self) -> None:
        """Offer what waits for nothing."""
        for index in self.plan.top.firsts:
            self._launch(self.top, self.plan.top, index)

    def results(self) -> dict[str, Any]:
        """What the outcome holds, by name."""
        return {
            name: self.top.slots[slot] for name, slot in self.plan.results if self.top.slots[slot] is not None
        }

    def finish(self, call: Call, gives: dict[str, Any], stop: Stop | None) -> None:
        """Commit one call: its values are seen, written, emitted, and what waited for them goes on."""
        frame, op, loop = call.frame, call.op, call.frame.loop
        if self.is_closed or frame.is_dropped:
            return  # stopped while it ran: the extra turn is thrown away
        if stop is not None and stop.upstream:
            for stream in op.reads:
                self.host.stop_writer(self, stream, stop.reason)
        if stop is None or stop.keep:
            self._keep(op, frame, gives)
        if loop is None:
            if stop is not None:
                self._end(stop.reason)
            else:
                self._done(frame, self.plan.top, op.index)
            return
        if not op.critical:
            loop.queues[op.index].popleft()
        for stream, helping in zip(op.reads, call.helpings, strict=True):
            if helping.last:
                loop.streams.discard(stream)
        if op.reads and not loop.streams and loop.ended_by is None:
            loop.ended_by = "stream"
        if stop is not None:
            self._stop_loop(loop, frame, stop)
        if not frame.is_dropped:
            self._done(frame, loop.op.body, op.index)
        self._maybe_loop_end(loop)
        if not op.critical and not self.is_closed:
            self._trail(loop, op)

    def _keep(self, op: Op, frame: Frame, gives: dict[str, Any]) -> None:
        for name, slot in op.gives:
            frame.slots[slot] = gives.get(name)
        for name, stream in op.streams:
            if gives.get(name) is not None:
                self.wrote[stream] = self.wrote.get(stream, 0) + 1
                self.host.push(self, stream, gives[name])
        for name, output in op.outputs:
            if gives.get(name) is not None:
                self.emitted[output] = self.emitted.get(output, 0) + 1
                self.host.emit(self, output, gives[name])

    # --- going on ---------------------------------------------------------------------------------

    def _launch(self, frame: Frame, block: Block, index: int) -> None:
        child = block.children[index]
        if isinstance(child, LoopOp):
            loop = LoopRun(child, frame)
            self.loops.append(loop)
            self._next_turn(loop)
            return
        if frame.loop is not None and not child.critical:
            queue = frame.loop.queues.setdefault(index, deque())
            queue.append(frame)
            if len(queue) > 1:
                return  # an earlier turn of this node is still to run
        self._offer(frame, block, child)

    def _trail(self, loop: LoopRun, op: Op) -> None:
        queue = loop.queues[op.index]
        if queue:
            self._offer(queue[0], loop.op.body, op)

    def _offer(self, frame: Frame, block: Block, op: Op) -> None:
        if op.when is not None and not frame.slots[op.when]:
            if frame.loop is not None and not op.critical:
                frame.loop.queues[op.index].popleft()
            self._done(frame, block, op.index)
            return
        self.host.offer(Call(self, op, frame))

    def _done(self, frame: Frame, block: Block, index: int) -> None:
        """Child ``index`` of this frame is complete."""
        child = block.children[index]
        frame.left -= 1
        waits = frame.waits
        for one in child.after:
            waits[one] -= 1
            if waits[one] == 0:
                self._launch(frame, block, one)
        loop = frame.loop
        if loop is None:
            if frame.left == 0:
                self._end(self.ended_by)
            return
        if child.critical:
            frame.critical -= 1
            if frame.critical == 0:
                self._turn_over(loop, frame)
        if frame.left == 0:
            loop.frames.remove(frame)
            self._maybe_loop_end(loop)

    # --- turns ------------------------------------------------------------------------------------

    def _turn_over(self, loop: LoopRun, frame: Frame) -> None:
        """What the next turn waits for is there."""
        slots = frame.slots
        loop.carried = [slots[source] for source, _ in loop.op.carry_next]
        for (source, _), collected in zip(loop.op.collect, loop.collected, strict=True):
            collected.append(slots[source])
        self.turns += 1
        if loop.ended_by is None:
            self._next_turn(loop)

    def _next_turn(self, loop: LoopRun) -> None:
        turn = loop.turns
        if loop.times is not None and turn >= loop.times:
            loop.ended_by = "times"
        elif any(turn >= len(items) for _, items in loop.each):
            loop.ended_by = "each"
        if loop.ended_by is not None:
            self._maybe_loop_end(loop)
            return
        slots = loop.base.copy()
        for (_, target), value in zip(loop.op.carry_in, loop.carried, strict=True):
            slots[target] = value
        for target, items in loop.each:
            slots[target] = items[turn]
        loop.turns += 1
        block = loop.op.body
        frame = Frame(block, slots, loop, turn)
        loop.frames.append(frame)
        for index in block.firsts:
            self._launch(frame, block, index)

    def _stop_loop(self, loop: LoopRun, frame: Frame, stop: Stop) -> None:
        """No turn after this one counts; this one only if the stop keeps it, and then all of it."""
        loop.ended_by = stop.reason
        first_dropped = frame.turn + 1 if stop.keep else frame.turn
        for one in [one for one in loop.frames if one.turn >= first_dropped]:
            one.left = DROPPED
            loop.frames.remove(one)

    def _maybe_loop_end(self, loop: LoopRun) -> None:
        if loop.ended_by is None or loop.frames or loop not in self.loops:
            return
        self.loops.remove(loop)
        self.ended_by = loop.ended_by
        outer = loop.outer
        for (_, target), value in zip(loop.op.carry_out, loop.carried, strict=True):
            outer.slots[target] = value
        for (_, target), collected in zip(loop.op.collect, loop.collected, strict=True):
            outer.slots[target] = collected
        block = self.plan.top if outer.loop is None else outer.loop.op.body
        self._done(outer, block, loop.op.index)

    def stop_loops_writing(self, stream: str, reason: str) -> None:
        """A reader asked, upstream, that whatever writes ``stream`` stop."""
        for loop in list(self.loops):
            if loop.ended_by is None and any(
                name == stream
                for child in loop.op.body.children
                if isinstance(child, Op)
                for _, name in child.streams
            ):
                loop.ended_by = reason

    def _end(self, reason: str) -> None:
        self.ended_by = reason
        self.is_closed = True
        self.host.ended(self)
