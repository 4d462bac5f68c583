"""What the toy runtime finds out once about every node and loop of a model, and then looks up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkserve_sdk.errors import ComponentError, DeclarationError, WalkFailed, did_you_mean
from walkserve_sdk.graph import Loop, Node, Part, walk_nodes
from walkserve_sdk.models import Model
from walkserve_sdk.streams import Stream
from walkserve_sdk.testing.toy_calls import Symbols, ToyCall

MOST_TURNS = 10_000
"""Of one loop; a fake that never says stop is a mistake in a test, not a long request."""


Asked = Callable[[ToyCall], Mapping[str, Any]]


@dataclass(frozen=True)
class NodePlan:
    """One node: whom to ask, and what follows."""

    ask: Asked
    component: str
    call: tuple[str, str]
    label: str
    place: str
    writes: tuple[str, ...]
    streams: bool
    keeps: bool
    is_cached: bool
    is_pure: bool


@dataclass(frozen=True)
class LoopPlan:
    """One loop: what ends it.

    Args:
        reads: Streams read by its own nodes, inner loops' left out; ``writes`` likewise.
        most: Turns after which a loop of nothing but symbols is said to have stopped.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    most: int | None


class Plans:
    """Of one model, with the fakes that stand in for its components."""

    def __init__(self, model: Model, fakes: Mapping[str, object], turns: int) -> None:
        known = model.spec.components
        for name in fakes:
            if name not in known:
                raise DeclarationError(
                    f"{model.spec.name} has no component {name!r}{did_you_mean(name, known)}"
                )
        self.turns = turns
        self._fakes = fakes
        self._nodes: dict[Node, NodePlan] = {}
        self._loops: dict[Loop, LoopPlan] = {}
        for graph in model.spec.graphs.values():
            for node in graph.nodes():
                self._nodes[node] = self._plan_node(node)
            for loop in _loops(graph.parts):
                self._loops[loop] = self._plan_loop(loop)

    def node(self, node: Node) -> NodePlan:
        return self._nodes[node]

    def loop(self, loop: Loop) -> LoopPlan:
        return self._loops[loop]

    def times(self, loop: Loop, scope: Mapping[str, Any]) -> int | None:
        """How often a loop may turn at most, None for no such limit."""
        if not isinstance(loop.times, str):
            return loop.times
        times = scope.get(loop.times)
        if isinstance(times, str):
            return self.turns
        if isinstance(times, bool) or not isinstance(times, int):
            raise WalkFailed(f"a loop's times={loop.times!r} is {times!r}, which is no number of turns")
        return times

    def items(self, given: Any) -> Sequence[Any]:
        """What an each or a Fan goes through: ``given`` item by item; of a word, as many words."""
        if isinstance(given, str):
            return [f"{given}[{index}]" for index in range(self.turns)]
        if not hasattr(given, "__len__"):
            raise WalkFailed(f"{given!r} is no sequence that an each or a Fan could go through")
        return given  # type: ignore[no-any-return]

    def _plan_node(self, node: Node) -> NodePlan:
        component = node.component
        writes = tuple(target.name for _, target in node.to if isinstance(target, Stream))
        place = f"{component.name}.{node.method}"
        has_cache = component.kv is not None
        keeps = node.keeps and (has_cache or component.state)
        return NodePlan(
            ask=self._asker(node, place),
            component=component.name,
            call=(component.name, node.method),
            label=place if node.branch == "main" else f"{place}@{node.branch}",
            place=place,
            writes=writes,
            streams=bool(writes or node.reads),
            keeps=keeps,
            is_cached=has_cache,
            is_pure=not keeps and not node.reads,
        )

    def _asker(self, node: Node, place: str) -> Asked:
        fake = self._fakes.get(node.component.name)
        if fake is None:
            return Symbols(node)
        method = getattr(fake, node.method, None)
        if not callable(method):
            there = [name for name in dir(fake) if not name.startswith("_")]
            raise DeclarationError(
                f"the fake of {place} has no such method{did_you_mean(node.method, there)}"
            )

        names = frozenset(node.gives)

        def ask(call: ToyCall) -> Mapping[str, Any]:
            gives = method(call)
            stop = call._stop
            if stop is not None and not stop.keep:
                return {}  # discarded, so it may be anything
            if gives is None and not names:
                return {}
            if isinstance(gives, Mapping) and len(gives) == len(names) == 1:
                return dict(
                    zip(node.gives, gives.values(), strict=True)
                )  # a single value, by the node's name
            if not isinstance(gives, Mapping) or gives.keys() != names:
                there = sorted(gives) if isinstance(gives, Mapping) else gives
                raise ComponentError(f"it must give {sorted(names)}, but returned {there!r}")
            return gives

        return ask

    def _plan_loop(self, loop: Loop) -> LoopPlan:
        own = list(walk_nodes(loop.parts, into_loops=False))
        reads = tuple(stream.name for node in own for stream in node.reads)
        writes = tuple(target.name for node in own for _, target in node.to if isinstance(target, Stream))
        only_a_stop = loop.times is None and not loop.each and not reads
        is_symbolic = all(node.component.name not in self._fakes for node in walk_nodes(loop.parts))
        return LoopPlan(reads, writes, self.turns if only_a_stop and is_symbolic else None)


def given_names(part: Part) -> tuple[str, ...]:
    """Names that are known after ``part``, each once."""
    if isinstance(part, Node):
        return part.gives
    if isinstance(part, Loop):
        return (*part.carry, *part.collect)
    return tuple(dict.fromkeys(name for child in part.parts for name in given_names(child)))


def _loops(parts: tuple[Part, ...]) -> Iterator[Loop]:
    for part in parts:
        if isinstance(part, Loop):
            yield part
        if not isinstance(part, Node):
            yield from _loops(part.parts)
