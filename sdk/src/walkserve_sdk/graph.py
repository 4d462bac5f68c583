"""WalkGraphs: nodes, the four ways to arrange them, and the Walk that asks for one traversal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from walkserve_sdk.components import Component
from walkserve_sdk.errors import DeclarationError, did_you_mean
from walkserve_sdk.ports import Output
from walkserve_sdk.streams import Stream

Target = Stream | Output
Names = str | tuple[str, ...]


def _names(names: Names | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)


class Node:
    """One call of one method of one component.

    Args:
        component: Who is called.
        method: Which of its methods.
        takes: Names of values, and Streams (each a helping per turn, under the stream's own name).
        gives: Names of the values the method returns.
        to: Where they also go: a Stream or an Output for the only value given, or a mapping from a name
            to one or several of them.
        branch: Which continuation of the component's cache and state the call belongs to.
        when: Name of a bool; in a turn where it is false the node is skipped and gives nothing.
        keeps: False for a call that only reads the cache, and the state.
    """

    def __init__(
        self,
        component: Component,
        method: str,
        *,
        takes: Names | Stream | tuple[str | Stream, ...] | None = None,
        gives: Names | None = None,
        to: Target | Mapping[str, Target | tuple[Target, ...]] | None = None,
        branch: str = "main",
        when: str | None = None,
        keeps: bool = True,
    ) -> None:
        if not isinstance(component, Component):
            raise DeclarationError(f"Node({component!r}, {method!r}): the first argument is a Component")
        self.component = component
        self.method = method
        wanted = () if takes is None else tuple(takes) if isinstance(takes, tuple | list) else (takes,)
        for each in wanted:
            if not isinstance(each, str | Stream):
                raise DeclarationError(
                    f"Node({component!r}, {method!r}): it takes {each!r}; give names and Streams"
                )
        self.takes: tuple[str, ...] = tuple(each for each in wanted if isinstance(each, str))
        self.reads: tuple[Stream, ...] = tuple(each for each in wanted if isinstance(each, Stream))
        self.gives = _names(gives)
        self.to = self._targets(to)
        self.branch = branch
        self.when = when
        self.keeps = keeps

    def _targets(
        self, to: Target | Mapping[str, Target | tuple[Target, ...]] | None
    ) -> tuple[tuple[str, Target], ...]:
        if to is None:
            return ()
        if isinstance(to, Stream | Output):
            if len(self.gives) != 1:
                raise DeclarationError(
                    f"{self}: to={to!r} fits a node that gives one value, this one gives {len(self.gives)}; "
                    "write to={'name': ...}"
                )
            return ((self.gives[0], to),)
        if not isinstance(to, Mapping):
            raise DeclarationError(
                f"{self}: to={to!r}; give a Stream, an Output, or a mapping to={{'name': ...}}"
            )
        for name in to:
            if name not in self.gives:
                raise DeclarationError(
                    f"{self}: to= names {name!r}, which the node does not give"
                    f"{did_you_mean(name, self.gives)}"
                )
        pairs = tuple(
            (name, target)
            for name, targets in to.items()
            for target in (targets if isinstance(targets, tuple) else (targets,))
        )
        for name, target in pairs:
            if not isinstance(target, Stream | Output):
                raise DeclarationError(
                    f"{self}: to= sends {name!r} to {target!r}; give a Stream or an Output"
                )
        return pairs

    @property
    def needs(self) -> tuple[str, ...]:
        """Every value that must be there before the call, ``when`` included."""
        return (*self.takes, self.when) if self.when else self.takes

    def __repr__(self) -> str:
        return f"Node({self.component.name or self.component.path}, {self.method!r})"


class Sequential:
    """Parts one after another."""

    def __init__(self, *parts: Part) -> None:
        self.parts = _parts("Sequential", parts)


class Parallel:
    """Parts that may run at the same time; none sees what another gives. Equal calls are computed once."""

    def __init__(self, *parts: Part) -> None:
        self.parts = _parts("Parallel", parts)


class Loop:
    """Parts repeated, turn by turn.

    A loop ends when a node says ``Stop``, when ``times`` turns have run, when an ``each`` is used up, or,
    where it reads a stream, when that stream ends.

    Args:
        carry: Names handed from one turn to the next; the first turn takes them from outside, and their
            last values leave the loop.
        times: A number of turns, or the name of one.
        each: ``{"t": "timesteps"}``: every turn takes the next item of ``timesteps`` as ``t``.
        collect: ``{"tokens": "token"}``: the list of every committed turn's ``token`` leaves as ``tokens``.
    """

    def __init__(
        self,
        *parts: Part,
        carry: Names | None = None,
        times: int | str | None = None,
        each: Mapping[str, str] | None = None,
        collect: Mapping[str, str] | None = None,
    ) -> None:
        self.parts = _parts("Loop", parts)
        self.carry = _names(carry)
        self.times = times
        self.each = dict(each or {})
        self.collect = dict(collect or {})
        if isinstance(times, bool) or not isinstance(times, int | str | None):
            raise DeclarationError(f"Loop: times={times!r}; give a number of turns, or the name of one")
        if isinstance(times, int) and times < 0:
            raise DeclarationError(f"Loop: times={times}, but a number of turns is not negative")


class Fan:
    """The same part once per slice of an input, each on its own fork of the current branches.

    Args:
        part: What is done for each slice.
        over: ``{"plan": "actions"}``: row i takes ``actions[i]`` as ``plan``. Several inputs go in step.
    """

    def __init__(self, part: Part, *, over: Mapping[str, str]) -> None:
        self.parts = _parts("Fan", (part,))
        self.over = dict(over)
        if not self.over:
            raise DeclarationError("Fan: over= names no input, so there is nothing to fan over")


Part = Node | Sequential | Parallel | Loop | Fan


def _parts(arrangement: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    if not parts:
        raise DeclarationError(f"{arrangement}(): it arranges nothing; give it at least one part")
    for part in parts:
        if not isinstance(part, Part):
            hint = (
                "use the graph's parts, a WalkGraph does not nest"
                if isinstance(part, WalkGraph)
                else "give a Node"
            )
            raise DeclarationError(f"{arrangement}(...): {part!r} is no part of a graph; {hint}")
    return parts


class WalkGraph:
    """A frozen arrangement of parts, in sequence unless told otherwise; a verb.

    Calling it asks for one traversal: ``yield self.write(ids=ids, max_tokens=400)``.

    Args:
        parts: What is done.
        gives: Names that the Walk's outcome holds, by default all that are known at its end. A large value
            that no track asks for is best left out: what an outcome holds is kept for the track, beside
            whatever the graph's nodes still have of it.
    """

    def __init__(self, *parts: Part, gives: Names | None = None) -> None:
        self.parts = _parts("WalkGraph", parts)
        self.gives: tuple[str, ...] | None = None if gives is None else _names(gives)
        self.inputs: frozenset[str] = frozenset()  # free names, found when the model is checked
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def nodes(self) -> Iterator[Node]:
        """Every node, in the order they are written."""
        return walk_nodes(self.parts)

    def __call__(self, **inputs: Any) -> Walk:
        for name in inputs:
            if name not in self.inputs:
                raise DeclarationError(
                    f"{self.name}: it takes no input {name!r}{did_you_mean(name, self.inputs)}"
                )
        missing = sorted(self.inputs - set(inputs))
        if missing:
            raise DeclarationError(f"{self.name}: missing input {', '.join(map(repr, missing))}")
        return Walk(self, inputs)

    def __repr__(self) -> str:
        return f"WalkGraph({self.name!r})"


def walk_nodes(parts: tuple[Part, ...], *, into_loops: bool = True) -> Iterator[Node]:
    """The nodes below ``parts``, depth first, as written; without those of inner loops if asked."""
    for part in parts:
        if isinstance(part, Node):
            yield part
        elif into_loops or not isinstance(part, Loop):
            yield from walk_nodes(part.parts, into_loops=into_loops)


@dataclass(frozen=True)
class Walk:
    """One request's ask to traverse a graph.

    Args:
        graph: Which.
        inputs: Values by name: what a track was given by an ``Outcome``, or plain numbers and text.
    """

    graph: WalkGraph
    inputs: Mapping[str, Any]
