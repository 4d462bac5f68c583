"""What a model is, as a command and a route tell it: one vocabulary of facts, read from its declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from walkserve_sdk import Component, Each, Fixed, LeftContext, Model, Output, SlidingWindow, Stream
from walkserve_sdk.graph import walk_nodes
from walkserve_sdk.option_notes import OptionNote, option_notes

ROUTES: Mapping[str, tuple[str, ...]] = {
    "audio.speech": ("POST /v1/audio/speech", "GET /v1/audio/voices"),
    "images.generations": ("POST /v1/images/generations",),
    "images.edits": ("POST /v1/images/edits",),
    "chat.completions": ("POST /v1/chat/completions",),
}
"""A standard surface's routes. What every model has, whatever it declares, stands under no surface."""


class OptionCard(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One option: JSON Schema of its value, and what it is. What is absent does not bound it."""

    description: str
    type: str | None = None
    default: Any = None
    enum: list[Any] | None = None
    minimum: float | None = None
    exclusive_minimum: float | None = None
    maximum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    also: str | None = None  # its long name, by which it may be set too


class OutputCard(Struct, frozen=True, omit_defaults=True):
    """One output: its kind, and the numbers of that kind."""

    kind: str
    rate: int | None = None
    channels: int | None = None
    fps: float | None = None
    dtype: str | None = None
    many: bool = False


class CacheCard(Struct, frozen=True):
    """A paged cache: tokens a page holds, and names under which one request may continue it."""

    page_size: int
    branches: tuple[str, ...]


class ComponentCard(Struct, frozen=True):
    """One component: what is imported, where it runs unless placed elsewhere, and what it keeps."""

    path: str
    runs_on: str  # "host" | "device"
    cache: CacheCard | None
    has_state: bool
    rows: int | None


class GraphCard(Struct, frozen=True):
    """One graph: the names it takes from outside, and its calls as they are written."""

    takes: tuple[str, ...]
    calls: tuple[str, ...]


class TrackCard(Struct, frozen=True):
    """One track: the graphs it may ask for, and the streams it reads and writes."""

    walks: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class StreamCard(Struct, frozen=True):
    """One stream: who writes and reads it, how much the reader gets at once, and when its writer waits."""

    writer: str
    reader: str
    policy: str
    limit: int


def surface_routes(
    family: type[Model], added: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> dict[str, list[str]]:
    """Surface -> the routes by which it is reached; one that nothing here has a route for is left out.

    Args:
        added: The same of routes that extensions add.
    """
    routes = {name: [*ROUTES.get(name, ()), *added.get(name, ())] for name in family.surfaces()}
    return {surface: each for surface, each in routes.items() if each}


def output_cards(family: type[Model]) -> dict[str, OutputCard]:
    """Every output, by name."""
    return {name: output_card(output) for name, output in family.spec.outputs.items()}


def output_card(output: Output) -> OutputCard:
    """One output."""
    kind = output.kind
    return OutputCard(
        kind.kind,
        **{name: getattr(kind, name, None) for name in ("rate", "channels", "fps", "dtype")},
        many=output.many,
    )


def notes_of(model: Model) -> tuple[OptionNote, ...]:
    """Every option once; where the checkpoint has voices, its first is the default."""
    notes = option_notes(type(model).Options)
    if not model.voices:
        return notes
    return tuple(replace(note, default=model.voices[0]) if note.name == "voice" else note for note in notes)


def option_cards(notes: Iterable[OptionNote]) -> dict[str, OptionCard]:
    """Options by their shortest names."""
    return {note.name: _option(note) for note in notes}


_KEYWORDS = {field.encode_name: field.name for field in msgspec.structs.fields(OptionCard)}
"""Of JSON Schema, those that a card has -> its field."""


def _option(note: OptionNote) -> OptionCard:
    known = {_KEYWORDS[word]: value for word, value in note.schema.items() if word in _KEYWORDS}
    return OptionCard(description=note.about, default=note.default, also=note.also or None, **known)


def component_card(component: Component) -> ComponentCard:
    """One component."""
    kv = component.kv
    return ComponentCard(
        path=component.path,
        runs_on="host" if component.device == "cpu" else "device",
        cache=CacheCard(kv.page_size, component.branches) if kv is not None else None,
        has_state=component.state,
        rows=component.rows,
    )


def graph_cards(family: type[Model]) -> dict[str, GraphCard]:
    """Every graph, by name."""
    return {
        name: GraphCard(
            tuple(sorted(graph.inputs)),
            tuple(f"{node.component.name}.{node.method}" for node in walk_nodes(graph.parts)),
        )
        for name, graph in family.spec.graphs.items()
    }


def track_cards(family: type[Model]) -> dict[str, TrackCard]:
    """Every track, by name."""
    spec = family.spec
    return {
        name: TrackCard(
            walks=spec.walks[name],
            reads=tuple(stream for stream, reader in spec.readers.items() if reader == name),
            writes=tuple(stream for stream, writer in spec.writers.items() if writer == name),
        )
        for name in spec.tracks
    }


def stream_cards(family: type[Model]) -> dict[str, StreamCard]:
    """Every stream, by name."""
    spec = family.spec
    return {
        name: StreamCard(
            writer=spec.writers.get(name, "the client"),
            reader=spec.readers[name],
            policy=policy_words(stream),
            limit=stream.limit,
        )
        for name, stream in spec.streams.items()
    }


def policy_words(stream: Stream) -> str:
    """How much of a stream is one helping, in words."""
    match stream.policy:
        case Each():
            return "one at a time"
        case Fixed(n=n, limit=most) if most == n:
            return f"{n} at a time"
        case Fixed(n=n, limit=most):
            return f"multiples of {n}, up to {most}"
        case SlidingWindow(size=size, step=step):
            return f"windows of {size}, every {step}"
        case LeftContext(n=n, context=context):
            return f"{n} at a time, behind {context} of context"
        case other:
            return repr(other)


def first_line(family: type[Model]) -> str:
    """The family's own summary: the first line of its docstring, without its full stop."""
    lines = (family.__doc__ or "").strip().splitlines()
    return lines[0].strip().removesuffix(".") if lines else ""
