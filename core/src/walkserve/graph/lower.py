"""From a WalkGraph to its plan: names become slots, order becomes counters."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from walkserve.graph.plan import Block, Child, FanOp, LoopOp, Op, Plan
from walkserve_sdk import Fan, Loop, Model, Node, Parallel, Sequential, Stream, WalkGraph
from walkserve_sdk.graph import Part


def lower_model(model: type[Model]) -> dict[str, Plan]:
    """Every graph of a model, by name."""
    return {name: lower(model.__name__, graph) for name, graph in model.spec.graphs.items()}


def lower(model: str, graph: WalkGraph) -> Plan:
    """One graph."""
    place = f"{model}.{graph.name}"
    top = _Scope(place, None)
    inputs = tuple((name, top.define(name)) for name in sorted(graph.inputs))
    top.sequence(graph.parts, frozenset())
    top.close(needed=frozenset(), is_loop=False)
    taken = dict(inputs)
    given = {name: slot for name, slot in top.names.items() if taken.get(name) != slot}
    results = tuple((name, given[name]) for name in (given if graph.gives is None else graph.gives))
    return Plan(graph.name, top.block, inputs, results, tuple(_ops(top.block)), tuple(_fans(top.block)))


def _ops(block: Block) -> list[Op]:
    found: list[Op] = []
    for child in block.children:
        found += [child] if isinstance(child, Op) else _ops(child.body)
    return found


def _fans(block: Block) -> list[FanOp]:
    found: list[FanOp] = []
    for child in block.children:
        if isinstance(child, FanOp):
            found.append(child)  # which has none inside
        elif isinstance(child, LoopOp):
            found += _fans(child.body)
    return found


def _mark_twins(beside: list[Op]) -> None:
    """Which nodes of one Parallel may be equal in some turn: they take the same, and leave nothing behind.

    They give one value, whatever each calls it, or none: of several each would have the same names.
    """
    alike: dict[Any, list[Op]] = defaultdict(list)
    for op in beside:
        if not op.takes_turns and not op.reads and len(op.gives) <= 1:
            alike[op.key, frozenset(op.takes), len(op.gives)].append(op)
    for ops in alike.values():
        for op in ops if len(ops) > 1 else ():
            op.twins = ops[0].index


class _Scope:
    """One block while it is being lowered: which slot holds which name, and who waits for whom."""

    def __init__(self, place: str, outer: _Scope | None) -> None:
        self.place = place
        self.outer = outer
        self.block = Block()
        self.names: dict[str, int] = {}
        self.imports: list[tuple[int, int]] = []
        self.imported: dict[str, int] = {}
        self.giver: dict[int, int] = {}  # slot -> the child that fills it
        self.data: list[set[int]] = []  # per child: children whose values it takes
        self.order: list[set[int]] = []  # per child: children that stand before it in sequence

    # --- names ------------------------------------------------------------------------------------

    def define(self, name: str) -> int:
        """A new slot for a new meaning of ``name``."""
        slot = self.block.slots
        self.block.slots += 1
        self.names[name] = slot
        return slot

    def slot(self, name: str) -> int:
        """Where ``name`` is now; a name of an outer block is brought in once, when the loop begins."""
        if name not in self.names:
            assert self.outer is not None, f"{self.place}: {name!r} was checked to be an input"
            if name not in self.imported:
                self.imported[name] = self.define(name)
                self.imports.append((self.outer.slot(name), self.imported[name]))
            self.names[name] = self.imported[name]  # parts of a Parallel take one, the same
        return self.names[name]

    # --- parts ------------------------------------------------------------------------------------

    def sequence(self, parts: tuple[Part, ...], before: frozenset[int]) -> frozenset[int]:
        """Lower parts in order; returns all children so far, which the next part comes after."""
        for part in parts:
            before |= self.part(part, before)
        return before

    def part(self, part: Part, before: frozenset[int]) -> frozenset[int]:
        match part:
            case Node():
                return self._node(part, before)
            case Sequential():
                return self.sequence(part.parts, before) - before
            case Parallel():
                return self._parallel(part, before)
            case Loop():
                return self._loop(part, before)
            case Fan():
                return self._fan(part, before)

    def _parallel(self, part: Parallel, before: frozenset[int]) -> frozenset[int]:
        known, given, made = dict(self.names), dict(self.names), frozenset[int]()
        beside: list[Child] = []
        for child in part.parts:
            self.names = dict(known)
            made |= self.part(child, before)
            if isinstance(child, Node):
                beside.append(self.block.children[-1])
            given |= {name: slot for name, slot in self.names.items() if known.get(name) != slot}
        self.names = given
        _mark_twins([child for child in beside if isinstance(child, Op)])
        return made

    def _node(self, node: Node, before: frozenset[int]) -> frozenset[int]:
        takes = tuple((name, self.slot(name)) for name in node.takes)
        when = self.slot(node.when) if node.when else None
        index = self._child([slot for _, slot in takes] + ([when] if when is not None else []), before)
        keeps = node.keeps and node.component.kv is not None
        gives = tuple((name, self.define(name)) for name in node.gives)
        for _, slot in gives:
            self.giver[slot] = index
        self.block.children.append(
            Op(
                index=index,
                component=node.component.name,
                method=node.method,
                branch=node.branch,
                keeps=keeps,
                takes_turns=keeps or (node.keeps and node.component.state),
                takes=takes,
                reads=tuple(stream.name for stream in node.reads),
                gives=gives,
                streams=tuple((name, target.name) for name, target in node.to if isinstance(target, Stream)),
                outputs=tuple(
                    (name, target.name) for name, target in node.to if not isinstance(target, Stream)
                ),
                when=when,
                place=f"{self.place}: {node.component.name}.{node.method}",
            )
        )
        return frozenset({index})

    def _loop(self, loop: Loop, before: frozenset[int]) -> frozenset[int]:
        inner = _Scope(self.place, self)
        carry_in = [(self.slot(name), inner.define(name)) for name in loop.carry]
        each = [(self.slot(source), inner.define(name)) for name, source in loop.each.items()]
        times_slot = self.slot(loop.times) if isinstance(loop.times, str) else None
        inner.sequence(loop.parts, frozenset())
        carry_next = [(inner.names[name], slot) for name, (_, slot) in zip(loop.carry, carry_in, strict=True)]
        collected = [(inner.names[source], name) for name, source in loop.collect.items()]
        inner.close(needed=frozenset(slot for slot, _ in (*carry_next, *collected)), is_loop=True)

        needed = [slot for slot, _ in (*inner.imports, *carry_in, *each)]
        index = self._child(needed + ([times_slot] if times_slot is not None else []), before)
        carry_out = [(slot, self.define(name)) for name, (_, slot) in zip(loop.carry, carry_in, strict=True)]
        collect = [(slot, self.define(name)) for slot, name in collected]
        for _, slot in (*carry_out, *collect):
            self.giver[slot] = index
        self.block.children.append(
            LoopOp(
                index=index,
                body=inner.block,
                imports=tuple(inner.imports),
                carry_in=tuple(carry_in),
                carry_next=tuple(carry_next),
                carry_out=tuple(carry_out),
                each=tuple(each),
                times=loop.times if isinstance(loop.times, int) else None,
                times_slot=times_slot,
                collect=tuple(collect),
                streams=tuple(
                    stream
                    for child in inner.block.children
                    if isinstance(child, Op)
                    for stream in child.reads
                ),
            )
        )
        return frozenset({index})

    def _fan(self, fan: Fan, before: frozenset[int]) -> frozenset[int]:
        inner = _Scope(self.place, self)
        over = [(self.slot(source), inner.define(name)) for name, source in fan.over.items()]
        inner.sequence(fan.parts, frozenset())
        taken = {slot for _, slot in (*inner.imports, *over)}
        given = [(slot, name) for name, slot in inner.names.items() if slot not in taken]
        inner.close(needed=frozenset(), is_loop=False)

        index = self._child([slot for slot, _ in (*inner.imports, *over)], before)
        gives = [(slot, self.define(name)) for slot, name in given]
        for _, slot in gives:
            self.giver[slot] = index
        ops = _ops(inner.block)
        self.block.children.append(
            FanOp(
                index=index,
                body=inner.block,
                imports=tuple(inner.imports),
                over=tuple(over),
                sources=tuple(fan.over.values()),
                gives=tuple(gives),
                forks=tuple(dict.fromkeys(op.at for op in ops)),
                grows=tuple(dict.fromkeys(op.at for op in ops if op.keeps)),
                place=f"{self.place}: a Fan",
            )
        )
        return frozenset({index})

    def _child(self, takes: list[int], before: frozenset[int]) -> int:
        self.data.append({self.giver[slot] for slot in takes if slot in self.giver})
        self.order.append(set(before))
        return len(self.block.children)

    # --- order ------------------------------------------------------------------------------------

    def close(self, *, needed: frozenset[int], is_loop: bool) -> None:
        """Find who trails, and turn order into counters.

        Args:
            needed: Slots that a turn has to have filled when it is over: what is carried, and collected.
        """
        children = self.block.children
        if is_loop:
            critical = self._ancestors(
                {self.giver[slot] for slot in needed}
                | {
                    child.index
                    for child in children
                    if not isinstance(child, Op) or child.reads or child.keeps
                }
            )
            for child in children:
                child.critical = child.index in critical or not critical
        for child in children:
            # a node that trails holds back no node that does not
            order = {one for one in self.order[child.index] if children[one].critical or not child.critical}
            waits_for = self.data[child.index] | order
            child.waits = len(waits_for)
            for one in waits_for:
                children[one].after += (child.index,)
        self.block.waits = [child.waits for child in children]
        self.block.critical = sum(child.critical for child in children)
        self.block.trails = self.block.critical < len(children)
        self.block.firsts = tuple(child.index for child in children if child.waits == 0)

    def _ancestors(self, of: set[int]) -> set[int]:
        found: set[int] = set()
        waiting = list(of)
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                waiting += self.data[index]
        return found
