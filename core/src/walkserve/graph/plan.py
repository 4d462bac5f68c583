"""Flat plans: what a WalkGraph becomes, with slots and counters in place of names.

A *block* is the body of one loop or Fan, or the whole graph. Each turn of it is a frame: a list of slots
and a list of counters. Every definition of a name has a slot of its own, so that a trailing node of turn k
never sees what turn k + 1 writes::

    Loop(Node(llama, "next", takes="ids", gives="ids"), carry="ids")

    slots   0: ids as carried in      1: ids as given      carry: slot 1 -> slot 0 of the next frame
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Op:
    """One node, lowered. ``index`` is its place among its block's children.

    What is asked of it for every row is worked out once, here.
    """

    index: int
    component: str
    method: str
    branch: str
    keeps: bool
    takes_turns: bool  # calls on one branch must not overlap: they write its cache or its state
    takes: tuple[tuple[str, int], ...]
    reads: tuple[str, ...]
    gives: tuple[tuple[str, int], ...]
    streams: tuple[tuple[str, str], ...]  # (given name, stream)
    outputs: tuple[tuple[str, str], ...]  # (given name, output)
    when: int | None
    place: str  # "Orpheus.write: llama.next", for messages
    after: tuple[int, ...] = ()  # children that wait for this one
    waits: int = 0
    critical: bool = True  # the next turn waits for it; otherwise it trails
    twins: int | None = None  # those of one number may be equal, and then one of them is computed
    key: tuple[str, str] = field(init=False)  # what may share a batch: the component and the method
    at: tuple[str, str] = field(init=False)  # the component and its branch
    gives_names: tuple[str, ...] = field(init=False)
    has_streams: bool = field(init=False)  # reads or writes some

    def __post_init__(self) -> None:
        self.key = (self.component, self.method)
        self.at = (self.component, self.branch)
        self.gives_names = tuple(name for name, _ in self.gives)
        self.has_streams = bool(self.reads or self.streams)


@dataclass(slots=True)
class LoopOp:
    """A loop among the children of a block. Pairs of slots are (outer, inner)."""

    index: int
    body: Block
    imports: tuple[tuple[int, int], ...]
    carry_in: tuple[tuple[int, int], ...]
    carry_next: tuple[tuple[int, int], ...]  # (inner given, inner carried): from one turn to the next
    carry_out: tuple[tuple[int, int], ...]  # (inner carried, outer): the last values
    each: tuple[tuple[int, int], ...]
    times: int | None  # a number of turns written in the graph
    times_slot: int | None  # or the slot it comes in
    collect: tuple[tuple[int, int], ...]  # (inner given, outer list)
    streams: tuple[str, ...]  # that its nodes read
    after: tuple[int, ...] = ()
    waits: int = 0
    critical: bool = True


@dataclass(slots=True)
class FanOp:
    """A Fan among the children of a block: its body once per slice, each time on forks of its own.

    Pairs of slots are (outer, inner), those of ``gives`` (inner, outer): what every row gave, in order.
    """

    index: int
    body: Block
    imports: tuple[tuple[int, int], ...]
    over: tuple[tuple[int, int], ...]
    sources: tuple[str, ...]  # what is sliced, by the names it has outside; for messages
    gives: tuple[tuple[int, int], ...]
    forks: tuple[tuple[str, str], ...]  # (component, branch) of all its nodes
    grows: tuple[tuple[str, str], ...]  # and of those whose cache they write
    place: str  # "Planner.search: a Fan", for messages
    after: tuple[int, ...] = ()
    waits: int = 0
    critical: bool = True


Child = Op | LoopOp | FanOp


@dataclass(slots=True)
class Block:
    """The children of one loop body or Fan, or of the graph."""

    children: list[Child] = field(default_factory=list)
    slots: int = 0
    waits: list[int] = field(default_factory=list)  # template of a frame's counters
    critical: int = 0  # children the next turn waits for
    firsts: tuple[int, ...] = ()  # children that wait for nothing
    trails: bool = False  # whether a turn may begin before the one before it is done


@dataclass(slots=True)
class Plan:
    """One WalkGraph, lowered.

    Args:
        inputs: (name, slot) of what a Walk must bring.
        results: (name, slot) of what its outcome holds.
    """

    name: str
    top: Block
    inputs: tuple[tuple[str, int], ...]
    results: tuple[tuple[str, int], ...]
    ops: tuple[Op, ...]
    fans: tuple[FanOp, ...] = ()

    @property
    def components(self) -> tuple[str, ...]:
        """Components it calls, in the order of its nodes."""
        return tuple(dict.fromkeys(op.component for op in self.ops))

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(stream for op in self.ops for stream in op.reads))

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(stream for op in self.ops for _, stream in op.streams))
