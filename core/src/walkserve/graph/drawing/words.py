"""What a picture says of a declaration: one wording for every kind of picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from walkserve.descriptions import output_card, policy_words
from walkserve_sdk import Component, Fan, Loop, Model, Node, Output, Stream, WalkGraph
from walkserve_sdk.graph import Part, walk_nodes


def node_title(node: Node) -> str:
    """``llama.next``."""
    return f"{node.component.name}.{node.method}"


def node_flow(node: Node) -> tuple[str, str]:
    """What it takes, streams included, and what it gives."""
    return ", ".join((*node.takes, *(stream.name for stream in node.reads))), ", ".join(node.gives)


def node_notes(node: Node) -> str:
    """What is special about the call: ``on no_text, when guided, keeps nothing``; mostly nothing."""
    notes = [f"on {node.branch}"] if node.branch != "main" else []
    notes += [f"when {node.when}"] if node.when else []
    notes += [] if node.keeps else ["keeps nothing"]
    return ", ".join(notes)


def loop_end(loop: Loop) -> str:
    """How a loop ends."""
    streams = [stream.name for node in walk_nodes(loop.parts, into_loops=False) for stream in node.reads]
    ends = []
    if loop.each:
        ends.append(f"a turn for each of {_and(loop.each.values())}")
    elif streams and not loop.carry:
        ends.append(f"until {_and(dict.fromkeys(streams))} {'end' if len(set(streams)) > 1 else 'ends'}")
    elif not isinstance(loop.times, int):
        ends.append("until a stop")
    if loop.times is not None:
        turns = "turn" if loop.times == 1 else "turns"
        ends.append(f"at most {loop.times} {turns}" if ends else f"{loop.times} {turns}")
    return ", ".join(ends)


def loop_collects(loop: Loop) -> str:
    """What becomes a list, or nothing."""
    return ", ".join(f"collects {item} as {name}" for name, item in loop.collect.items())


def fan_over(fan: Fan) -> str:
    """What a fan's rows are."""
    over = (f"{name} of {names}" for name, names in fan.over.items())
    return f"once per row: {', '.join(over)}"


def output_kind(output: Output) -> str:
    """``audio, 24 kHz``."""
    card = output_card(output)
    rate = f", {card.rate / 1000:g} kHz" if card.rate is not None else ""
    fps = f", {card.fps:g} fps" if card.fps is not None else ""
    return f"{card.kind}{rate}{fps}"


def stream_label(stream: Stream) -> str:
    """``codes: multiples of 7, up to 56``."""
    written = ", from the client" if stream.by == "client" else ""
    return f"{stream.name}{written}: {policy_words(stream)}"


def component_keeps(component: Component) -> str:
    """Where it runs and what it keeps."""
    facts = ["on the host" if component.device == "cpu" else "on the device"]
    facts += [f"cache in pages of {component.kv.page_size}"] if component.kv else []
    others = component.branches[1:]
    facts += [f"{'branch' if len(others) == 1 else 'branches'} {_and(others)}"] if others else []
    facts += ["keeps a state"] if component.state else []
    return ", ".join(facts)


def lanes(model: type[Model]) -> list[tuple[str, Sequence[WalkGraph]]]:
    """Who asks for Walks, writers of a stream before its readers: ``prepare``, then the tracks."""
    spec = model.spec
    behind = {track: {spec.writers.get(stream) for stream in _read_by(model, track)} for track in spec.tracks}
    order: list[str] = []
    while len(order) < len(behind):  # the check at import has seen to it that there is no circle
        order.append(next(t for t in behind if t not in order and behind[t] - {None} <= set(order)))
    asked = [("prepare", spec.prepares)] if spec.prepares else []
    asked += [(track, spec.walks[track]) for track in order]
    return [(name, [spec.graphs[graph] for graph in graphs]) for name, graphs in asked]


def _read_by(model: type[Model], track: str) -> list[str]:
    return [stream for stream, reader in model.spec.readers.items() if reader == track]


# --- values between parts -----------------------------------------------------------------------------


def needed(part: Part) -> set[str]:
    """Names a part takes from outside."""
    match part:
        case Node():
            return set(part.needs)
        case Loop():
            inner = sequence_needs(part.parts) - set(part.each)
            times = {part.times} if isinstance(part.times, str) else set()
            return (inner | set(part.carry) | set(part.each.values())) | times
        case Fan():
            return (sequence_needs(part.parts) - set(part.over)) | set(part.over.values())
        case _:
            return sequence_needs(part.parts)


def given(part: Part) -> set[str]:
    """Names a part leaves behind for those after it."""
    match part:
        case Node():
            return set(part.gives)
        case Loop():
            return set(part.carry) | set(part.collect)
        case _:
            return set().union(*(given(inner) for inner in part.parts))


def sequence_needs(parts: Iterable[Part]) -> set[str]:
    """Names a sequence takes from outside."""
    found: set[str] = set()
    there: set[str] = set()
    for part in parts:
        found |= needed(part) - there
        there |= given(part)
    return found


def graph_inputs(graph: WalkGraph) -> list[str]:
    """The names a Walk is asked with, those of nodes first and in the order they are used."""
    used = [name for node in walk_nodes(graph.parts) for name in node.needs if name in graph.inputs]
    return list(dict.fromkeys([*used, *sorted(graph.inputs)]))


def passed_on(parts: Sequence[Part], index: int) -> list[str]:
    """Names that cross from the parts before ``index`` to those from it on, as they were given."""
    before = [name for part in parts[:index] for name in _in_order(part)]
    wanted = sequence_needs(parts[index:])
    return [name for name in dict.fromkeys(before) if name in wanted]


def results(graph: WalkGraph) -> list[str]:
    """What its Walk is asked for: as it says, or all that it gives and neither uses itself nor sends."""
    if graph.gives is not None:
        return list(graph.gives)
    parts = graph.parts
    nodes = list(walk_nodes(parts))
    sent = {name for node in nodes for name, _ in node.to}
    used = {name for node in nodes for name in node.needs} | set(_taken_by_frames(parts))
    there = dict.fromkeys(name for part in parts for name in _in_order(part))
    return [name for name in there if name not in sent and name not in used]


def _taken_by_frames(parts: Iterable[Part]) -> Iterator[str]:
    """Names that loops and fans themselves use."""
    for part in parts:
        match part:
            case Loop():
                yield from (*part.collect.values(), *part.each.values())
            case Fan():
                yield from part.over.values()
        if not isinstance(part, Node):
            yield from _taken_by_frames(part.parts)


def _in_order(part: Part) -> list[str]:
    wanted = given(part)
    match part:
        case Node():
            return list(part.gives)
        case Loop():
            return [*part.carry, *part.collect]
        case _:
            return [name for inner in part.parts for name in _in_order(inner) if name in wanted]


def _and(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
