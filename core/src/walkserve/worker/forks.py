"""The forks that rows of a Fan run on, and which rows have to wait for pages.

A row beyond those that run starts only with all the pages it may ever need, so that it ends whatever
happens to the pool; it takes them only while nobody else waits for any. One row of a Fan may always run:
its request's reservation has room for it, and like any other call it waits for pages that others have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from walkserve.worker.fan_run import At, FanRow, FanRun
from walkserve.worker.live import Branch, Live
from walkserve.worker.room import Cache, Room

if TYPE_CHECKING:
    from walkserve.worker.walk_run import Call

Copies = dict[str, list[tuple[int, int]]]
"""Component -> pages to copy, from and to."""


class Forks:
    """Of all rows in one worker. They stand among their request's branches, under names of their own.

    Args:
        branch: The request's own branch, by its name; it is made where there is none.
    """

    def __init__(self, caches: Mapping[str, Cache], room: Room, branch: Callable[[Live, At], Branch]) -> None:
        self._caches = caches
        self._room = room
        self._branch = branch
        self._waiting: list[FanRun] = []
        self.fans_open = 0
        """Fans whose rows may be in a batch."""

    @property
    def waiting(self) -> bool:
        """Whether rows wait for room."""
        return bool(self._waiting)

    @property
    def fans(self) -> list[FanRun]:
        """Those with rows that wait, of the oldest request first."""
        return sorted(self._waiting, key=lambda fan: fan.run.live.opened.number)

    def begin(self, fan: FanRun) -> None:
        """Hold on to the branches as they are: all rows go on from there, the last as the first."""
        self.fans_open += 1
        live = fan.run.live
        live.fans += 1
        fan.number = live.fans
        for at in fan.op.forks:
            fan.base[at] = live.branches[_name(fan, at)] = self._branch(live, at).fork()

    def start(self, fan: FanRun) -> list[FanRow]:
        """Start as many rows as may run now."""
        if fan.next == fan.total:
            return []
        live, started = fan.run.live, list[FanRow]()
        copies: Copies = defaultdict(list)
        room = self._room_of(fan)
        wants = None if room is None else self._pages_of(fan, room)
        while fan.next < fan.total:
            has_room = wants is not None and (not wants or self._room.has_now(live, wants))
            if fan.open and not has_room:
                break
            started.append(fan.start_row(self._forks_of(fan, room if has_room else None, copies)))
        for component, pairs in copies.items():
            self._caches[component].copy_pages(pairs)
        if (fan.next < fan.total) != (fan in self._waiting):
            (self._waiting.append if fan.next < fan.total else self._waiting.remove)(fan)
        return started

    def _room_of(self, fan: FanRun) -> dict[At, int] | None:
        """Tokens that may come on each branch that a row writes.

        None where nobody has said how many, or where they are in host memory: no room can be taken now.
        """
        room: dict[At, int] = {}
        for at in fan.op.grows:
            table, most = fan.base[at].table, fan.run.most.get(at[0])
            if table is None or table.is_away or most is None:
                return None
            room[at] = max(0, most - table.length)
        return room

    def _pages_of(self, fan: FanRun, room: Mapping[At, int]) -> dict[str, int]:
        """Fresh pages that this takes of each pool."""
        pages: dict[str, int] = defaultdict(int)
        for at, tokens in room.items():
            table = fan.base[at].table
            assert table is not None
            pages[at[0]] += table.wants_of_fork(tokens)
        return pages

    def _forks_of(self, fan: FanRun, room: Mapping[At, int] | None, copies: Copies) -> dict[At, Branch]:
        """The next row's branches; with ``room``, the pages for it are taken."""
        forks: dict[At, Branch] = {}
        for at, base in fan.base.items():
            fork = forks[at] = fan.run.live.branches[_name(fan, at, fan.next)] = base.fork()
            fork.is_of_row = True
            if room is not None and at in room and fork.table is not None:
                copies[at[0]] += fork.table.hold(room[at])
        return forks

    def fly(self, calls: Iterable[Call]) -> None:
        """A batch is about to run: rows with a call in it keep their forks until it has landed."""
        for call in calls:
            if call.frame.row is not None:
                call.frame.row.in_flight += 1

    def end(self, row: FanRow) -> None:
        """It counts no more; its forks go as soon as nothing of it is in flight."""
        if row.in_flight == 0:
            self.drop(row)

    def drop(self, row: FanRow) -> None:
        """Give back what only this row had."""
        fan = row.fan
        self._drop(fan, {at: _name(fan, at, row.index) for at in row.branches})

    def over(self, fan: FanRun) -> None:
        """The Fan counts no more."""
        self.fans_open -= 1
        if fan in self._waiting:
            self._waiting.remove(fan)
        self._drop(fan, {at: _name(fan, at) for at in fan.base})

    def _drop(self, fan: FanRun, names: Mapping[At, At]) -> None:
        live = fan.run.live
        for at, name in names.items():
            branch = live.branches.pop(name, None)
            if branch is not None:
                branch.drop()
                self._room.replaced(live, at[0])


def _name(fan: FanRun, at: At, row: int | None = None) -> At:
    """Of a fork among its request's branches; no family's branch can have such a name."""
    component, branch = at
    return component, f"{branch}, fan {fan.number}" + ("" if row is None else f", row {row}")
