"""What is checked of tracks: which Walks they ask for, and that every stream has one end each side."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

from walkserve_sdk.checks_graph import Found
from walkserve_sdk.errors import DeclarationError
from walkserve_sdk.graph import WalkGraph
from walkserve_sdk.ports import Output
from walkserve_sdk.streams import Stream
from walkserve_sdk.tracks import TrackSpec


def _mentions(model: type, function: Any) -> dict[str, None]:
    """Attributes of ``self`` that a method uses, through the methods of the model it calls, as they come.

    Only of ``self``: a track that says ``text.encode()`` does not ask for the graph ``encode``.
    """
    names: dict[str, None] = {}
    _gather(model, function, names)
    return names


def _gather(model: type, function: Any, names: dict[str, None]) -> None:
    """A helper's own come where it is first called."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    for name in _attributes(code, code.co_varnames[0]) if code and code.co_argcount else ():
        if name not in names:
            names[name] = None
            helper = getattr(model, name, None)
            if hasattr(helper, "__code__"):
                _gather(model, helper, names)


def _attributes(code: CodeType, owner: str) -> Iterator[str]:
    before: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and before is not None:
            # newer interpreters load two variables at once; the last is the one whose attribute is read
            loaded = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
            if before.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and loaded == owner:
                yield instruction.argval
        before = instruction
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attributes(constant, owner)


def _graphs_of(model: type, function: Any, found: Found) -> list[WalkGraph]:
    graphs = found[WalkGraph]
    return [graphs[name] for name in _mentions(model, function) if name in graphs]


def asked_by(model: type, function: Any, found: Found) -> tuple[str, ...]:
    """Names of the graphs that a track or ``prepare`` may ask for: those it mentions, as they come."""
    return tuple(graph.name for graph in _graphs_of(model, function, found))


def check_prepare(model: type, found: Found) -> None:
    """Before admission there is no device, and nothing to stream to."""
    for graph in _graphs_of(model, getattr(model, "prepare", None), found):
        for node in graph.nodes():
            if node.component.device != "cpu":
                raise DeclarationError(
                    f"{model.__name__}.prepare: {graph.name!r} calls {node.component.name!r}, which is on "
                    "the device; prepare runs before admission, on Component(..., device='cpu') only"
                )
            targets = [target for _, target in node.to]
            for end in (*node.reads, *targets):
                verb = "reads" if end in node.reads else "writes"
                raise DeclarationError(
                    f"{model.__name__}.prepare: {graph.name!r} {verb} {end.name!r}; "
                    "prepare runs before the request's streams and outputs exist: do it in a track"
                )


def stream_ends(model: type, found: Found) -> tuple[dict[str, str], dict[str, str]]:
    """The reading and the writing track of every stream, by its name; exactly one of each."""
    readers: dict[str, str] = {}
    writers: dict[str, str] = {}
    for track in found[TrackSpec].values():
        place = f"{model.__name__}.{track.name}"
        for stream in track.writes:
            if stream.by == "client":
                raise DeclarationError(
                    f"{place}: it writes {stream.name!r}, but that stream is written by the client"
                )
            if stream.name in writers:
                raise DeclarationError(
                    f"{place}: {stream.name!r} is already written by {writers[stream.name]!r}; "
                    "a stream has one writer"
                )
            writers[stream.name] = track.name
        written: list[Stream] = []
        for graph in _graphs_of(model, track.function, found):
            for node in graph.nodes():
                written += [target for _, target in node.to if isinstance(target, Stream)]
                for stream in node.reads:
                    if readers.setdefault(stream.name, track.name) != track.name:
                        raise DeclarationError(
                            f"{place}: {stream.name!r} is already read by {readers[stream.name]!r}; "
                            "a stream has one reader"
                        )
                for _, target in node.to:
                    if isinstance(target, Stream) and target not in track.writes:
                        raise DeclarationError(
                            f"{place}: its Walk {graph.name!r} writes {target.name!r}; "
                            f"say so with @track(writes={target.name})"
                        )
        for stream in track.writes:
            if stream not in written:
                raise DeclarationError(
                    f"{place}: it says that it writes {stream.name!r}, but none of its Walks does; "
                    f"write to={stream.name} on a node"
                )
    for stream in found[Stream].values():
        if stream.name not in readers:
            raise DeclarationError(
                f"{model.__name__}.{stream.name}: no track reads this stream; delete it, or read it"
            )
        if stream.by == "track" and stream.name not in writers:
            raise DeclarationError(
                f"{model.__name__}.{stream.name}: no track writes this stream; "
                f"write @track(writes={stream.name}), or Stream(by='client')"
            )
    return readers, writers


def check_used(model: type, found: Found) -> None:
    """What a class declares is used: not what it inherits, nor in a base for others, which has no tracks."""
    if not found[TrackSpec]:
        return
    functions = [getattr(model, "prepare", None), *(track.function for track in found[TrackSpec].values())]
    mentioned = {name for function in functions for name in _mentions(model, function)}
    for name in found[WalkGraph]:
        if name in vars(model) and name not in mentioned:
            raise DeclarationError(
                f"{model.__name__}.{name}: neither a track nor prepare asks for this graph; "
                f"yield self.{name}(...) in a track, or delete it"
            )
    nodes = [node for graph in found[WalkGraph].values() for node in graph.nodes()]
    written = {id(target) for node in nodes for _, target in node.to}
    for name, output in found[Output].items():
        if name in vars(model) and id(output) not in written:
            raise DeclarationError(
                f"{model.__name__}.{name}: no node writes this output; write to={name} on one, or delete it"
            )


def check_acyclic(model: type, readers: Mapping[str, str], writers: Mapping[str, str]) -> None:
    """Tracks that wait for each other in a circle would wait for ever."""
    follows: dict[str, set[str]] = {}
    for stream, writer in writers.items():
        follows.setdefault(writer, set()).add(readers[stream])
    for start in follows:
        reached, waiting = set(), [start]
        while waiting:
            for after in follows.get(waiting.pop(), ()):
                if after == start:
                    raise DeclarationError(
                        f"{model.__name__}.{start}: it reads, by way of streams, what it writes itself; "
                        "tracks and streams must not form a circle"
                    )
                if after not in reached:
                    reached.add(after)
                    waiting.append(after)
