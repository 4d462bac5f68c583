"""What a worker counts of its batches, and that it tells whoever asks."""

from collections.abc import Callable
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.worker.scheduler import Work
from walkserve.worker.tally import ROWS_BUCKETS, TIME_BUCKETS, Tally

KEY = ("lm", "next")
MS = 1_000_000
Bench = Callable[..., Any]


def work(rows: int, began_ms: float, ended_ms: float, tokens: int = 1) -> Work:
    return Work(KEY, [None] * rows, [tokens] * rows, int(began_ms * MS), int(ended_ms * MS))  # type: ignore[list-item]


def counted(tally: Tally) -> m.Tallied:
    (one,) = tally.report("pipe.rank0", "pipe.rank0.1", {}, {}).methods
    return one


def test_batches_rows_tokens_and_time_add_up() -> None:
    tally = Tally([KEY])
    tally.ran(work(3, 10, 12, tokens=5))
    tally.ran(work(1, 20, 21))
    tally.broke(KEY)
    assert counted(tally) == m.Tallied(
        *KEY,
        batches=2,
        broken=1,
        rows=4,
        tokens=16,
        busy_ns=3 * MS,
        rows_up_to=(1, 0, 1) + (0,) * (ROWS_BUCKETS - 3),
        time_up_to=(0, 0, 0, 0, 1, 1) + (0,) * (TIME_BUCKETS - 6),
    )


@pytest.mark.parametrize(
    ("rows", "bucket"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (512, 9), (513, 10), (9000, 10)]
)
def test_a_batch_is_counted_up_to_the_next_power_of_two_of_its_rows(rows: int, bucket: int) -> None:
    tally = Tally([KEY])
    tally.ran(work(rows, 0, 1))
    assert counted(tally).rows_up_to.index(1) == bucket


@pytest.mark.parametrize(
    ("ms", "bucket"),
    [(0, 0), (0.1, 0), (0.1001, 1), (0.2, 1), (0.4, 2), (6553.6, 16), (6553.7, 17), (9e5, 17)],
)
def test_a_batch_is_counted_up_to_the_next_doubling_of_a_tenth_of_a_millisecond(
    ms: float, bucket: int
) -> None:
    tally = Tally([KEY])
    tally.ran(work(1, 0, ms))
    assert counted(tally).time_up_to.index(1) == bucket


def test_a_batch_that_was_begun_while_another_ran_counts_from_the_others_end() -> None:
    tally = Tally([KEY])
    first, second = work(1, 0, 10), work(1, 1, 15)
    tally.ran(first)
    tally.ran(second)
    assert counted(tally).busy_ns == 15 * MS  # as long as both together took
    assert second.began_ns == 10 * MS


def test_a_worker_tells_who_asks_and_nobody_else(bench: Bench) -> None:
    worker = bench("pipe.rank0")
    worker.open(0)
    worker.hear(m.StartWalk(0, "saying", 0, "say", {"n": 0, "most": 3}))
    worker.run()
    said = worker.hear(m.Report("http"))
    assert list(said) == ["http"]
    (reported,) = said["http"]
    assert (reported.worker, reported.address) == ("pipe.rank0", "pipe.rank0.1")
    by_method = {(one.component, one.method): one for one in reported.methods}
    assert by_method["lm", "next"].batches == by_method["lm", "next"].rows == 3
    assert by_method["codec", "decode"].batches == 0  # a method that has not run is there all the same


def test_a_worker_tells_which_caches_have_moved(bench: Bench) -> None:
    worker = bench("pipe.rank0")
    moved = worker.state.room.moves["lm"]
    moved.caches_out, moved.caches_back, moved.pages_out, moved.pages_back = 3, 2, 7, 5
    (reported,) = worker.hear(m.Report("http"))["http"]
    assert reported.caches == (m.Moved("lm", 3, 2, 7, 5),)


def test_a_worker_tells_how_many_pages_are_held_and_how_many_were_at_most(bench: Bench) -> None:
    worker = bench("pipe.rank0")
    pool = worker.state.room.caches["lm"].pool
    kept, *others = pool.take(3)
    pool.release(others)
    (reported,) = worker.hear(m.Report("http"))["http"]
    assert reported.held == (m.Held("lm", 1, 3),)
    pool.release([kept])
