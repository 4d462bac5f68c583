"""Room in a cache that is too small: who gets pages, whose cache moves out, who waits."""

from itertools import count

import pytest

from walkserve import messages as m
from walkserve.cache.pages import OutOfPages, PoolCorrupt

RANK0 = "pipe.rank0"
walks = count()


def ask(bench, number, tokens):
    """A Walk of one call, which brings so many tokens into the request's cache."""
    asked = m.StartWalk(number, "saying", next(walks), "say", {"n": list(range(tokens)), "most": 1})
    return bench.hear(asked)


def step(bench):
    """One batch; the numbers of its requests, in order."""
    work = bench.choose()
    if work is None:
        return []
    bench.state.finish(work, bench.results(work))
    return numbers(work)


def numbers(work):
    return sorted(call.run.live.opened.number for call in work.calls)


def away(bench):
    """Requests whose cache is in host memory."""
    return sorted(number for _, number in bench.state.room._away)


def moves(bench):
    found = bench.state.room.moves["lm"]
    return found.caches_out, found.caches_back, found.pages_out, found.pages_back


@pytest.fixture
def small(bench):
    """A worker whose cache has so many pages of four tokens, and requests that have so many tokens there."""

    def make(*tokens, pages):
        made = bench(RANK0, pages=pages, tokens=32)
        for number, some in enumerate(tokens):
            made.open(number)
            if some:
                ask(made, number, some)
                assert step(made) == [number]
        return made

    return make


def test_while_there_are_pages_for_everybody_nobody_waits_and_nothing_moves(small):
    worker = small(4, 4, 4, pages=6)
    for number in range(3):
        ask(worker, number, 4)
    assert step(worker) == [0, 1, 2]
    assert worker.pool.free == 0 and moves(worker) == (0, 0, 0, 0)


def test_for_an_older_request_the_youngest_moves_out_and_it_comes_back_when_it_has_room(small):
    worker = small(4, 4, 4, pages=3)
    ask(worker, 0, 1)
    assert step(worker) == [0], "it needs a page, and request 2 gives its own"
    assert away(worker) == [2] and moves(worker) == (1, 0, 1, 0)
    ask(worker, 2, 1)
    assert step(worker) == [] and worker.state.room.waiting == 1
    ask(worker, 1, 1)
    assert step(worker) == [], "1 needs one as well, and the younger have none left to give"
    worker.hear(m.CloseRequest(0))
    assert step(worker) == [1], "two pages are free, of which 2 would need both"
    worker.hear(m.CloseRequest(1))
    assert step(worker) == [2]
    assert away(worker) == [] and moves(worker) == (1, 1, 1, 1)


def test_no_more_move_out_than_have_to(small):
    worker = small(4, 4, 4, 4, pages=4)
    ask(worker, 0, 8)
    assert step(worker) == [0]
    assert away(worker) == [2, 3]


def test_a_younger_request_never_displaces_an_older_one(small):
    worker = small(8, 0, pages=2)
    ask(worker, 1, 4)
    assert step(worker) == []
    assert (away(worker), worker.state.room.waiting, worker.state.scheduler.waiting) == ([], 1, 0)
    worker.hear(m.CloseRequest(0))
    assert step(worker) == [1]


def test_while_an_older_one_waits_no_younger_one_takes_fresh_pages(small):
    worker = small(8, 0, 0, pages=4)
    ask(worker, 1, 12)
    ask(worker, 2, 4)
    assert step(worker) == [], "two pages are free: 1 needs three, and 2 has to stand behind it"
    assert worker.state.room.waiting == 2
    worker.hear(m.CloseRequest(0))
    assert step(worker) == [1, 2]


def test_a_younger_one_goes_on_meanwhile_with_the_pages_it_has(small):
    worker = small(8, 3, 0, 3, pages=4)
    ask(worker, 2, 12)
    ask(worker, 3, 1)
    assert step(worker) == [3]
    ask(worker, 3, 1)
    assert step(worker) == []


def test_of_one_batch_those_go_that_have_room(small):
    worker = small(4, 4, 4, pages=4)
    for number in (2, 1, 0):
        ask(worker, number, 1)
    assert step(worker) == [0, 1], "2 has given its page to 1"
    assert away(worker) == [2]


def test_who_has_rows_in_flight_moves_when_they_have_landed_and_starts_none_meanwhile(small):
    worker = small(4, 3, pages=2)
    ask(worker, 1, 1)
    flying = worker.choose()
    assert numbers(flying) == [1]
    ask(worker, 0, 1)
    worker.hear(m.StartWalk(1, "reading", 0, "spell", {"xs": [1]}))
    assert worker.choose() is None, "1 is to move, so its call of another component has to wait as well"
    assert away(worker) == [] and worker.state.room.waiting == 2
    worker.state.finish(flying, worker.results(flying))
    assert away(worker) == [1] and worker.state.room.waiting == 0
    assert sorted([step(worker), step(worker)]) == [[0], [1]]


def test_a_request_that_waits_with_its_cache_away_can_be_closed(small):
    worker = small(4, 4, pages=2)
    ask(worker, 0, 1)
    ask(worker, 1, 1)
    assert step(worker) == [0]
    assert away(worker) == [1] and worker.state.room.waiting == 1
    assert worker.hear(m.CloseRequest(1))["conductor"][-1:] == [m.RequestClosed(1, RANK0, f"{RANK0}.1")]
    assert (away(worker), worker.state.room.waiting) == ([], 0)
    worker.state.check()


def test_who_waits_for_the_place_of_a_request_that_fails_gets_it(small):
    worker = small(4, 4, pages=2)
    ask(worker, 1, 1)
    assert step(worker) == []
    ask(worker, 0, 1)
    work = worker.choose()
    assert numbers(work) == [0] and away(worker) == [1]
    worker.state.broke(work.calls[0], ZeroDivisionError())
    worker.hear(m.CloseRequest(0))
    assert step(worker) == [1]


def test_a_branch_that_is_away_is_forked_and_read_and_what_both_share_comes_back_once(small):
    worker = small(4, 5, pages=3)
    ask(worker, 0, 1)
    assert step(worker) == [0] and away(worker) == [1]
    worker.hear(m.ForkBranch(1, "saying", 1, "lm", "main", "other"))
    worker.hear(m.StartWalk(1, "saying", 1, "look", {"x": 1}))
    assert step(worker) == [], "it would only read, and has to have it back for that"
    worker.state.check()
    worker.hear(m.CloseRequest(0))
    assert step(worker) == [1, 1]
    assert worker.pool.held == 2 and moves(worker) == (1, 1, 2, 2)


def test_a_branch_that_is_away_is_replaced_and_then_nothing_is(small):
    worker = small(4, 5, pages=3)
    ask(worker, 0, 1)
    step(worker)
    worker.hear(m.ForkBranch(1, "saying", 1, "lm", "other", "main"))
    ask(worker, 1, 1)
    assert step(worker) == [1], "it is empty now, and the page that is left is enough"
    assert moves(worker) == (1, 0, 2, 0)
    worker.state.check()


def test_two_rows_that_share_a_tail_page_need_one_page_not_two(small):
    worker = small(3, pages=2)
    worker.hear(m.ForkBranch(0, "saying", 0, "lm", "main", "other"))
    live = worker.state._lives[0]
    main, other = (live.branches[("lm", name)].table for name in ("main", "other"))
    assert main.wants(1) == other.wants(1) == 1
    ask(worker, 0, 1)
    assert step(worker) == [0]
    assert (main.wants(0), worker.pool.free) == (0, 0)
    worker.state.check()


def test_what_the_whole_pool_cannot_hold_is_the_engines_to_refuse(small):
    worker = small(4, pages=2)
    worker.open(1)
    ask(worker, 1, 9)
    work = worker.state.choose()
    assert work is not None and numbers(work) == [1]
    with pytest.raises(OutOfPages):
        work.calls[0].branch.table.reserve(9)
    worker.state.broke(work.calls[0], OutOfPages(3, 1))
    assert away(worker) == [] and worker.state.room.waiting == 0


def test_check_finds_a_page_that_no_branch_holds(small):
    worker = small(4, pages=4)
    worker.state.check()
    (lost,) = worker.pool.take(1)
    with pytest.raises(PoolCorrupt, match=f"the cache of lm: page {lost} counts 1 holders, but 0 tables"):
        worker.state.check()
    worker.pool.release([lost])


def test_check_finds_a_call_that_waits_of_a_request_that_is_closed(small):
    worker = small(8, 0, pages=2)
    ask(worker, 1, 4)
    step(worker)
    lives = dict(worker.state._lives)
    worker.state._lives.clear()
    with pytest.raises(PoolCorrupt, match="1 calls wait for room, and no request is open"):
        worker.state.check()
    worker.state._lives.update(lives)


def test_a_worker_that_idles_with_a_broken_cache_says_so_and_ends(bench, caplog):
    worker = bench(RANK0)
    (lost,) = worker.pool.take(1)
    with pytest.raises(PoolCorrupt):
        worker.state.check_when_idle()
    assert "the cache of pipe.rank0 cannot be trusted any more, so it ends" in caplog.text
    worker.pool.release([lost])
    worker.state.check_when_idle()
