"""One turn of one block: its slots, and what is still to come before it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from walkserve.graph.plan import Block

if TYPE_CHECKING:
    from walkserve.worker.fan_run import FanRow
    from walkserve.worker.twins import First
    from walkserve.worker.walk_run import LoopRun


class Frame:
    """One turn of one loop; the whole of a graph, or of a Fan's row, where there is none.

    Args:
        row: The row of a Fan that it belongs to, also within a loop of that row.
    """

    __slots__ = (
        "before",
        "block",
        "critical",
        "firsts",
        "is_dropped",
        "left",
        "loop",
        "row",
        "slots",
        "turn",
        "undo",
        "waits",
    )

    def __init__(
        self, block: Block, slots: list[Any], loop: LoopRun | None, turn: int, row: FanRow | None = None
    ) -> None:
        self.block = block
        self.slots = slots
        self.waits = block.waits.copy()
        self.left = len(block.children)
        self.critical = block.critical
        self.loop = loop
        self.turn = turn
        self.row = row
        self.firsts: dict[tuple[int | None, int], First] | None = None  # calls that equal ones may be given
        self.is_dropped = False  # its loop, or its row, had stopped before: nothing of it counts
        # Where nodes trail, a turn may have run ahead of one that stops: what it takes to forget it.
        self.undo: list[Callable[[], None]] | None = [] if block.trails else None
        self.before: tuple[list[Any], list[int]] | None = (
            None  # carried, and lengths collected, before this turn
        )
