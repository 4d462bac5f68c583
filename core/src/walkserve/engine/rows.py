"""What an engine is asked and what it answers, row by row. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from walkserve_sdk.runtime import Stop

UNCHANGED: Any = object()
"""A state the method did not assign."""


@dataclass(slots=True)
class Row:
    """One call, or a piece of one, as an engine sees it.

    Args:
        values: By the names the node takes; helpings under their stream's name.
        branch: Its pages, state and what sampling has seen; only read before the batch is finished.
        tokens: How many of its tokens this piece holds, from index ``done`` on.
        is_last: False for a piece of a split row that more follow.
        key: (seed, fan index, track, Walk number): of the row's random streams.
        gives: Names its node declares; None leaves what the method returns unchecked.
    """

    values: dict[str, Any]
    branch: Any
    options: Any
    key: tuple[int | str, ...]
    turn: int = 0
    tokens: int = 1
    done: int = 0
    is_last: bool = True
    keeps: bool = True
    gives: tuple[str, ...] | None = None


@dataclass(slots=True)
class RowResult:
    """What one row gave; committed by the worker when the batch is finished. ``sampled`` counts its draws."""

    gives: dict[str, Any] = field(default_factory=dict)
    stop: Stop | None = None
    state: Any = UNCHANGED
    seen: Any = UNCHANGED
    counts: dict[str, int] | None = None
    sampled: int = 0


class Pending(Protocol):
    """A submitted batch."""

    def is_ready(self) -> bool:
        """Whether ``finish`` would not wait."""

    def finish(self) -> list[RowResult]:
        """Wait for it. Raises what the component raised."""


class Engine(Protocol):
    """Runs batches of the components a worker holds."""

    def submit(self, key: tuple[str, str], rows: Sequence[Row]) -> Pending:
        """Start one batch. On a device this returns early; on a CPU the batch is then already done."""
