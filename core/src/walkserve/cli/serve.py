"""``walkserve serve``: one server for one or several models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from walkserve.cli.options import model_options


@click.command("serve")
@click.argument("names", metavar="NAME[:VARIANT][=CHECKPOINT]...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one."
)
@click.option(
    "--placement",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="YAML or TOML: which component is on which rank.",
)
@click.option("--profile", is_flag=True, help="Note where the time of each request goes; see `profile`.")
@model_options
def command(names: tuple[str, ...], host: str, port: int, log_level: str, **choices: Any) -> int:
    """Serve models over HTTP.

    A CHECKPOINT is a folder, or a hub id as owner/name@revision; without one, the family's own is taken.
    """
    from walkserve.resolve import resolve_models

    models = resolve_models(names, **choices)
    from walkserve.supervisor import serve

    return serve(models, host=host, port=port, log_level=log_level)
