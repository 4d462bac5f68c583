"""The options that every command has which serves or runs a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from walkserve.cli.settings import MODEL_SETTINGS, options
from walkserve.cli.settle import Settled, settle

F = TypeVar("F", bound=Callable[..., Any])


def model_options(command: F) -> F:
    """Give a command ``log_level``, and what ``resolve_models`` takes of any command."""

    @wraps(command)
    def settled_command(**given: Any) -> Any:
        flags = {setting.name: given.pop(setting.name) for setting in MODEL_SETTINGS}
        settled = settle(MODEL_SETTINGS, file={}, environ=os.environ, flags=flags)
        level = settled["log_level"].value
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")  # to stderr
        logging.getLogger("walkserve").setLevel(level.upper())
        return command(log_level=level, **given, **choices(settled))

    return options(MODEL_SETTINGS)(settled_command)  # type: ignore[return-value]


def choices(settled: Mapping[str, Settled]) -> dict[str, Any]:
    """What ``resolve_models`` takes, of any command."""
    as_they_are = (
        *("device", "dtype", "deterministic", "cache_tokens", "token_budget"),
        *("revision", "offline", "plugins"),
    )
    token = settled["hub_token_file"]
    return {name: settled[name].value for name in as_they_are} | {
        "token": None if token.value is None else _read_token(token.value, token.origin)
    }


def _read_token(path: Path, origin: str) -> str:
    token = path.read_text("utf-8", errors="replace").strip()
    if not token or len(token.split()) > 1:
        raise click.BadParameter(f"{path} must hold a token and nothing else", param_hint=origin)
    return token
