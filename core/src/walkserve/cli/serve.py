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
@click.option(
    "--cache-tokens", type=click.IntRange(min=1), metavar="N", help="Tokens a model's cache holds, on a CPU."
)
@click.option("--revision", metavar="REVISION", help="Branch, tag or commit of the hub's repository.")
@click.option(
    "--offline",
    is_flag=True,
    envvar="HF_HUB_OFFLINE",
    show_envvar=True,
    help="Take only what is in the hub's local cache.",
)
@click.option(
    "--hub-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file with the hub's token, for gated and private repositories. HF_TOKEN has it else.",
)
@model_options
def command(
    names: tuple[str, ...], host: str, port: int, log_level: str, hub_token_file: Path | None, **choices: Any
) -> int:
    """Serve models over HTTP.

    A CHECKPOINT is a folder, or a hub id as owner/name@revision; without one, the family's own is taken.
    """
    from walkserve.resolve import resolve_models

    models = resolve_models(names, token=_read_token(hub_token_file), **choices)
    from walkserve.supervisor import serve

    return serve(models, host=host, port=port, log_level=log_level)


def _read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    token = path.read_text("utf-8", errors="replace").strip()
    if not token or len(token.split()) > 1:
        raise click.BadParameter(f"{path} must hold a token and nothing else", param_hint="--hub-token-file")
    return token
