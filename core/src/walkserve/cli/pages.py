"""Pages of text on a terminal or in a pipe: tables and lists of facts that look alike in every command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDTH_OF_A_PIPE = 200
"""A table that goes into a file or to grep is not folded to a terminal's width."""


def page() -> Console:
    """Where a command's page goes."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    return console


def facts(rows: Mapping[str, str | Text]) -> Table:
    """What is the case, by name."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows.items():
        grid.add_row(name, value if isinstance(value, Text) else Text(value))
    return grid


def table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table | None:
    """A table, its first column never folded; None where it would be empty."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    if not rows:
        return None
    made = Table(box=SIMPLE_HEAD, show_edge=False)
    for index, heading in enumerate(headings):
        made.add_column(heading, no_wrap=not index, overflow="fold", style=None if index else "cyan")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made
