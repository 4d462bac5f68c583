"""The page of ``walkserve replay``: a request as a story, and whether its plan still tells it so."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from walkserve.cli.pages import facts, page, table
from walkserve.journal import entries as e
from walkserve.journal.words import differences, does, place, says, value_words
from walkserve_sdk.errors import shown

if TYPE_CHECKING:
    from rich.console import Console

    from walkserve.conductor.replay import Parting, Replay
    from walkserve.journal.reading import Recorded


def print_page(file: Path, recorded: Recorded, result: Replay, notes: list[str]) -> None:
    """Print it."""
    console = page()
    opened = recorded.opened
    heading = Text(opened.label or f"request {opened.number}", style="bold")
    heading.append(f"   {opened.model}", style="bold")
    heading.append(f"   {opened.origin.plugin} {opened.origin.version}", style="dim")
    console.print(heading)
    console.print(facts(_facts(opened)))
    console.print()
    console.print(_story(recorded, result))
    for error in result.errors:
        console.print()
        told = "".join(traceback.format_exception(error)).rstrip()
        console.print(Text(told, style="dim"), soft_wrap=True)
    console.print()
    for note in notes:
        console.print(Text(note, style="yellow"), soft_wrap=True)
    _verdict(console, file, recorded, result)


def _facts(opened: e.Opened) -> dict[str, str | Text]:
    return {
        "accepted": opened.time,
        "checkpoint": opened.origin.checkpoint,
        "parts": "\n".join(_part(part) for part in opened.parts) or "none",
        "outputs": ", ".join(opened.outputs),
        "options": ", ".join(f"{name}={_option(name, opened)}" for name in opened.given) or "none given",
        "seed": str(opened.seed),
    }


def _part(part: e.PartNote) -> str:
    kind = f"{part.kind}[{part.name}]" if part.name else part.kind
    return f"{kind} {shown(part.text) if part.media is None else value_words(part.media)}"


def _option(name: str, opened: e.Opened) -> str:
    """A nested option lies flat in a request, under its own name or with a dot."""
    field, _, inner = name.partition(".")
    value = opened.options.get(field)
    if inner and isinstance(value, dict):
        return shown(value.get(inner))
    if name in opened.options:
        return shown(value)
    nested = (each for each in opened.options.values() if isinstance(each, dict) and name in each)
    return shown(next(nested, {}).get(name))


def _story(recorded: Recorded, result: Replay) -> object:
    rows = []
    for number, entry in enumerate(recorded.entries):
        style = "" if number < result.agreed else "red" if number == result.agreed else "dim"
        cells = (str(number + 1), f"{entry.at_ms:,.1f}", place(entry), says(entry))
        rows.append([Text(cell, style=style) for cell in cells])
    return table(("line", "ms", "where", "what"), rows)


def _verdict(console: Console, file: Path, recorded: Recorded, result: Replay) -> None:
    if result.parting is not None:
        for line in _parting(file, result.parting):
            console.print(Text(line, style="red"), soft_wrap=True)
        return
    walks = sum(isinstance(entry, e.WalkStarted) for entry in recorded.entries)
    told = (
        f"The plan agrees with the journal: {result.agreed} lines, {walks} Walk{'' if walks == 1 else 's'}."
    )
    if recorded.cut:
        told = (
            f"The plan agrees with the journal as far as that goes ({recorded.cut}): {result.agreed} lines."
        )
    console.print(Text(told, style="green"), soft_wrap=True)


def _parting(file: Path, parting: Parting) -> list[str]:
    journal, plan = parting.journal, parting.plan
    one = journal if journal is not None else plan
    assert one is not None  # one of the two goes on
    theirs = "has nothing more" if journal is None else f"has {says(journal)}"
    ours = "asks for nothing here" if plan is None else does(plan)
    other = (
        f" ({place(plan)})" if plan is not None and journal is not None and place(plan) != place(one) else ""
    )
    lines = [
        f"They part at line {parting.line} of {file}.",
        f"{place(one)}: the journal {theirs}, this plan {ours}{other}",
    ]
    if journal is not None and plan is not None:
        lines += [f"  {each}" for each in differences(journal, plan)]
    return lines
