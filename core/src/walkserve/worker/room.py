"""Room in the caches: who gets pages when there are not enough for all, whose cache moves out, who waits.

One order holds in every pool of every worker: the number of a request. For an older one, caches of younger
ones move to host memory, the youngest first, and nobody moves an older one's. So the oldest always goes on,
and two pools cannot wait for each other. While somebody waits for pages of a pool, no younger one gets any.

A request's branches of one component move together, as forks share pages. None of its rows may be in flight
then; one that is to move, and has some, starts no more of them until it has. Nothing of this happens while
there are pages for everybody, which is always so without overcommit: then a batch costs one comparison.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from walkserve.cache.pages import PagePool, PageTable, pages_to_come_back
from walkserve.worker.live import Live

if TYPE_CHECKING:
    from walkserve.worker.scheduler import Work
    from walkserve.worker.walk_run import Call


class Cache(Protocol):
    """A cached component's storage."""

    pool: PagePool

    def new_table(self) -> PageTable:
        """Begin an empty branch."""

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Carry out the (source, target) page copies that a reservation asked for."""

    def save(self, tables: Sequence[PageTable]) -> int:
        """Move branches to host memory and free their pages; how many these were."""

    def load(self, tables: Sequence[PageTable]) -> int:
        """Bring branches back, all at once that share pages; how many these were."""


@dataclass(slots=True)
class Moves:
    """Of one component since the worker started: caches of requests, and their pages."""

    caches_out: int = 0
    caches_back: int = 0
    pages_out: int = 0
    pages_back: int = 0


class Room:
    """The pools of one worker, and the calls that wait for pages of them.

    Args:
        caches: Component -> its cache.
        lives: Every open request by number, the oldest first; the worker's own.
        go_on: Puts a call back that need wait no more.
        forget: Told of a waiting call that will not be run.
    """

    def __init__(
        self,
        caches: Mapping[str, Cache],
        lives: dict[int, Live],
        go_on: Callable[[Call], None],
        forget: Callable[[Call], None],
    ) -> None:
        self.caches = caches
        self.moves = {component: Moves() for component in caches}
        self._lives = lives
        self._go_on = go_on
        self._forget = forget
        self._waiting: list[tuple[int, int, Call, int]] = []  # (number, arrival, call, tokens), ascending
        self._first: dict[str, int] = {}  # component -> the oldest request that waits for its pages
        self._refused: dict[str, tuple[int, int, int]] = {}  # its (number, pages it needs, pages free then)
        self._away: set[tuple[str, int]] = set()  # (component, number) of caches in host memory
        self._leaving: set[int] = set()  # requests that are to move when their rows have landed

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        return len(self._waiting)

    @property
    def away(self) -> int:
        """Caches that are in host memory."""
        return len(self._away)

    def holds(self, live: Live) -> bool:
        """Whether a call of this request waits here."""
        return any(call.run.live is live for _, _, call, _ in self._waiting)

    # --- asked for every batch --------------------------------------------------------------------

    def has_for(self, work: Work) -> bool:
        """Whether there are pages for a whole batch, and nobody has to be asked."""
        if self._waiting or self._away:
            return False
        cache = self.caches.get(work.key[0])
        if cache is None:
            return True
        pool, rows = cache.pool, len(work.calls)
        # a row of n tokens begins n // size + 1 pages at most, and may have to copy a shared one
        if sum(work.pieces) // pool.page_size + 2 * rows <= pool.free:
            return True
        return sum(_wants(call, piece) for call, piece in _rows(work)) <= pool.free

    def has_now(self, live: Live, pages: Mapping[str, int]) -> bool:
        """Whether a row that has not begun may take so many pages of each pool: nobody waits for any."""
        if self._waiting or live.opened.number in self._leaving:
            return False
        return all(wanted <= self.caches[component].pool.free for component, wanted in pages.items())

    # --- when pages are short ---------------------------------------------------------------------

    def admit(self, work: Work) -> None:
        """Take out of a batch the calls that have to wait; the others' caches are there, with room to write.

        No row of it is in flight yet.
        """
        rows = _rows(work)
        going = {id(call) for call, piece in sorted(rows, key=_age) if self._goes_or_waits(call, piece)}
        if len(going) < len(rows):
            left = [(call, piece) for call, piece in rows if id(call) in going]
            work.calls, work.pieces = [call for call, _ in left], [piece for _, piece in left]

    def retry(self) -> None:
        """Pages may have become free, rows have landed: whoever can goes on, the oldest first."""
        waiting, self._waiting = self._waiting, []
        self._first.clear()
        self._leaving.clear()
        going: list[Call] = []
        dead: list[Call] = []
        for number, arrival, call, piece in waiting:
            if call.run.is_closed or call.frame.is_dropped:
                dead.append(call)
            elif self._goes(call, piece):
                going.append(call)
            else:
                self._waiting.append((number, arrival, call, piece))
        if not self._waiting:
            self._refused.clear()
        for call in reversed(going):  # the oldest ends up before the others
            self._go_on(call)
        for call in dead:
            self._forget(call)

    def replaced(self, live: Live, component: str) -> None:
        """A branch is another one now; the last that was away may have been dropped by that."""
        if self._away and not _tables(live, component, away=True):
            self._away.discard((component, live.opened.number))

    def release(self, number: int) -> None:
        """A request is closed, its branches are dropped."""
        self._away -= {(component, number) for component in self.caches}
        self._leaving.discard(number)

    # --- one call ---------------------------------------------------------------------------------

    def _goes_or_waits(self, call: Call, piece: int) -> bool:
        goes = self._goes(call, piece)
        if not goes:
            insort(self._waiting, (call.run.live.opened.number, call.arrival, call, piece))
        return goes

    def _goes(self, call: Call, piece: int) -> bool:
        """Give a call its cache and its pages, if that is possible now."""
        live, component = call.run.live, call.op.component
        number = live.opened.number
        if number in self._leaving:
            return False
        cache = self.caches.get(component)
        if cache is None:
            return True
        first = self._first.get(component, number)
        away = [] if not call.branch.table.is_away else _tables(live, component, away=True)
        if away and first < number:
            return False
        pool, table, back = cache.pool, call.branch.table, pages_to_come_back(away)
        wants = _wants(call, piece)
        need = back + wants
        if wants and need > pool.free and wants + _bound(call) > pool.pages:
            wants, need = (
                0,
                back,
            )  # more than its family's budget said, and than there is: the engine fails it
        if need == 0:
            return True
        if first < number:
            return False
        if need > pool.free and not self._make_room(component, number, need):
            self._first[component] = number
            return False
        self._refused.pop(component, None)
        if away:
            self._bring_back(component, number, away)
        if wants:
            cache.copy_pages(table.reserve(piece))
        return True

    def _make_room(self, component: str, number: int, need: int) -> bool:
        """Move out younger requests' caches; False while that is not enough, or not yet."""
        pool = self.caches[component].pool
        asked = (number, need, pool.free)
        if self._refused.get(component) == asked:
            return False  # nothing has changed since
        missing = need - pool.free
        victims: list[Live] = []
        for other in reversed(self._lives.values()):
            if missing <= 0 or other.opened.number <= number:
                break
            held = _held(other, component)
            if held:
                victims.append(other)
                missing -= held
        if missing > 0:  # the older ones have them: what the younger hold would not do
            self._refused[component] = asked
            return False
        for victim in victims:
            if victim.in_flight:
                self._leaving.add(victim.opened.number)
            else:
                self._move_out(component, victim)
        return need <= pool.free

    def _move_out(self, component: str, live: Live) -> None:
        pages = self.caches[component].save(_tables(live, component, away=False))
        if _tables(live, component, away=True):
            self._away.add((component, live.opened.number))
            moves = self.moves[component]
            moves.caches_out += 1
            moves.pages_out += pages

    def _bring_back(self, component: str, number: int, tables: list[PageTable]) -> None:
        moves = self.moves[component]
        moves.pages_back += self.caches[component].load(tables)
        moves.caches_back += 1
        self._away.discard((component, number))

    # --- integrity --------------------------------------------------------------------------------

    def wrong(self) -> list[str]:
        """What contradicts itself here, besides the pools."""
        found = [
            f"{component} of request {number} is away, and has nothing in host memory"
            for component, number in self._away
            if number not in self._lives or not _tables(self._lives[number], component, away=True)
        ]
        if not self._lives and (self._waiting or self._leaving):
            found.append(f"{len(self._waiting)} calls wait for room, and no request is open")
        return found


def _rows(work: Work) -> list[tuple[Call, int]]:
    return list(zip(work.calls, work.pieces, strict=True))


def _age(row: tuple[Call, int]) -> tuple[int, int]:
    return row[0].run.live.opened.number, row[0].arrival


def _wants(call: Call, piece: int) -> int:
    """Fresh pages that a row will write to."""
    return call.branch.table.wants(piece) if call.op.keeps else 0


def _tables(live: Live, component: str, *, away: bool) -> list[PageTable]:
    """A request's branches of a component: those in host memory, or the others."""
    return [
        branch.table
        for (of, _), branch in live.branches.items()
        if of == component and branch.table is not None and branch.table.is_away == away
    ]


def _held(live: Live, component: str) -> int:
    """Pages of a pool that a request has, those that its branches share once."""
    tables: Iterable[PageTable] = _tables(live, component, away=False)
    return len({page for table in tables for page in table.pages})


def _bound(call: Call) -> int:
    """Pages that will not come free while this call waits, here or away: not those of rows beside its own."""
    live, component = call.run.live, call.op.component
    tables = [
        branch.table
        for (of, _), branch in live.branches.items()
        if of == component and branch.table is not None and (branch is call.branch or not branch.is_of_row)
    ]
    pages = {page for table in tables for page in table.pages}
    return len(pages) + pages_to_come_back(tables)
