"""The options that several commands have, written once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

F = TypeVar("F", bound=Callable[..., Any])


def _start_logging(context: click.Context, parameter: click.Parameter, level: str) -> str:
    """Logs go to stderr; stdout is for what a command gives."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("walkserve").setLevel(level.upper())
    return level


def _read_token(context: click.Context, parameter: click.Parameter, path: Path | None) -> str | None:
    if path is None:
        return None
    token = path.read_text("utf-8", errors="replace").strip()
    if not token or len(token.split()) > 1:
        raise click.BadParameter(f"{path} must hold a token and nothing else", param_hint="--hub-token-file")
    return token


# The words that device and dtype may be are checked in walkserve.resolve, which says why float16 is none.
_MODEL_OPTIONS = (
    click.option(
        "--device", default="auto", show_default=True, metavar="auto|cpu|cuda", help="Where the model runs."
    ),
    click.option(
        "--dtype",
        default="auto",
        show_default=True,
        metavar="auto|float32|bfloat16",
        help="Of weights and arithmetic. auto: float32 on a CPU, bfloat16 on a GPU.",
    ),
    click.option(
        "--deterministic", is_flag=True, help="A request gives the same whatever it is batched with; slower."
    ),
    click.option(
        "--cache-tokens",
        type=click.IntRange(min=1),
        metavar="N",
        help="Tokens a model's cache holds, on a CPU.",
    ),
    click.option("--revision", metavar="REVISION", help="Branch, tag or commit of the hub's repository."),
    click.option(
        "--offline",
        is_flag=True,
        envvar="HF_HUB_OFFLINE",
        show_envvar=True,
        help="Take only what is in the hub's local cache.",
    ),
    click.option(
        "--hub-token-file",
        "token",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=_read_token,
        metavar="FILE",
        help="A file with the hub's token, for gated and private repositories. HF_TOKEN has it else.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        is_eager=True,
        callback=_start_logging,
        help="debug also shows where an error came from.",
    ),
)


def model_options(command: F) -> F:
    """Give a command ``log_level``, and what ``resolve_models`` takes of any command."""
    for option in reversed(_MODEL_OPTIONS):
        command = option(command)
    return command
