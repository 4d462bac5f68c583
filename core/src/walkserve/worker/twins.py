"""Equal calls of one Parallel: one of them is computed, and the others are given what it gave.

Which nodes may be equal is known from their graph (``Op.twins``): calls of one method with the same values
that keep nothing, hold no state and read no stream. Of one frame they are equal where what their branches
hold is, which is known by identity: a fork has its origin's content, and what is kept makes a new one::

    velocity @ main       content 7    computed ──┬── full
    velocity @ no_text    content 3    computed ──│────────── no_text
    velocity @ no_image   content 7    ┄┄┄┄┄┄┄┄┄┄┄┴── no_image       a fork of main, unchanged since

They draw the same numbers too, as they have one key. Nothing tells a call that was computed from one that was
not, but that it took no time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from walkserve.engine.rows import UNCHANGED, RowResult

if TYPE_CHECKING:
    from walkserve.worker.walk_run import Call


class First:
    """A call that is computed, the equal ones that came after it, and what it gave once that is known."""

    __slots__ = ("call", "others", "result")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.others: list[Call] = []
        self.result: RowResult | None = None


class Twins:
    """Of all frames in one worker; each frame holds its own.

    Attributes:
        due: Calls that need not wait for their equal any more, with what it gave; None where it cannot
            stand for them, and they have to be offered again.
    """

    def __init__(self) -> None:
        self.due: deque[tuple[Call, RowResult | None]] = deque()

    def joins(self, call: Call) -> bool:
        """Whether an equal call of its frame was there before, and it is given what that one gives."""
        frame, at = call.frame, (call.op.twins, call.branch.content_id())
        if frame.firsts is None:
            frame.firsts = {}
        first = frame.firsts.get(at)
        if first is None:
            frame.firsts[at] = First(call)
            return False
        if first.result is None:
            first.others.append(call)
        else:
            self.due.append((call, _as_of(call, first.result)))
        return True

    def computed(self, call: Call, result: RowResult) -> None:
        """It is about to be committed: whatever else it changes, its equals were equal until now."""
        firsts = call.frame.firsts or {}
        at = next((at for at, first in firsts.items() if first.call is call), None)
        if at is None:
            return
        first = firsts[at]
        if at[1] == call.branch.content:
            first.result = result
            self.due.extend((other, _as_of(other, result)) for other in first.others)
        else:  # another track has written the branch since
            del firsts[at]
            self.due.extend((other, None) for other in first.others)
        first.others = []

    def waiting_for(self, call: Call) -> Iterable[Call]:
        """Its equals that are not computed."""
        firsts: Iterable[First] = (call.frame.firsts or {}).values()
        return [other for first in firsts if first.call is call for other in first.others]


def _as_of(call: Call, result: RowResult) -> RowResult:
    """What an equal call gave, by this one's name for it."""
    gives = dict(zip(call.op.gives_names, result.gives.values(), strict=False))
    return replace(result, gives=gives, state=UNCHANGED)
