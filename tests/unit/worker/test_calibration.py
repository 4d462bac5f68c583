"""How budgets are found, on a machine whose steps take as long as a test says, by a clock of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from walkserve.cache.pages import PagePool, PageTable
from walkserve.engine.rows import Row
from walkserve.worker.budget import TokenBudget
from walkserve.worker.calibration import Calibration, Pages
from walkserve.worker.live import Branch
from walkserve.worker.scheduler import Key

NEXT: Key = ("lm", "next")
READ: Key = ("lm", "read")
Cost = Callable[[int, int], float]
"""Milliseconds that a piece of so many tokens adds to a step, with so many in the cache."""


class Machine:
    """An engine: a batch takes 20 ms, and more for tokens of long rows."""

    def __init__(self, cost: Cost, decode_ms: float = 20.0) -> None:
        self.cost = cost
        self.decode_ms = decode_ms
        self.ms = 0.0
        self.batches: list[tuple[Key, list[Row]]] = []

    def clock(self) -> float:
        return self.ms / 1000

    def submit(self, key: Key, rows: Sequence[Row]) -> Any:
        assert len({id(row.branch) for row in rows}) == len(rows)
        self.batches.append((key, list(rows)))
        self.ms += self.decode_ms if any(row.tokens == 1 for row in rows) else 0.0
        for row in rows:
            row.branch.table.reserve(row.tokens)  # there is room
            if row.tokens > 1:
                self.ms += self.cost(row.tokens, row.branch.table.length)
        return self

    def finish(self) -> None: ...

    def pieces(self) -> list[tuple[int, int]]:
        """Context and tokens of each piece that was tried, once."""
        tried = [(row.branch, row) for _, rows in self.batches for row in rows if row.tokens > 1]
        return list(dict.fromkeys((branch.table.length, row.tokens) for branch, row in tried))


def row(tokens: int, pool: PagePool, **values: Any) -> Row:
    return Row(values, Branch(PageTable(pool)), "options", (0, 0, "track", 0), turn=3, tokens=tokens)


def calibrated(
    machine: Machine, *, pages: int = 1000, longest: int = 8000, least: int = 16, read_by: Key = NEXT
) -> tuple[TokenBudget | None, PagePool]:
    pool = PagePool(pages, 16)
    made = Calibration({read_by: (64, least)}, machine, {"lm": Pages(pool, longest)}, clock=machine.clock)
    made.samples.note(read_by, row(3, pool, ids=[1, 2, 3], voice="tara"))
    made.samples.note(NEXT, row(1, pool, ids=7, voice="tara"))
    return made.budgets().get(read_by), pool


def test_a_budget_is_the_most_tokens_that_keep_a_step_under_twice_its_time() -> None:
    budget, _ = calibrated(Machine(lambda tokens, context: tokens * 0.2))
    assert budget is not None
    assert budget.at(0) == budget.at(7000) == 96  # 19.2 ms; the next step, 128, were 25.6


def test_the_longer_the_context_the_smaller_the_budget() -> None:
    budget, _ = calibrated(Machine(lambda tokens, context: tokens * (0.2 + context / 5000)))
    assert budget is not None
    found = {context: budget.at(context) for context in (0, 1, 512, 513, 1025, 2049, 9000)}
    assert found == {0: 96, 1: 64, 512: 64, 513: 48, 1025: 32, 2049: 16, 9000: 16}
    assert list(budget.tokens) == sorted(budget.tokens, reverse=True)
    assert list(budget.contexts) == sorted(budget.contexts)


def test_a_prompt_gets_on_however_dear_it_is() -> None:
    budget, _ = calibrated(Machine(lambda tokens, context: tokens * 100.0))
    assert budget is not None and budget.at(0) == 16
    budget, _ = calibrated(Machine(lambda tokens, context: tokens * 100.0), least=64)
    assert budget is not None and budget.at(0) == 64


def test_a_budget_is_no_more_than_one_request_may_have() -> None:
    machine = Machine(lambda tokens, context: 0.0)
    budget, _ = calibrated(machine, longest=100)
    assert budget is not None and budget.tokens == (96,)
    assert all(context + tokens <= 100 for context, tokens in machine.pieces())
    budget, _ = calibrated(Machine(lambda tokens, context: 0.0))
    assert budget is not None and budget.tokens == (2048,), "and what is computed fits beside the cache"


@pytest.mark.parametrize("pages", [2, 3, 8, 20, 100])
def test_nothing_of_it_remains_however_small_the_pool(pages: int) -> None:
    machine = Machine(lambda tokens, context: tokens * 0.2)
    budget, pool = calibrated(machine, pages=pages)
    assert pool.free == pages
    pool.check([])
    assert budget is not None
    assert all(row.branch.table.pages == [] for _, rows in machine.batches for row in rows)


def test_a_pool_without_room_for_it_is_served_all_the_same() -> None:
    assert calibrated(Machine(lambda tokens, context: 0.0), pages=1)[0] is None


def test_rows_are_the_warm_ups_own_made_longer() -> None:
    machine = Machine(lambda tokens, context: tokens * 0.2)
    calibrated(machine)
    long = next(row for _, rows in machine.batches for row in rows if row.tokens > 1)
    assert long.values == {"ids": ([1, 2, 3] * long.tokens)[: long.tokens], "voice": "tara"}
    assert not long.is_last, "a piece: it samples nothing"
    short = machine.batches[0][1]
    assert [one.values for one in short] == [{"ids": 7, "voice": "tara"}] * 8
    assert {(one.options, one.turn, one.tokens, one.is_last) for one in short} == {("options", 3, 1, True)}


def test_where_prompts_have_a_method_of_their_own_both_batches_count() -> None:
    machine = Machine(lambda tokens, context: tokens * 0.2)
    budget, _ = calibrated(machine, read_by=READ)
    assert budget is not None and budget.tokens == (96,)
    assert {key for key, _ in machine.batches} == {NEXT, READ}
    assert all(len({row.tokens == 1 for row in rows}) == 1 for _, rows in machine.batches)


def test_a_slow_machine_is_asked_little_and_what_it_had_no_time_for_is_reckoned() -> None:
    """Three billion weights on a CPU: a step takes two seconds."""

    def cost(tokens: int, context: int) -> float:
        return tokens * (20.0 + context / 100)

    machine = Machine(cost, decode_ms=2000.0)
    budget, _ = calibrated(machine)
    assert machine.ms < 20_000
    assert budget is not None and len(budget.tokens) >= 4
    assert (budget.at(0), budget.at(9000)) == (64, 16)
    assert all(cost(budget.at(context), context) <= 2000 for context in range(0, 7900, 100))


def test_a_slow_moment_of_the_machine_changes_nothing() -> None:
    slow = iter([0.0] * 4 + [100.0, 0.0, 0.0, 100.0] * 100)
    budget, _ = calibrated(Machine(lambda tokens, context: tokens * 0.2 + next(slow)))
    assert budget is not None and budget.at(0) == 96


def test_a_component_that_raises_on_such_rows_is_served_without_a_budget() -> None:
    def broken(tokens: int, context: int) -> float:
        raise ValueError("this position is not there")

    budget, pool = calibrated(Machine(broken))
    assert budget is None
    assert pool.held == 0


def test_a_warm_up_without_a_long_row_or_without_a_short_one_measures_nothing() -> None:
    for tokens in (1, 3):
        machine, pool = Machine(lambda tokens, context: 0.0), PagePool(100, 16)
        made = Calibration({NEXT: (64, 16)}, machine, {"lm": Pages(pool, 100)}, clock=machine.clock)
        made.samples.note(NEXT, row(tokens, pool, ids=[1] * tokens))
        made.samples.note(("codec", "decode"), row(1, pool))
        assert made.budgets() == {} and machine.batches == []


def test_a_second_warm_up_measures_nothing_again() -> None:
    """Another worker was lost; requests may still run on this one."""
    machine, pool = Machine(lambda tokens, context: tokens * 0.2), PagePool(100, 16)
    made = Calibration({NEXT: (64, 16)}, machine, {"lm": Pages(pool, 100)}, clock=machine.clock)
    for _ in range(2):
        made.samples.note(NEXT, row(3, pool, ids=[1, 2, 3]))
        made.samples.note(NEXT, row(1, pool, ids=7))
        before = len(machine.batches)
        budgets = made.budgets()
    assert list(budgets) == [NEXT] and len(machine.batches) == before > 0
