"""Pages: shared by forks, copied by the first writer, never lost."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from walkserve.cache.pages import (
    OutOfPages,
    PagePool,
    PageTable,
    PoolCorrupt,
    come_back,
    committed_pages,
    go_away,
    pages_to_come_back,
    stored_pages,
)


def filled(pool: PagePool, tokens: int) -> PageTable:
    table = PageTable(pool)
    table.reserve(tokens)
    table.commit(tokens)
    return table


def test_a_page_is_free_again_when_its_last_holder_releases_it():
    pool = PagePool(3, page_size=4)
    pages = pool.take(2)
    pool.share(pages[:1])
    pool.release(pages)
    assert (pool.free, pool.held, pool.references(pages[0])) == (2, 1, 1)
    pool.release(pages[:1])
    assert (pool.free, pool.held) == (3, 0)
    pool.check()


def test_a_pool_knows_the_most_pages_that_were_held_at_once():
    pool = PagePool(8, page_size=4)
    pool.release(pool.take(5))
    pool.take(2)
    assert (pool.held, pool.most_held) == (2, 5)


def test_taking_more_than_is_free_takes_nothing():
    pool = PagePool(3, page_size=4)
    with pytest.raises(OutOfPages, match="4 pages wanted, 3 free"):
        pool.take(4)
    assert pool.free == 3


def test_branches_that_grow_in_turns_each_lie_in_one_run():
    pool = PagePool(64, page_size=1)
    tables = [PageTable(pool) for _ in range(4)]
    for _ in range(16):
        for table in tables:
            table.reserve(1)
            table.commit(1)
    assert pool.free == 0
    for table in tables:
        assert table.pages == list(range(table.pages[0], table.pages[0] + 16))


def test_a_branch_that_cannot_continue_begins_where_there_is_most_room():
    pool = PagePool(16, page_size=1)
    pages = pool.take(16)
    pool.release([*pages[2:4], *pages[6:12]])
    assert pool.take(2, after=1) == [2, 3]
    assert pool.take(2, after=3) == [9, 10], "halfway: whoever holds page 5 goes on at 6"
    assert pool.take(4, after=15) == [6, 7, 8, 11], "the longest run first, and what is left"


def test_a_branch_that_wants_more_than_half_of_the_room_begins_sooner():
    pool = PagePool(16, page_size=1)
    pool.release(pool.take(16)[4:])
    assert pool.take(9, after=3)[0] == 4
    pool = PagePool(16, page_size=1)
    pool.release(pool.take(16)[4:])
    assert pool.take(9) == list(range(7, 16))


def test_releasing_or_sharing_what_nobody_holds_is_corruption():
    pool = PagePool(1, page_size=4)
    with pytest.raises(PoolCorrupt, match="page 0 is released, but nobody holds it"):
        pool.release([0])
    with pytest.raises(PoolCorrupt, match="page 0 is shared, but nobody holds it"):
        pool.share([0])


def test_check_says_everything_that_is_wrong():
    pool = PagePool(3, page_size=4)
    held, leaked, _ = pool.take(3)
    pool._is_free[held] = 1
    pool._references[leaked] = 0
    with pytest.raises(PoolCorrupt, match=f"page {held} is free and held; page {leaked} is neither"):
        pool.check()


def test_check_counts_the_tables_it_is_given():
    pool = PagePool(3, page_size=4)
    table = filled(pool, 5)
    pool.check([table])
    with pytest.raises(PoolCorrupt, match="counts 1 holders, but 2 tables hold it"):
        pool.check([table, table])
    with pytest.raises(PoolCorrupt, match="counts 1 holders, but 0 tables hold it"):
        pool.check([])


def test_only_committed_tokens_count():
    table = PageTable(PagePool(4, page_size=4))
    table.reserve(6)
    assert (table.length, len(table.pages)) == (0, 2)
    table.commit(5)
    assert table.length == 5


def test_room_that_was_never_committed_is_used_again():
    table = PageTable(PagePool(2, page_size=4))
    table.reserve(8)
    pages = list(table.pages)
    assert table.reserve(7) == []
    assert table.pages == pages


@pytest.mark.parametrize("tokens", [-1, 4])
def test_committing_what_was_not_reserved_is_refused(tokens):
    table = PageTable(PagePool(4, page_size=4))
    table.reserve(3)
    with pytest.raises(ValueError, match="3 are reserved"):
        table.commit(tokens)


def test_a_fork_shares_the_pages_of_the_committed_length_only():
    pool = PagePool(8, page_size=4)
    table = filled(pool, 5)
    table.reserve(10)
    fork = table.fork()
    assert (fork.pages, fork.length) == (table.pages[:2], 5)
    assert [pool.references(page) for page in table.pages] == [2, 2, 1, 1]


def test_the_first_writer_after_a_fork_takes_a_fresh_tail_page():
    pool = PagePool(8, page_size=4)
    table = filled(pool, 5)
    fork = table.fork()
    tail = table.pages[1]
    [(source, target)] = fork.reserve(1)
    assert (source, target) == (tail, fork.pages[1])
    assert table.reserve(1) == [], "the second writer has the old page to itself"
    assert table.pages[1] == tail != target


def test_a_full_tail_page_is_not_copied():
    table = filled(PagePool(8, page_size=4), 4)
    fork = table.fork()
    assert fork.reserve(1) == []
    assert fork.pages[0] == table.pages[0]


def test_reserving_nothing_splits_nothing():
    table = filled(PagePool(8, page_size=4), 5)
    assert table.fork().reserve(0) == []


def test_a_reservation_without_room_changes_nothing():
    pool = PagePool(3, page_size=4)
    table = filled(pool, 5)
    fork = table.fork()
    pages = list(fork.pages)
    with pytest.raises(OutOfPages):
        fork.reserve(4)  # a fresh tail and one more; one is free
    assert (fork.pages, fork.length, pool.free) == (pages, 5, 1)
    pool.check([table, fork])


def test_slots_are_page_times_size_plus_offset():
    table = filled(PagePool(4, page_size=4), 6)
    first, second = table.pages
    assert table.slots(2, 6) == [4 * first + 2, 4 * first + 3, 4 * second, 4 * second + 1]
    with pytest.raises(ValueError, match="no slots 0 to 9 in 2 pages of 4"):
        table.slots(0, 9)


def test_dropping_twice_is_harmless():
    pool = PagePool(4, page_size=4)
    table = filled(pool, 6)
    fork = table.fork()
    table.drop()
    table.drop()
    assert (table.length, table.pages, pool.held) == (0, [], 2)
    fork.drop()
    assert pool.held == 0


def test_what_is_kept_of_branches_that_go_away_is_each_committed_page_once():
    pool = PagePool(8, page_size=4)
    table = filled(pool, 5)
    table.reserve(10)  # not committed: nobody needs it
    fork = table.fork()
    assert committed_pages([table, fork]) == table.pages[:2]
    go_away([table, fork], "host")
    assert (pool.free, table.pages, fork.pages, table.length) == (8, [], [], 5)
    assert table.stored == fork.stored and [page.holders for page in table.stored] == [2, 2]
    pool.check([table, fork])


def test_branches_that_come_back_share_what_they_shared():
    pool = PagePool(8, page_size=4)
    table = filled(pool, 5)
    fork = table.fork()
    go_away([table, fork], "host")
    copied = come_back([table, fork])
    assert [stored.index for stored, _ in copied] == [0, 1]
    assert table.pages == fork.pages == [page for _, page in copied]
    assert [pool.references(page) for page in table.pages] == [2, 2]
    assert not table.is_away and not fork.is_away
    pool.check([table, fork])


def test_coming_back_without_room_changes_nothing():
    pool = PagePool(2, page_size=4)
    table = filled(pool, 5)
    go_away([table], "host")
    other = filled(pool, 1)
    with pytest.raises(OutOfPages, match="2 pages wanted, 1 free"):
        come_back([table])
    assert table.is_away and pool.free == 1
    pool.check([table, other])


def test_a_branch_that_is_away_is_forked_rewound_and_dropped_like_any_other():
    pool = PagePool(8, page_size=4)
    table = filled(pool, 9)
    go_away([table], "host")
    fork = table.fork()
    table.rewind(3)
    assert len(stored_pages([table])) == 1 and len(stored_pages([table, fork])) == 3
    come_back([table])
    assert (len(table.pages), table.length, pool.held) == (1, 3, 1)
    pool.check([table, fork])
    fork.drop()
    assert not fork.is_away
    pool.check([table, fork])


def test_a_branch_that_is_away_cannot_be_written():
    table = filled(PagePool(8, page_size=4), 5)
    go_away([table], "host")
    with pytest.raises(PoolCorrupt, match="in host memory"):
        table.reserve(1)
    with pytest.raises(ValueError, match="0 are reserved"):
        table.commit(1)


def test_room_that_was_only_reserved_is_given_back_by_who_goes_away():
    pool = PagePool(8, page_size=4)
    table = PageTable(pool)
    table.reserve(6)
    go_away([table], "host")
    assert not table.is_away and pool.free == 8


def test_a_fork_wants_the_pages_after_the_full_ones_that_it_shares():
    pool = PagePool(16, page_size=4)
    table = filled(pool, 6)
    for tokens in range(12):
        fork = table.fork()
        assert fork.wants(tokens) == table.wants_of_fork(tokens)
        before = pool.free
        fork.hold(tokens)
        assert before - pool.free == table.wants_of_fork(tokens)
        fork.drop()


def test_room_that_a_branch_holds_goes_and_comes_with_it():
    pool = PagePool(8, page_size=4)
    table = filled(pool, 5)
    fork = table.fork()
    assert fork.hold(7) == [(table.pages[1], fork.pages[1])]
    assert (len(fork.pages), pool.held) == (3, 4)
    go_away([table, fork], "host")
    assert (pool.free, pages_to_come_back([table, fork])) == (8, 4)
    other = filled(pool, 17)
    with pytest.raises(OutOfPages, match="4 pages wanted, 3 free"):
        come_back([table, fork])
    assert fork.is_away and fork.room_away == 1
    other.drop()
    come_back([table, fork])
    assert (len(fork.pages), fork.wants(7), pool.held) == (3, 0, 4)
    pool.check([table, fork])
    fork.drop()
    table.drop()
    assert pool.held == 0


def test_a_branch_of_nothing_but_room_is_away_as_well():
    pool = PagePool(8, page_size=4)
    table = PageTable(pool)
    table.hold(9)
    go_away([table], "host")
    assert table.is_away and pool.free == 8 and table.wants(9) == 0 and table.wants(13) == 1
    with pytest.raises(PoolCorrupt, match="in host memory"):
        table.reserve(1)
    assert come_back([table]) == []
    assert not table.is_away and pool.held == 3
    table.reserve(9)
    table.commit(9)
    pool.check([table])


def test_check_finds_stored_pages_that_nobody_counts():
    pool = PagePool(8, page_size=4)
    table = filled(pool, 5)
    go_away([table], "host")
    table.stored[0].holders = 2
    with pytest.raises(PoolCorrupt, match="a stored page counts 2 holders, but 1 tables hold it"):
        pool.check([table])
    table.stored = []
    with pytest.raises(PoolCorrupt, match="a branch of 5 tokens has 0 pages, 0 stored"):
        pool.check([table])


class Branches(RuleBasedStateMachine):
    """Tables over a pretended storage that remembers which token was written to which slot."""

    tables = Bundle("tables")

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(12, page_size=3)
        self.storage: dict[int, object] = {}
        self.tokens: dict[PageTable, list[object]] = {}
        self.written: dict[PageTable, list[object]] = {}  # in flight: written, not yet committed

    @rule(target=tables)
    def begin(self):
        table = PageTable(self.pool)
        self.tokens[table] = []
        return table

    @rule(table=tables, tokens=st.integers(0, 8))
    def reserve_and_write(self, table, tokens):
        before = list(table.pages), table.length, self.pool.free
        wanted = table.wants(tokens)
        try:
            copies = table.reserve(tokens)
        except OutOfPages as error:
            assert error.wanted == wanted
            assert before == (table.pages, table.length, self.pool.free)
            return
        except PoolCorrupt:
            assert table.is_away
            return
        assert before[2] - self.pool.free == wanted
        self._copy(copies)
        slots = table.slots(table.length, table.length + tokens)
        for slot in slots:
            assert self.pool.references(slot // self.pool.page_size) == 1, "a page is written by two tables"
        self.written[table] = [object() for _ in slots]
        self.storage.update(zip(slots, self.written[table], strict=True))

    def _copy(self, copies):
        for source, target in copies:
            self._set_page(target, self._page(source))

    def _page(self, page):
        size = self.pool.page_size
        return [self.storage.get(page * size + offset) for offset in range(size)]

    def _set_page(self, page, held):
        self.storage.update((page * self.pool.page_size + offset, one) for offset, one in enumerate(held))

    @rule(table=tables, tokens=st.integers(0, 8))
    def hold_room(self, table, tokens):
        wanted, free = table.wants(tokens), self.pool.free
        if table.is_away or wanted > free:
            return
        self._copy(table.hold(tokens))
        assert (free - self.pool.free, table.wants(tokens)) == (wanted, 0)
        self.written.pop(table, None)

    @rule(table=tables, share=st.floats(0, 1))
    def commit(self, table, share):
        written = self.written.pop(table, [])
        tokens = round(share * len(written))
        table.commit(tokens)
        self.tokens[table] += written[:tokens]

    @rule(table=tables, share=st.floats(0, 1))
    def rewind(self, table, share):
        length = round(share * table.length)
        table.rewind(length)
        self.written.pop(table, None)
        del self.tokens[table][length:]

    @rule(target=tables, table=tables)
    def fork(self, table):
        fork = table.fork()
        self.tokens[fork] = list(self.tokens[table])
        return fork

    @rule(data=st.data())
    def go_away(self, data):
        """Any of them together, whatever they share with whom."""
        tables = [table for table in self.tokens if data.draw(st.booleans())]
        held = {page for table in tables for page in table.pages}
        others = {page for table in self.tokens.keys() - set(tables) for page in table.pages}
        free = self.pool.free
        store = [self._page(page) for page in committed_pages(tables)]
        go_away(tables, store)
        assert self.pool.free == free + len(held - others)
        for page in held - others:
            self._set_page(page, [None] * self.pool.page_size)
        for table in tables:
            self.written.pop(table, None)

    @rule(data=st.data())
    def come_back(self, data):
        tables = [table for table in self.tokens if table.is_away and data.draw(st.booleans())]
        alone = {page for table in self.tokens.keys() - set(tables) for page in table.stored}
        wanted, free = pages_to_come_back(tables), self.pool.free
        stored = len(stored_pages(tables))
        wants = [table.wants(2) for table in tables]
        try:
            moved = come_back(tables)
        except OutOfPages:
            assert wanted > free == self.pool.free
            return
        assert (free - self.pool.free, len(moved)) == (wanted, stored)
        for stored, page in moved:
            self._set_page(page, stored.store[stored.index])
        if not alone & {stored for stored, _ in moved}:  # else they share it no more
            assert [table.wants(2) for table in tables] == wants

    @rule(table=consumes(tables), again=st.booleans())
    def drop(self, table, again):
        table.drop()
        if again:
            table.drop()
        del self.tokens[table]
        self.written.pop(table, None)

    @invariant()
    def every_branch_reads_its_own_tokens(self):
        for table, tokens in self.tokens.items():
            assert table.length == len(tokens)
            if table.is_away:
                stored = [page.store[page.index] for page in table.stored]
                assert [token for page in stored for token in page][: table.length] == tokens
            else:
                assert [self.storage[slot] for slot in table.slots(0, table.length)] == tokens

    @invariant()
    def counts_are_what_the_tables_hold(self):
        self.pool.check(self.tokens)

    def teardown(self):
        for table in self.tokens:
            table.drop()
        self.pool.check([])
        assert self.pool.held == 0


Branches.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestBranches = Branches.TestCase
