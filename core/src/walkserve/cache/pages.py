"""Which page of the cache belongs to which branch, in whole numbers only.

A branch is a list of pages and a committed length. Forks share pages; who writes
a shared page first takes a fresh one. Nothing here knows a tensor: ``paged.py``
holds the storage and carries out the page copies that ``reserve`` asks for.

             committed          reserved, not yet visible
    |0 1 2 3|4 5 . .|    ->    |0 1 2 3|4 5 x x|x . . .|      reserve(3), page size 4
     page 7  page 2             page 7  page 2  page 9

Branches may be away: what their pages held is in host memory, page by page, and the pages are free. They
keep their length, and may be forked, rewound and dropped like any other. Room that a branch was promised
(``hold``) comes back with it, though nothing is in it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence


class OutOfPages(Exception):
    """The pool has fewer free pages than were asked for; nothing was taken."""

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(f"{wanted} pages wanted, {free} free")
        self.wanted = wanted
        self.free = free


class PoolCorrupt(AssertionError):
    """Pages and reference counts contradict each other: a fault of the runtime."""


class PagePool:
    """A fixed number of pages, each with a count of the tables that hold it.

    A branch's pages lie side by side where that can be, for a processor reads these in half the time of
    scattered ones.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError(f"a pool needs at least one page of one token, not {pages} of {page_size}")
        self.pages = pages
        self.page_size = page_size
        self._references = [0] * pages
        self._is_free = bytearray(b"\1" * pages)
        self.free = pages
        self.fewest_free = pages

    @property
    def held(self) -> int:
        return self.pages - self.free

    @property
    def most_held(self) -> int:
        """Pages that were held at once, since the pool began."""
        return self.pages - self.fewest_free

    def references(self, page: int) -> int:
        """How many tables hold ``page``."""
        return self._references[page]

    def take(self, n: int, *, after: int | None = None) -> list[int]:
        """Hand out ``n`` pages, each held once.

        Args:
            after: The page that the first one should follow, as each should the one before.

        Raises:
            OutOfPages: If fewer are free; then none is taken.
        """
        if n > self.free:
            raise OutOfPages(n, self.free)
        taken: list[int] = []
        page = self.pages if after is None else after + 1
        while len(taken) < n:
            if page == self.pages or not self._is_free[page]:
                page = self._begin_run(n - len(taken))
            taken.append(page)
            self._is_free[page] = 0
            self._references[page] = 1
            page += 1
        self.free -= n
        if self.free < self.fewest_free:
            self.fewest_free = self.free
        return taken

    def _begin_run(self, n: int) -> int:
        """Where ``n`` pages and what may follow them have room: halfway into a long run of free ones.

        The half before is for whoever holds the page before it. The run is the longest, or more than half
        as long: looking closer would take longer in a large pool with many gaps.
        """
        length = 1 << self.free.bit_length()
        while (start := self._is_free.find(b"\1" * length)) < 0:
            length //= 2
        stop = self._is_free.find(0, start)
        stop = self.pages if stop < 0 else stop
        return max(start, min((start + stop) // 2, stop - n)) if start else 0

    def share(self, pages: Iterable[int]) -> None:
        """Count one more holder of each page.

        Raises:
            PoolCorrupt: If a page is held by nobody.
        """
        for page in pages:
            if self._references[page] < 1:
                raise PoolCorrupt(f"page {page} is shared, but nobody holds it")
            self._references[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Count one holder less of each page; a page without a holder is free.

        Raises:
            PoolCorrupt: If a page is held by nobody.
        """
        for page in pages:
            if self._references[page] < 1:
                raise PoolCorrupt(f"page {page} is released, but nobody holds it")
            self._references[page] -= 1
            if self._references[page] == 0:
                self._is_free[page] = 1
                self.free += 1

    def check(self, tables: "Iterable[PageTable] | None" = None) -> None:
        """Verify that every page is either free or held, and that the free ones are counted.

        Args:
            tables: All tables of this pool, if the caller knows them. Then the
                counts must also be what these tables hold.

        Raises:
            PoolCorrupt: With everything that is wrong.
        """
        wrong: list[str] = []
        for page, count in enumerate(self._references):
            if count < 0:
                wrong.append(f"page {page} has {count} holders")
            if (count > 0) == self._is_free[page]:
                wrong.append(f"page {page} is {'free and held' if count else 'neither free nor held'}")
        if sum(self._is_free) != self.free:
            wrong.append(f"{sum(self._is_free)} pages are free, {self.free} are counted")
        if tables is not None:
            tables = list(tables)
            holders = Counter(page for table in tables for page in table.pages)
            stored = Counter(page for table in tables for page in table.stored)
            wrong += [
                f"page {page} counts {self._references[page]} holders, but {holders[page]} tables hold it"
                for page in range(self.pages)
                if self._references[page] != holders[page]
            ]
            wrong += [
                f"a stored page counts {page.holders} holders, but {count} tables hold it"
                for page, count in stored.items()
                if page.holders != count
            ]
            wrong += [
                f"a branch of {table.length} tokens has {len(table.pages)} pages, {len(table.stored)} stored"
                for table in tables
                if max(len(table.pages), len(table.stored)) < table.committed_pages
                or (table.pages and table.stored)
            ]
        if wrong:
            raise PoolCorrupt("; ".join(wrong))


class StoredPage:
    """What one page held, in host memory.

    Args:
        store: Whatever holds it, and others of the same move.
        index: Its place there.
    """

    __slots__ = ("holders", "index", "store")

    def __init__(self, store: object, index: int) -> None:
        self.store = store
        self.index = index
        self.holders = 0  # tables that are away and share it


class PageTable:
    """One branch: the pages it holds and how many of its tokens are committed.

    A turn first reserves room, its batch writes there, and only ``commit`` makes
    the tokens part of the branch. Room that was never committed is used again by
    the next ``reserve``, so a turn that is thrown away needs no undoing.

    Attributes:
        stored: Where its committed pages are while it is away; empty otherwise.
    """

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.pages: list[int] = []
        self.stored: list[StoredPage] = []
        self.length = 0
        self.holds = False  # its room is a promise, and goes and comes with it
        self.room_away = 0  # pages of that, while it is away
        self._reserved = 0

    @property
    def is_away(self) -> bool:
        """Whether its pages are in host memory: it can neither be read nor written."""
        return bool(self.stored or self.room_away)

    @property
    def committed_pages(self) -> int:
        """Pages that its committed tokens fill or begin."""
        return -(-self.length // self.pool.page_size)

    def wants(self, tokens: int) -> int:
        """How many fresh pages ``reserve(tokens)`` would take; of a branch that is away, once it is back."""
        size = self.pool.page_size
        first = self.length // size
        stop = -(-(self.length + tokens) // size)
        if self.is_away:
            there = self.committed_pages
            splits = tokens > 0 and first < there and self.stored[first].holders > 1
            there += self.room_away
        else:
            there = len(self.pages)
            splits = tokens > 0 and first < there and self.pool.references(self.pages[first]) > 1
        return max(0, stop - there) + splits

    def wants_of_fork(self, tokens: int) -> int:
        """How many a fork of it would take: its last page is shared with it, unless it is full."""
        size = self.pool.page_size
        return -(-(self.length + tokens) // size) - self.length // size if tokens else 0

    def hold(self, tokens: int) -> list[tuple[int, int]]:
        """``reserve``, for good: until it is dropped nobody else gets this room, wherever it moves."""
        copies = self.reserve(tokens)
        self.holds = True
        return copies

    def reserve(self, tokens: int) -> list[tuple[int, int]]:
        """Make room for ``tokens`` after the committed length.

        Returns:
            (source, target) pages that storage must copy before anyone writes: a
            tail page that others hold as well has been replaced by a fresh one.

        Raises:
            OutOfPages: If there is not enough room; then nothing has changed.
        """
        if tokens < 0:
            raise ValueError(f"cannot reserve {tokens} tokens")
        if self.is_away:
            raise PoolCorrupt("a branch is written whose pages are in host memory")
        size = self.pool.page_size
        first = self.length // size  # the page the next token goes to
        stop = -(-(self.length + tokens) // size)
        # Pages past the committed ones are never shared: fork leaves them out.
        splits = tokens > 0 and first < len(self.pages) and self.pool.references(self.pages[first]) > 1
        last = self.pages[-1] if self.pages else None
        fresh = self.pool.take(max(0, stop - len(self.pages)) + splits, after=last)
        copies: list[tuple[int, int]] = []
        if splits:
            source, target = self.pages[first], fresh.pop(0)
            self.pages[first] = target
            self.pool.release([source])
            copies.append((source, target))
        self.pages += fresh
        self._reserved = tokens
        return copies

    def commit(self, tokens: int) -> None:
        """Make ``tokens`` of the reserved ones visible.

        Raises:
            ValueError: If fewer are reserved.
        """
        if not 0 <= tokens <= self._reserved:
            raise ValueError(f"cannot commit {tokens} tokens, {self._reserved} are reserved")
        self.length += tokens
        self._reserved -= tokens

    def rewind(self, length: int) -> None:
        """Forget the committed tokens from ``length`` on; their pages stay for what comes instead."""
        if length > self.length:
            raise ValueError(f"{self.length} tokens are committed, so none can be forgotten from {length} on")
        self.length = length

    def fork(self) -> "PageTable":
        """Continue the committed tokens under a second table, sharing their pages."""
        other = PageTable(self.pool)
        other.pages = self.pages[: self.committed_pages]
        other.stored = self.stored[: self.committed_pages]
        other.length = self.length
        self.pool.share(other.pages)
        for page in other.stored:
            page.holders += 1
        return other

    def slots(self, start: int, stop: int) -> list[int]:
        """Where tokens ``start`` to ``stop`` lie: page x page size + offset.

        Raises:
            ValueError: If there is no room at one of these positions.
        """
        size = self.pool.page_size
        if not 0 <= start <= stop <= len(self.pages) * size:
            raise ValueError(f"no slots {start} to {stop} in {len(self.pages)} pages of {size}")
        return [self.pages[at // size] * size + at % size for at in range(start, stop)]

    def drop(self) -> None:
        """Give all pages back; the branch is empty afterwards. Twice is harmless."""
        self.length = 0
        self._let_go()

    def _let_go(self) -> None:
        pages, self.pages = self.pages, []
        stored, self.stored = self.stored, []
        self.room_away = 0
        self._reserved = 0
        self.pool.release(pages)
        for page in stored:
            page.holders -= 1


def committed_pages(tables: Iterable[PageTable]) -> list[int]:
    """What has to be kept of branches that go away together: each page once, whoever shares it."""
    return list(dict.fromkeys(page for table in tables for page in table.pages[: table.committed_pages]))


def go_away(tables: Iterable[PageTable], store: object) -> None:
    """Give back these branches' pages; ``store`` holds what ``committed_pages`` named, in that order."""
    tables = list(tables)
    stored = {page: StoredPage(store, index) for index, page in enumerate(committed_pages(tables))}
    for table in tables:
        if not table.is_away:
            kept = [stored[page] for page in table.pages[: table.committed_pages]]
            room = len(table.pages) - len(kept) if table.holds else 0
            table._let_go()
            table.stored, table.room_away = kept, room
            for page in kept:
                page.holders += 1


def stored_pages(tables: Iterable[PageTable]) -> list[StoredPage]:
    """What branches that come back together will need pages for: each stored page once."""
    return list(dict.fromkeys(page for table in tables for page in table.stored[: table.committed_pages]))


def pages_to_come_back(tables: Iterable[PageTable]) -> int:
    """How many pages that takes, the room they hold included."""
    tables = list(tables)
    return len(stored_pages(tables)) + sum(table.room_away for table in tables)


def come_back(tables: Sequence[PageTable]) -> list[tuple[StoredPage, int]]:
    """Take pages for branches that are away: all that share a stored page, or they would share it no more.

    Returns:
        (stored page, page) that storage must copy before anyone reads.

    Raises:
        OutOfPages: If fewer pages are free than they need; then nothing has changed.
    """
    if not tables:
        return []
    pool, wanted = tables[0].pool, stored_pages(tables)
    fresh = pool.take(pages_to_come_back(tables))
    found = dict(zip(wanted, fresh, strict=False))
    room = fresh[len(wanted) :]
    for table in tables:
        pages = [found[page] for page in table.stored[: table.committed_pages]]
        own, room = room[: table.room_away], room[table.room_away :]
        table._let_go()
        pool.share(pages)
        table.pages = pages + own
    pool.release(found.values())  # each table counts by itself now
    return list(found.items())
