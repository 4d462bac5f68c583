"""``walkserve graph``: a family's tracks, Walks and streams as a picture."""

from __future__ import annotations

from pathlib import Path

import rich_click as click


@click.command("graph")
@click.argument("name", metavar="NAME")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "svg"]),
    help="mermaid unless --out FILE ends in .svg.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the picture goes; stdout if absent.",
)
def command(name: str, form: str | None, out: Path | None) -> None:
    """Draw a model's Walks and tracks, as Mermaid or as SVG."""
    from walkserve.graph.drawing import draw_mermaid, draw_svg
    from walkserve.model_names import parse_model_name
    from walkserve.plugins import load_model

    family = load_model(parse_model_name(name).family)
    is_svg = form == "svg" or (form is None and out is not None and out.suffix.lower() == ".svg")
    drawn = draw_svg(family) if is_svg else draw_mermaid(family)
    if out is None:
        click.echo(drawn, nl=False)
        return
    try:
        out.write_text(drawn, "utf-8")
    except OSError as error:
        raise click.FileError(str(out), error.strerror or str(error)) from error
