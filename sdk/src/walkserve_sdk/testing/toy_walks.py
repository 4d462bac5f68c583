"""One Walk in the toy runtime: a generator over its graph that rests after every call.

Parts of a Parallel and rows of a Fan run one after the other, in the order they are written: none sees
what another gives, so that is one of the orders a real runtime may choose.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from walkserve_sdk.errors import ComponentError, WalkFailed, WalkserveError
from walkserve_sdk.graph import Fan, Loop, Node, Parallel, Part, Walk
from walkserve_sdk.runtime import Stop
from walkserve_sdk.stalls import StreamWait
from walkserve_sdk.streams import Helping, Stream
from walkserve_sdk.testing.toy_branches import Branches
from walkserve_sdk.testing.toy_calls import ToyCall, added_tokens
from walkserve_sdk.testing.toy_plans import MOST_TURNS, Asked, LoopPlan, Plans, given_names
from walkserve_sdk.testing.toy_result import FanItem, ToyResult, ToyStep
from walkserve_sdk.testing.toy_streams import ToyStream
from walkserve_sdk.tracks import Outcome

Values = dict[str, Any]
Walking = Generator["StreamWait | None", None, Values]
"""Yields None after a call, or what the Walk waits for."""


@dataclass
class ToyLive:
    """What all Walks of one request share."""

    plans: Plans
    options: Any
    seed: int
    streams: dict[str, ToyStream]
    result: ToyResult
    counts: dict[str, int]
    branches: Branches = field(default_factory=Branches)
    called: int = 0


@dataclass
class Turn:
    """The turn of the innermost loop; of the whole Walk, or of a Fan's row, where there is none."""

    index: int = 0
    stop: Stop | None = None

    @property
    def is_cut_short(self) -> bool:
        """Whether the rest of the turn is not run. A Stop that keeps lets it come to its end."""
        return self.stop is not None and not self.stop.keep


class ToyWalk:
    """One traversal of one graph.

    Args:
        track: Whose Walk it is, and ``number`` which of that track's.
    """

    def __init__(self, live: ToyLive, track: str, number: int) -> None:
        self.live = live
        self.track = track
        self.number = number
        self.branches = live.branches
        self.row: int | None = None
        self.turn = Turn()
        self.turns = 0
        self.ended_by = "end"

    def run(self, walk: Walk) -> Generator[StreamWait | None, None, Outcome]:
        """Walk it. Raises WalkFailed."""
        self.live.result.steps.append(ToyStep(self.track, walk.graph.name, dict(walk.inputs)))
        given = yield from self._sequence(walk.graph.parts, dict(walk.inputs))
        if self.turn.stop is not None:
            self.ended_by = self.turn.stop.reason
        if walk.graph.gives is not None:
            given = {name: given[name] for name in walk.graph.gives if name in given}
        return Outcome(given, self.ended_by, self.turns)

    # --- arrangements: each returns what it gives, none changes the scope it is handed ------------

    def _part(self, part: Part, scope: Values) -> Walking:
        match part:
            case Node():
                return self._node(part, scope)
            case Loop():
                return self._loop(part, scope)
            case Parallel():
                return self._parallel(part, scope)
            case Fan():
                return self._fan(part, scope)
            case _:
                return self._sequence(part.parts, dict(scope))

    def _sequence(self, parts: Iterable[Part], scope: Values) -> Walking:
        given: Values = {}
        for part in parts:
            got = yield from self._part(part, scope)
            scope.update(got)
            given.update(got)
            if self.turn.is_cut_short:
                break
        return given

    def _parallel(self, part: Parallel, scope: Values) -> Walking:
        given: Values = {}
        computed: list[Computed] = []
        for child in part.parts:
            if isinstance(child, Node):
                given.update((yield from self._node(child, scope, computed)))
            else:
                given.update((yield from self._part(child, scope)))
        return given

    def _loop(self, loop: Loop, scope: Values) -> Walking:
        plan = self.live.plans.loop(loop)
        carried = {name: scope[name] for name in loop.carry if name in scope}
        collected: dict[str, list[Any]] = {name: [] for name in loop.collect}
        eaches = {name: self.live.plans.items(scope.get(source)) for name, source in loop.each.items()}
        times = self.live.plans.times(loop, scope)
        alone = loop.parts[0] if len(loop.parts) == 1 else None  # most loops: one generator less
        outer, index = self.turn, 0
        ended_by = self._why_over(plan, 0, times, eaches)
        while ended_by is None:
            self.turn = turn = Turn(index)
            inside = {**scope, **carried}
            for name, items in eaches.items():
                inside[name] = items[index]
            given = yield from (self._part(alone, inside) if alone else self._sequence(loop.parts, inside))
            if not turn.is_cut_short:
                self.turns += 1
                carried.update((name, given[name]) for name in loop.carry if name in given)
                for name, source in loop.collect.items():
                    if source in given:
                        collected[name].append(given[source])
            index += 1
            stop = turn.stop
            ended_by = self._why_over(plan, index, times, eaches) if stop is None else stop.reason
        self.turn = outer
        self.ended_by = ended_by
        return {**carried, **collected}

    def _why_over(
        self, plan: LoopPlan, index: int, times: int | None, eaches: dict[str, Sequence[Any]]
    ) -> str | None:
        """Why turn ``index`` does not start, None if it does."""
        streams = self.live.streams
        for name in plan.writes:
            if (reason := streams[name].stopped) is not None:
                return reason
        if plan.reads and all(streams[name].is_done for name in plan.reads):
            return "stream"
        if times is not None and index >= times:
            return "times"
        for items in eaches.values():
            if index >= len(items):
                return "each"
        if plan.most is not None and index >= plan.most:
            return "stop"
        if index >= MOST_TURNS and times is None and not eaches and not plan.reads:
            raise WalkFailed(f"a loop did not end in {MOST_TURNS} turns; no fake in it says stop")
        return None

    def _fan(self, fan: Fan, scope: Values) -> Walking:
        slices = {name: self.live.plans.items(scope.get(source)) for name, source in fan.over.items()}
        widths = {len(items) for items in slices.values()}
        if len(widths) > 1:
            told = ", ".join(f"{source!r} has {len(slices[name])}" for name, source in fan.over.items())
            raise WalkFailed(f"a Fan over inputs of different lengths: {told}")
        outer, branches, rows = self.turn, self.branches, []
        for row in range(widths.pop()):
            self.row, self.turn, self.branches = row, Turn(outer.index), branches.for_row()
            inside = {**scope, **{name: items[row] for name, items in slices.items()}}
            rows.append((yield from self._part(fan.parts[0], inside)))
            if self.turn.stop is not None:
                self.ended_by = self.turn.stop.reason
        self.row, self.turn, self.branches = None, outer, branches
        return {name: [row.get(name) for row in rows] for name in given_names(fan.parts[0])}

    # --- a call -----------------------------------------------------------------------------------

    def _node(self, node: Node, scope: Values, siblings: list[Computed] | None = None) -> Walking:
        if node.when is not None and not scope.get(node.when):
            return {}
        live = self.live
        plan = live.plans.node(node)
        while plan.streams and (waits := self._waits_for(node, plan.writes)) is not None:
            yield waits
        values: Values = {name: scope.get(name) for name in node.takes}
        helping: Helping | None = None
        for stream in node.reads:
            helping = values[stream.name] = live.streams[stream.name].take()
        branch = self.branches.get(plan.component, node.branch)
        call = ToyCall(values, helping, branch, node.branch, self.turn.index, self.row, self)
        live.called += 1
        label = plan.label if self.row is None else f"{plan.label}[{self.row}]"
        live.result.steps.append(ToyStep(self.track, label, values))
        equal = None
        if siblings is not None and plan.is_pure:
            equal = next((one for one in siblings if one.equals(node, call)), None)
        if equal is not None:
            live.result.shared += 1
            gives = equal.as_of(node, call)
        else:
            gives = self._ask(plan.ask, plan.place, call)
            if siblings is not None and plan.is_pure:
                siblings.append(Computed(node, call, gives))
        if plan.keeps:
            length = branch.length + (added_tokens(call) if plan.is_cached else 0)
            self.branches.keep(plan.component, node.branch, length, call.state)
        if call._stop is not None:
            self._stop(node, plan.place, call._stop)
            if not call._stop.keep:
                gives = {}
        if gives:
            self._send(node, gives)
        yield None
        return dict(gives)

    def _waits_for(self, node: Node, writes: tuple[str, ...]) -> StreamWait | None:
        for stream in node.reads:
            if not self.live.streams[stream.name].is_ready:
                return StreamWait(self.track, stream.name, for_room=False)
        for name in writes:
            if not self.live.streams[name].has_room:
                return StreamWait(self.track, name, for_room=True)
        return None

    def _ask(self, ask: Asked, place: str, call: ToyCall) -> Mapping[str, Any]:
        try:
            return ask(call)
        except (WalkFailed, AssertionError):
            raise  # said so itself, or a test's own claim that must not be caught by a track
        except WalkserveError as wrong:
            raise WalkFailed(f"{place}: {wrong}", blame=wrong.type, status=wrong.status) from wrong
        except Exception as wrong:  # whatever the fake does, it fails the Walk and nothing else
            raise WalkFailed(f"{place}: {type(wrong).__name__}: {wrong}") from wrong

    def _stop(self, node: Node, place: str, stop: Stop) -> None:
        if self.turn.stop is None or (self.turn.stop.keep and not stop.keep):
            self.turn.stop = stop
        if stop.upstream:
            if not node.reads:
                wrong = ComponentError(f"{place} says Stop(upstream=True), but it reads no stream")
                raise WalkFailed(str(wrong)) from wrong
            for stream in node.reads:
                self.live.streams[stream.name].stop(stop.reason)

    def _send(self, node: Node, gives: Mapping[str, Any]) -> None:
        for name, target in node.to:
            value = gives[name]
            if value is None:
                continue  # nothing this time: a half character, a frame that is not whole yet
            if isinstance(target, Stream):
                self.live.streams[target.name].push(value)
            elif (items := self.live.result.outputs.get(target.name)) is not None:
                items.append(value if self.row is None else FanItem(self.row, value))


@dataclass
class Computed:
    """A call that a sibling in the same Parallel need not make again."""

    node: Node
    call: ToyCall
    gives: Mapping[str, Any]

    def equals(self, node: Node, call: ToyCall) -> bool:
        """By identity of every value taken, and by the content of the branch.

        Draws are equal as well, as siblings have one key.
        """
        return (
            self.node.component is node.component
            and self.node.method == node.method
            and self.call.content == call.content
            and self.call.values.keys() == call.values.keys()
            and all(value is call.values[name] for name, value in self.call.values.items())
            and len(self.node.gives) == len(node.gives) <= 1
        )

    def as_of(self, node: Node, call: ToyCall) -> Mapping[str, Any]:
        """What it gave, counted and said, as if the other call had, by that one's name for it."""
        call._stop = self.call._stop
        for name, by in self.call._counted.items():
            call.count(name, by)
        return dict(zip(node.gives, self.gives.values(), strict=False))
