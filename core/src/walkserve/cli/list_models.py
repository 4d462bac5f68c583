"""``walkserve list-models``: what is installed, from metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

if TYPE_CHECKING:
    from walkserve.plugins import ModelListing


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
        _print(models)
    else:
        click.echo("No model is installed: install its plugin with pip.")


def _print(models: list[ModelListing]) -> None:
    """A table of what can be served, and below it what cannot, each with the reason."""
    from rich.text import Text

    from walkserve.cli.pages import facts, page, table

    console = page()
    rows = [
        (
            each.name,
            each.summary,
            ", ".join(each.variants),
            _ways(each),
            f"{each.distribution} {each.version}",
        )
        for each in models
        if not each.problem
    ]
    made = table(("model", "summary", "variants", "in → out", "plugin"), rows)
    if made is not None:
        console.print(made)
    broken = [each for each in models if each.problem]
    if not broken:
        return
    if made is not None:
        console.print()
    console.print(Text("Broken", style="bold red"))
    told: dict[str, Text] = {}
    for each in broken:  # a name that two claim has one problem and two plugins
        said = told.setdefault(each.name, Text(each.problem, style="red"))
        said.append(f"\n{each.distribution} {each.version}".rstrip(), style="dim")
    console.print(facts(told))


def _ways(model: ModelListing) -> str:
    return f"{', '.join(model.inputs)} → {', '.join(model.outputs)}" if model.outputs else ""
