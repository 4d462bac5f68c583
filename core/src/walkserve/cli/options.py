"""The options that several commands have, written once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

F = TypeVar("F", bound=Callable[..., Any])


def _start_logging(context: click.Context, parameter: click.Parameter, level: str) -> str:
    """Logs go to stderr; stdout is for what a command gives."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("walkserve").setLevel(level.upper())
    return level


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
        help="Of weights and arithmetic. auto: float32 on a CPU, the checkpoint's own on a GPU.",
    ),
    click.option(
        "--deterministic", is_flag=True, help="A request gives the same whatever it is batched with; slower."
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
    """Give a command the options of whatever runs a model."""
    for option in reversed(_MODEL_OPTIONS):
        command = option(command)
    return command
