"""A route says what is to be done; an option that says so too has to say the same."""

from __future__ import annotations

from typing import Any

from walkserve_sdk.errors import BadRequest
from walkserve_sdk.serving import Exchange


def refuse_task(exchange: Exchange[Any], task: str) -> None:
    """Raises BadRequest where the client's option ``task`` says something else."""
    told = exchange.options.get("task")
    if told not in (None, task):
        raise BadRequest(f"task is {told!r}, and what is asked here is {task!r}; leave it out", param="task")
