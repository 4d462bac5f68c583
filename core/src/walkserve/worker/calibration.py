"""How many tokens of a long prompt may join a batch: measured once, when the model is warm.

Who listens to a stream notices when one of its turns takes much longer than the others. So a batch that
brings in a piece of somebody's prompt beside rows that decode is to take less than twice as long as without
the piece. How many tokens that is depends on the device, on the component, and on what the piece attends to::

    ms                            ╱ at 4,000 tokens in the cache
    60 ┤┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄╱┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ ╱ twice the decode step
       │                   ╱          ╱  at none
    30 ┤───────────────╱──────╱─────────────── a decode step of eight rows
       └──────────────┬──────────────┬──── tokens of the piece
                     16             96

The rows are a warm-up's own, made longer, on pages that are given back; nothing is committed or counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from walkserve.cache.pages import PagePool, PageTable
from walkserve.engine.broken import raise_if_broken
from walkserve.engine.rows import Engine, Row
from walkserve.worker.budget import TokenBudget
from walkserve.worker.live import Branch
from walkserve.worker.samples import Sample, Samples
from walkserve.worker.scheduler import Key

log = logging.getLogger(__name__)

ROWS = 8
"""That decode meanwhile, where a batch may have so many; of more a step takes longer, and the bound holds."""
LEAST, MOST = 16, 2048
"""Tokens: a prompt has to get on, and what a batch computes has to fit beside the cache."""
TIMES = 2.0
"""What a decode step may become."""
CONTEXTS = tuple(2**power for power in range(9, 18))
"""Tokens in the cache that are tried between none and the longest."""
TRIES, PATIENCE_S = 5, 0.06
"""How often one thing is timed, and for how long, if its steps are short; two times if they are long."""
SECONDS = 1.0
"""For one method; what is not measured by then is reckoned from what is."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Where a component's scratch rows may go.

    Args:
        pool: Its pages.
        longest: Tokens that one request may have.
    """

    pool: PagePool
    longest: int


class Calibration:
    """Measures the budgets of methods whose rows may be split.

    Args:
        keys: Those methods -> the most rows of a batch, and the least tokens a piece may have.
        pages: Component -> its cache.
        settle: Wait for the device.
        beat: Called after every step: whoever hears nothing of a worker may take it for stuck.
        clock: In seconds.
    """

    def __init__(
        self,
        keys: Mapping[Key, tuple[int, int]],
        engine: Engine,
        pages: Mapping[str, Pages],
        *,
        settle: Callable[[], None] = lambda: None,
        beat: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.samples = Samples(keys)
        self._keys = keys
        self._engine = engine
        self._pages = pages
        self._settle = settle
        self._beat = beat
        self._clock = clock
        self._budgets: dict[Key, TokenBudget] | None = None

    def budgets(self) -> dict[Key, TokenBudget]:
        """Of each method that the warm-up has passed with a long row; measured when first asked for."""
        if self._budgets is None:
            self._budgets = {}
            for key in self._keys:
                try:
                    budget = self._measure(key)
                except Exception as error:  # whatever a component thinks of such rows, it can be served
                    raise_if_broken(error)
                    log.warning("%s.%s: its token budget cannot be measured", *key, exc_info=True)
                    continue
                if budget is not None:
                    self._budgets[key] = budget
                    log.debug("%s.%s: %s", *key, budget)
        self.samples.clear()
        return self._budgets

    def _measure(self, key: Key) -> TokenBudget | None:
        """None where there is nothing to measure with."""
        long, short = self.samples.long(key), self.samples.short(key)
        pages = self._pages[key[0]]
        rows, least = self._keys[key]
        rows = min(ROWS, rows, pages.pool.free // 2)
        longest = min(pages.longest, (pages.pool.free - rows) * pages.pool.page_size)
        steps = list(_steps(least, min(MOST, longest)))
        if long is None or short is None or rows < 1 or not steps:
            return None
        with _scratch(pages.pool) as new_branch:
            # A page less one token each: the shorter the rows, the sooner a step is twice as long.
            decode_key, sample = short
            decoding = [
                sample.made(new_branch(pages.pool.page_size - 1), 1, is_last=True) for _ in range(rows)
            ]
            timing = _Timing(self._step, self._clock, decode_key, decoding)
            return _Search(timing, key, long, pages, steps, longest).budget()

    def _step(self, batches: Mapping[Key, list[Row]]) -> None:
        """Run some batches, one after the other, to their end."""
        for key, rows in batches.items():
            self._engine.submit(key, rows).finish()
        self._settle()
        self._beat()


class _Timing:
    """Times batches that hold decoding rows, and says whether one takes too long."""

    def __init__(
        self,
        step: Callable[[Mapping[Key, list[Row]]], None],
        clock: Callable[[], float],
        key: Key,
        decoding: list[Row],
    ) -> None:
        self._step = step
        self._clock = clock
        self._key = key
        self._decoding = decoding
        self._once(key, None)  # what is done for the first time takes longer
        began = clock()
        times = [self._once(key, None)]
        while len(times) < TRIES and clock() - began < PATIENCE_S:
            times.append(self._once(key, None))
        self._decode_s = min(times)
        self._until = clock() + max(SECONDS, 3 * self._decode_s)

    @property
    def is_over(self) -> bool:
        """Whether time is up."""
        return self._clock() > self._until

    def fits(self, key: Key, row: Row) -> bool:
        """Whether the row may join."""
        # what else the machine does makes a step longer, never shorter: the shortest so far is the truth
        self._decode_s = min(self._decode_s, self._once(self._key, None))
        began = self._clock()
        for tried in range(TRIES):
            if tried > 1 and self._clock() - began > PATIENCE_S:
                return False
            if self._once(key, row) <= TIMES * self._decode_s:
                return True
        return False

    def _once(self, key: Key, row: Row | None) -> float:
        """Seconds of one step: a batch, or two where prompts are read by a method of their own."""
        batches = {self._key: self._decoding}
        if row is not None:
            batches[key] = [*batches.get(key, ()), row]
        began = self._clock()
        self._step(batches)
        return self._clock() - began


class _Search:
    """Looks for the most tokens that fit, at each context."""

    def __init__(
        self, timing: _Timing, key: Key, sample: Sample, pages: Pages, steps: list[int], longest: int
    ) -> None:
        self._timing = timing
        self._key = key
        self._sample = sample
        self._pages = pages
        self._steps = steps
        self._longest = longest

    def budget(self) -> TokenBudget:
        """Both ends first: what lies between is bounded by them, and by what was found before it."""
        most, _ = self._most(0, 0, len(self._steps) - 1)
        last = self._longest - self._steps[most]
        found = {0: most}
        if last > 0:
            least, _ = self._most(last, 0, most)
            sooner = 0
            for context in (context for context in CONTEXTS if 1.5 * context < last):
                between = self._between(sooner, most, last, least, context)
                low, high = self._most(context, least, most)
                most = found[context] = min(max(between, low), high)
                sooner = context
            found[last] = least
        longest_with = {step: context for context, step in found.items()}  # the last of each stays
        return TokenBudget(tuple(longest_with.values()), tuple(self._steps[step] for step in longest_with))

    def _most(self, context: int, low: int, high: int) -> tuple[int, int]:
        """Which of the steps is the highest that fits, ``low`` being known to, and more than ``high`` not to.

        Between which it is, if time is up before that is known.
        """
        with _scratch(self._pages.pool) as new_branch:
            branch = new_branch(context)
            for stride in (2, 1):  # by doubling, then once by half of that
                while low + stride <= high:
                    if self._timing.is_over:
                        return low, high
                    row = self._sample.made(branch, self._steps[low + stride], is_last=False)
                    if self._timing.fits(self._key, row):
                        low += stride
                    else:
                        high = low + stride - 1
        return low, high

    def _between(self, sooner: int, most: int, later: int, least: int, context: int) -> int:
        """The step of a context between two that are known: a token's cost grows evenly with what it sees."""
        share = (context - sooner) / (later - sooner)
        tokens = 1 / ((1 - share) / self._steps[most] + share / self._steps[least])
        return max(
            step for step in range(least, most + 1) if self._steps[step] <= max(tokens, self._steps[least])
        )


@contextmanager
def _scratch(pool: PagePool) -> Iterator[Callable[[int], Branch]]:
    """Branches with so many tokens in the cache, whatever these are; they are dropped in the end."""
    made: list[Branch] = []
    fewest_free = pool.fewest_free  # nobody's request has been here

    def new_branch(tokens: int) -> Branch:
        branch = Branch(PageTable(pool))
        made.append(branch)
        if tokens:
            assert branch.table is not None
            branch.table.reserve(tokens)
            branch.table.commit(tokens)
        return branch

    try:
        yield new_branch
    finally:
        for branch in made:
            branch.drop()
        pool.fewest_free = fewest_free


def _steps(least: int, most: int) -> Iterator[int]:
    """least x 1, 1.5, 2, 3, 4, 6, 8, … up to ``most``: few, so that servers of one kind agree."""
    step = least
    while step <= most:
        yield step
        if step + step // 2 <= most:
            yield step + step // 2
        step *= 2
