"""Pages: shared by forks, copied by the first writer, never lost."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from walkserve.cache.pages import OutOfPages, PagePool, PageTable, PoolCorrupt


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
        try:
            copies = table.reserve(tokens)
        except OutOfPages:
            assert before == (table.pages, table.length, self.pool.free)
            return
        size = self.pool.page_size
        for source, target in copies:
            for offset in range(size):
                self.storage[target * size + offset] = self.storage.get(source * size + offset)
        slots = table.slots(table.length, table.length + tokens)
        for slot in slots:
            assert self.pool.references(slot // size) == 1, "a page is written by two tables"
        self.written[table] = [object() for _ in slots]
        self.storage.update(zip(slots, self.written[table], strict=True))

    @rule(table=tables, share=st.floats(0, 1))
    def commit(self, table, share):
        written = self.written.pop(table, [])
        tokens = round(share * len(written))
        table.commit(tokens)
        self.tokens[table] += written[:tokens]

    @rule(target=tables, table=tables)
    def fork(self, table):
        fork = table.fork()
        self.tokens[fork] = list(self.tokens[table])
        return fork

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
