"""What is checked of one WalkGraph: its names, its branches, how its loops end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from walkserve_sdk.components import Component
from walkserve_sdk.errors import DeclarationError, did_you_mean
from walkserve_sdk.graph import Fan, Loop, Node, Parallel, Part, WalkGraph, walk_nodes
from walkserve_sdk.streams import Stream

Found = Mapping[type, Mapping[str, Any]]
"""What a class body declares, by kind and name."""


@dataclass
class _Names:
    """Names at one part of a graph."""

    free: set[str] = field(default_factory=set)  # taken from outside the part
    given: set[str] = field(default_factory=set)  # known after it
    inside: set[str] = field(default_factory=set)  # given in one of its loops, unknown after that loop


class GraphCheck:
    """One graph: names, branches, ends of loops. Finds the graph's inputs on the way."""

    def __init__(self, model: type, graph: WalkGraph, found: Found) -> None:
        self.place = f"{model.__name__}.{graph.name}"
        self.graph = graph
        self.found = found

    def run(self) -> None:
        nodes = list(self.graph.nodes())
        told = {name for node in nodes for name in node.gives}
        readers: dict[str, Node] = {}
        for node in nodes:
            self._check_node(node)
            if node.when in told:
                raise self.fail(
                    f"{node}: when={node.when!r} is given by a node, but it must be known before the turn; "
                    "take it from the Walk's inputs, turn by turn with each="
                )
            for stream in node.reads:
                if stream.name in readers:
                    raise self.fail(
                        f"{node} reads the stream {stream.name!r}, which {readers[stream.name]} of this "
                        "graph reads; read it once and give the value on by name"
                    )
                readers[stream.name] = node
        names = self._sequence(self.graph.parts, in_loop=False, in_fan=False)
        for name in self.graph.gives or ():
            if name not in names.given:
                raise self.fail(
                    f"gives={name!r} is to be in its outcome, but nothing in it gives {name!r}"
                    f"{did_you_mean(name, names.given)}"
                )
        self.graph.inputs = frozenset(names.free)

    def fail(self, message: str) -> DeclarationError:
        return DeclarationError(f"{self.place}: {message}")

    def _check_node(self, node: Node) -> None:
        component = node.component
        check_owned(self.place, component, self.found[Component], "Component")
        for stream in node.reads:
            check_owned(self.place, stream, self.found[Stream], "Stream")
        for _, target in node.to:
            kind = "Stream" if isinstance(target, Stream) else "Output"
            check_owned(self.place, target, self.found[type(target)], kind)
            if isinstance(target, Stream) and target.by == "client":
                raise self.fail(f"{node} writes {target.name!r}, but that stream is written by the client")
        if node.branch not in component.branches:
            raise self.fail(
                f"{node} is on branch {node.branch!r}, which {component.name!r} does not declare"
                f"{did_you_mean(node.branch, component.branches)}"
            )
        if not node.keeps and component.kv is None:
            raise self.fail(
                f"{node}: keeps=False, but {component.name!r} has no cache (kv=) to keep anything in"
            )
        for verb, names in (
            ("takes", (*node.takes, *(stream.name for stream in node.reads))),
            ("gives", node.gives),
        ):
            if twice := _first_twice(names):
                raise self.fail(f"{node} {verb} {twice!r} twice")

    # --- names: what is known where ---------------------------------------------------------------

    def _sequence(self, parts: Iterable[Part], *, in_loop: bool, in_fan: bool) -> _Names:
        names = _Names()
        for part in parts:
            new = self._part(part, in_loop=in_loop, in_fan=in_fan)
            wanted = new.free - names.given
            for lost in sorted(wanted & names.inside):
                raise self.fail(
                    f"{lost!r} is taken after a loop that gives it only inside; "
                    f"write carry={lost!r} for its last value, or collect={{...: {lost!r}}} for all of them"
                )
            names.free |= wanted
            names.given |= new.given
            names.inside = (names.inside | new.inside) - names.given
        return names

    def _part(self, part: Part, *, in_loop: bool, in_fan: bool) -> _Names:
        match part:
            case Node():
                return self._node(part, in_loop=in_loop, in_fan=in_fan)
            case Parallel():
                return self._parallel(part, in_loop=in_loop, in_fan=in_fan)
            case Loop():
                return self._loop(part, in_fan=in_fan)
            case Fan():
                return self._fan(part, in_loop=in_loop, in_fan=in_fan)
            case _:
                return self._sequence(part.parts, in_loop=in_loop, in_fan=in_fan)

    def _node(self, node: Node, *, in_loop: bool, in_fan: bool) -> _Names:
        for stream in node.reads:
            if in_fan:
                raise self.fail(
                    f"{node} reads the stream {stream.name!r} inside a Fan; a stream has one reader"
                )
            if not in_loop:
                raise self.fail(
                    f"{node} reads the stream {stream.name!r} outside a loop; put it in a Loop(...)"
                )
        for _, target in node.to:
            if in_fan and isinstance(target, Stream):
                raise self.fail(
                    f"{node} writes the stream {target.name!r} inside a Fan; a stream has one writer"
                )
        return _Names(free=set(node.needs), given=set(node.gives))

    def _parallel(self, part: Parallel, *, in_loop: bool, in_fan: bool) -> _Names:
        names = _Names()
        children = [self._part(child, in_loop=in_loop, in_fan=in_fan) for child in part.parts]
        for child in children:
            for name in sorted(child.given & names.given):
                raise self.fail(f"two parts of one Parallel give {name!r}; let each give a name of its own")
            names.free |= child.free
            names.given |= child.given
            names.inside |= child.inside
        for index, child in enumerate(children):
            for other in children[:index] + children[index + 1 :]:
                for name in sorted(child.free & (other.given | other.inside)):
                    raise self.fail(
                        f"a part of a Parallel takes {name!r}, which its neighbour gives; "
                        "they run at the same time: put them in sequence"
                    )
        self._check_parallel_branches(part)
        self._check_parallel_targets(part)
        return names

    def _check_parallel_branches(self, part: Parallel) -> None:
        written: set[tuple[str, str]] = set()
        read: set[tuple[str, str]] = set()
        for child in part.parts:
            writes: set[tuple[str, str]] = set()
            reads: set[tuple[str, str]] = set()
            for node in walk_nodes((child,)):
                if node.component.kv is not None or node.component.state:
                    (writes if node.keeps else reads).add((node.component.name, node.branch))
            for component, branch in sorted(writes & written):
                raise self.fail(
                    f"two parts of one Parallel write {component!r} on branch {branch!r}; "
                    "give one of them another branch, or keeps=False"
                )
            for component, branch in sorted((writes & read) | (reads & written)):
                raise self.fail(
                    f"one part of a Parallel writes {component!r} on branch {branch!r} while another "
                    "reads it; give one of them another branch, or put them in sequence"
                )
            written |= writes
            read |= reads

    def _check_parallel_targets(self, part: Parallel) -> None:
        written: set[str] = set()
        for child in part.parts:
            targets = {target.name for node in walk_nodes((child,)) for _, target in node.to}
            for name in sorted(targets & written):
                raise self.fail(
                    f"two parts of one Parallel write {name!r}, in no order; put them in sequence"
                )
            written |= targets

    def _loop(self, loop: Loop, *, in_fan: bool) -> _Names:
        fed = any(node.reads for node in walk_nodes(loop.parts, into_loops=False))
        if not (loop.carry or loop.each or fed or loop.times is not None):
            raise self.fail(
                "a Loop with no carry, times, each or stream would turn for ever; give it one of them"
            )
        twice = _first_twice((*loop.carry, *loop.each))
        if twice:
            raise self.fail(
                f"the loop has {twice!r} twice, by carry and each; let each have a name of its own"
            )
        turn = self._sequence(loop.parts, in_loop=True, in_fan=in_fan)
        free = turn.free - set(loop.carry) - set(loop.each)
        for name in loop.each:
            if name not in turn.free:
                raise self.fail(
                    f"each= gives the loop {name!r} but nothing in it takes it{did_you_mean(name, free)}"
                )
        for name in loop.carry:
            if name not in turn.given:
                raise self.fail(
                    f"the loop carries {name!r} but nothing in it gives {name!r}"
                    f"{did_you_mean(name, turn.given)}"
                )
        for name in sorted(free & turn.given):
            raise self.fail(
                f"the loop's first turn takes {name!r} before any turn has given it; write carry={name!r}"
            )
        for name, source in loop.collect.items():
            if source not in turn.given:
                raise self.fail(
                    f"the loop collects {source!r} as {name!r} but nothing in it gives {source!r}"
                    f"{did_you_mean(source, turn.given)}"
                )
            if name in loop.carry:
                raise self.fail(f"the loop both carries and collects {name!r}; collect it under another name")
        free |= {*loop.carry, *loop.each.values()}
        if isinstance(loop.times, str):
            free.add(loop.times)
        given = {*loop.carry, *loop.collect}
        return _Names(free, given, (turn.given | turn.inside) - given)

    def _fan(self, fan: Fan, *, in_loop: bool, in_fan: bool) -> _Names:
        if in_fan:
            raise self.fail("a Fan inside a Fan; fan once, over all of it")
        row = self._part(fan.parts[0], in_loop=in_loop, in_fan=True)
        for name in fan.over:
            if name not in row.free:
                raise self.fail(
                    f"over= gives the Fan {name!r} but nothing in it takes it"
                    f"{did_you_mean(name, row.free - set(fan.over))}"
                )
        return _Names((row.free - set(fan.over)) | set(fan.over.values()), row.given, row.inside)


def check_owned(place: str, member: Any, members: Mapping[str, Any], kind: str) -> None:
    """Raises DeclarationError if ``member`` is none of the model's own ``members``."""
    if not any(member is each for each in members.values()):
        raise DeclarationError(
            f"{place}: it uses {member!r}, which is no attribute of the model; "
            f"write name = {kind}(...) in its body"
        )


def _first_twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
