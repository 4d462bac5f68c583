"""``walkserve list-models``: what is installed, from metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

if TYPE_CHECKING:
    from walkserve.plugins import ModelListing

WIDTH_OF_A_PIPE = 200  # a table that goes into a file or to grep is not folded to a terminal's width


@click.command("list-models")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(as_json: bool) -> None:
    """List the models that are installed, and what keeps broken ones from being served."""
    from walkserve.plugins import list_models

    models = list_models()
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode({"models": models}), indent=2))
    elif models:
        _print_table(models)
    else:
        click.echo("No model is installed: install its plugin with pip.")


def _print_table(models: list[ModelListing]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    table = Table(box=SIMPLE_HEAD)
    for heading in ("model", "summary", "variants", "in → out", "plugin"):
        table.add_column(heading, no_wrap=heading in ("model", "plugin"), overflow="fold")
    for model in models:
        about = Text(model.summary)
        if model.problem:
            about.append(f"{' ' if model.summary else ''}broken: {model.problem}", style="red")
        ways = f"{', '.join(model.inputs)} → {', '.join(model.outputs)}" if model.outputs else ""
        plugin = f"{model.distribution} {model.version}"
        table.add_row(Text(model.name), about, Text(", ".join(model.variants)), Text(ways), Text(plugin))
    console.print(table)
