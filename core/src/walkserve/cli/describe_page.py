"""The page of ``walkserve describe``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.text import Text

from walkserve.cli.pages import facts, page, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from walkserve.cli.describe import Description
    from walkserve.descriptions import OptionCard, OutputCard


def print_page(about: Description) -> None:
    """Print it."""
    console = page()

    heading = Text(about.name, style="bold")
    heading.append(f"   {about.plugin}", style="dim")
    console.print(heading)
    if about.summary:
        console.print(Text(about.summary))
    console.print()
    console.print(_facts(about))
    for title, rows in (
        ("Options", _options(about)),
        ("Components", _components(about)),
        ("Graphs", _graphs(about)),
        ("Tracks", _tracks(about)),
        ("Streams", _streams(about)),
    ):
        if rows is not None:
            console.print()
            console.print(Text(title, style="bold"))
            console.print(rows)


def _facts(about: Description) -> RenderableType:
    routes = [f"{route}  ({surface})" for surface, each in about.surfaces.items() for route in each]
    voices = "unknown: the checkpoint is not on this machine" if about.voices is None else "none"
    context = about.limits.context
    checkpoint = Text(about.checkpoint.label)
    if about.checkpoint.problem:
        checkpoint.append(f"\n{about.checkpoint.problem}", style="yellow")
    for part, files in about.checkpoint.parts.items():
        checkpoint.append(f"\n{part}: {files.folder or files.repo}", style="dim")
    return facts(
        {
            "takes": ", ".join(about.inputs),
            "makes": "\n".join(f"{name}: {_kind(card)}" for name, card in about.outputs.items()),
            "routes": "\n".join(routes) or "none of the standard ones",
            "voices": ", ".join(about.voices or ()) or voices,
            "context": f"{context:,} tokens" if context is not None else "not known",
            "bodies": f"up to {about.limits.body_bytes:,} bytes of JSON",
            "checkpoint": checkpoint,
            "variants": "\n".join(f"{name}: {line}" for name, line in about.variants.items()) or "none",
        }
    )


def _kind(card: OutputCard) -> str:
    more = [
        f"{card.rate:,} Hz" if card.rate is not None else "",
        {None: "", 1: "mono", 2: "stereo"}.get(card.channels, f"{card.channels} channels"),
        f"{card.fps:g} frames per second" if card.fps is not None else "",
        card.dtype or "",
        "any number of them" if card.many else "",
    ]
    return ", ".join([card.kind, *(each for each in more if each)])


def _options(about: Description) -> RenderableType | None:
    rows = [
        (
            name,
            _type(card),
            "none" if card.default is None else json.dumps(card.default),
            about.ranges[name],
            card.description,
        )
        for name, card in about.options.items()
    ]
    return table(("option", "type", "default", "range", "is"), rows)


def _type(card: OptionCard) -> str:
    return (
        "word"
        if card.enum
        else {"integer": "whole number", "string": "text"}.get(card.type or "", card.type or "any")
    )


def _components(about: Description) -> RenderableType | None:
    rows = []
    for name, part in about.components.items():
        keeps = []
        if part.cache is not None:
            others = part.cache.branches[1:]
            more = f", branches {', '.join(others)}" if others else ""
            keeps.append(f"a cache in pages of {part.cache.page_size} tokens{more}")
        keeps += ["a state"] if part.has_state else []
        rows.append((name, part.path, part.runs_on, " and ".join(keeps) or "nothing"))
    return table(("component", "class", "runs on", "keeps per request"), rows)


def _graphs(about: Description) -> RenderableType | None:
    rows = [
        (name, ", ".join(each.takes) or "nothing", ", ".join(each.calls))
        for name, each in about.graphs.items()
    ]
    return table(("graph", "takes", "calls"), rows)


def _tracks(about: Description) -> RenderableType | None:
    rows = [("(before admission)", ", ".join(about.prepares), "", "")] if about.prepares else []
    rows += [
        (name, ", ".join(each.walks), ", ".join(each.reads), ", ".join(each.writes))
        for name, each in about.tracks.items()
    ]
    return table(("track", "walks", "reads", "writes"), rows)


def _streams(about: Description) -> RenderableType | None:
    rows = [
        (name, f"{each.writer} → {each.reader}", each.policy, f"{each.limit:,}")
        for name, each in about.streams.items()
    ]
    return table(("stream", "from → to", "a helping is", "its writer waits at"), rows)
