"""``walkserve serve --show-config``: every setting, its value, and where that came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rich_click as click

from walkserve.cli.config_file import NamedModel
from walkserve.cli.settings import MODELS, SERVE_SETTINGS, shown
from walkserve.cli.settle import Settled, Source


@dataclass(frozen=True)
class _Row:
    setting: str
    value: Any
    origin: str


def show(settled: Mapping[str, Settled], models: Sequence[NamedModel], *, as_json: bool) -> None:
    """Print them. Of files with secrets there is the path only."""
    rows = [*_model_rows(settled, models), *_rows(settled)]
    if as_json:
        said = [{"setting": row.setting, "value": row.value, "from": row.origin} for row in rows]
        click.echo(json.dumps({"settings": said}, indent=2, default=str))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console.width = 200  # not folded where a program reads it
    table = Table(box=SIMPLE_HEAD)
    for heading in ("setting", "value", "from"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in (row.setting, shown(row.value), row.origin)))
    console.print(table)


def _rows(settled: Mapping[str, Settled]) -> Iterator[_Row]:
    for setting in SERVE_SETTINGS:
        one = settled[setting.name]
        yield _Row(setting.name, one.value, one.origin)


def _model_rows(settled: Mapping[str, Settled], models: Sequence[NamedModel]) -> Iterator[_Row]:
    """Models, and what is set for one of them alone and not overruled for all."""
    if not models:
        yield _Row(MODELS, None, "default")
    for number, model in enumerate(models):
        yield _Row(f"{MODELS}[{number}]", model.name, model.where)
        for key, own in model.own.items():
            if settled[key].source <= Source.FILE:
                yield _Row(f"{MODELS}[{number}].{key}", own.value, own.origin)
