"""One Fan while its rows run: which slice is next, who is open, and what they gave.

Rows start in order, as many at once as there is room for, and end in any; what they gave is put together
in the order of their slices::

    row 0   step ─ step ─ step
    row 1   step ─ step  stop!
    row 2                      step ─ step ─ step     it waited for the pages of row 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from walkserve.graph.plan import FanOp
from walkserve.worker.frame import Frame
from walkserve_sdk.errors import ComponentError, WalkFailed

if TYPE_CHECKING:
    from walkserve.worker.live import Branch
    from walkserve.worker.walk_run import Call, WalkRun

At = tuple[str, str]
"""A component, and the name of its branch."""


class FanRow:
    """One row, from its start to its end.

    Attributes:
        branches: Its own forks, by what they are forks of.
        in_flight: Calls of it in batches that are not finished; its forks are kept until there are none.
        ended_by: Why its last loop ended, or itself.
    """

    __slots__ = ("branches", "ended_by", "fan", "frame", "in_flight", "index", "is_over")

    def __init__(self, fan: FanRun, index: int, branches: Mapping[At, Branch]) -> None:
        self.fan = fan
        self.index = index
        self.branches = branches
        self.in_flight = 0
        self.ended_by: str | None = None
        self.is_over = False
        self.frame = Frame(fan.op.body, fan.slots_of(index), None, fan.outer.turn, self)

    def check(self, call: Call) -> None:
        """Whether a call stays within the room that a row is given.

        Raises:
            ComponentError: It would need more than the family's budget says, and might wait for it for ever.
        """
        component = call.op.component
        most, length = self.fan.run.most.get(component), call.branch.table.length
        if most is not None and length + call.tokens > most:
            raise ComponentError(
                f"{call.op.place}: row {self.index} of a Fan comes to {length + call.tokens} tokens, but "
                f"the family's budget() says that a branch of {component} has {most} at most"
            )


class FanRun:
    """One Fan of one frame.

    Args:
        outer: The frame that it is a child in.

    Attributes:
        base: What its rows are forks of: the branches as they were when it began.
        total: Rows; those below ``next`` have started, and of them those in ``open`` have not ended.

    Raises:
        WalkFailed: What it goes over has no slices, or not as many of each.
    """

    __slots__ = ("_inside", "_slices", "base", "next", "number", "op", "open", "outer", "rows",
                 "run", "total")  # fmt: skip

    def __init__(self, run: WalkRun, op: FanOp, outer: Frame) -> None:
        self.run = run
        self.op = op
        self.outer = outer
        self.number = 0  # among those of its request
        self._slices: list[tuple[int, Sequence[Any]]] = [(to, outer.slots[slot]) for slot, to in op.over]
        self._inside: list[Any] = [None] * op.body.slots
        for source, target in op.imports:
            self._inside[target] = outer.slots[source]
        self.total = self._count()
        self.next = 0
        self.open: list[FanRow] = []
        self.rows: list[tuple[tuple[Any, ...], str | None]] = [((), None)] * self.total
        self.base: dict[At, Branch] = {}

    def _count(self) -> int:
        lengths: dict[str, int] = {}
        for source, (_, items) in zip(self.op.sources, self._slices, strict=True):
            try:
                lengths[source] = len(items)
            except TypeError:  # a number, nothing, or a tensor without dimensions
                raise WalkFailed(
                    f"{self.op.place} goes over {source!r}, which has no slices but is one "
                    f"{type(items).__name__}"
                ) from None
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{source!r} has {length}" for source, length in lengths.items())
            raise WalkFailed(f"{self.op.place} over inputs of different lengths: {told}")
        return next(iter(lengths.values()))

    def slots_of(self, index: int) -> list[Any]:
        """What a row begins with."""
        slots = self._inside.copy()
        for target, items in self._slices:
            slots[target] = items[index]
        return slots

    def start_row(self, branches: Mapping[At, Branch]) -> FanRow:
        """The next one, on forks of its own."""
        row = FanRow(self, self.next, branches)
        self.next += 1
        self.open.append(row)
        return row

    def end_row(self, row: FanRow) -> None:
        """It is over, and what it gave is kept."""
        row.is_over = True
        self.open.remove(row)
        slots = row.frame.slots
        self.rows[row.index] = tuple(slots[slot] for slot, _ in self.op.gives), row.ended_by

    @property
    def is_done(self) -> bool:
        """Whether every row has ended."""
        return self.next == self.total and not self.open

    @property
    def ended_by(self) -> str | None:
        """Of the last row that has a reason, whichever ended last."""
        return next((reason for _, reason in reversed(self.rows) if reason is not None), None)

    def give(self, stack: Callable[[list[Any]], Any]) -> None:
        """Into the outer frame, what all rows gave, in order."""
        for index, (_, target) in enumerate(self.op.gives):
            self.outer.slots[target] = stack([values[index] for values, _ in self.rows])
