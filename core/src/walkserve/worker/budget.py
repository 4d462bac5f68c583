"""How many tokens of long rows go beside rows that somebody waits for: fewer, the longer the context."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """A table of two columns.

    Args:
        contexts: Tokens a long row has in the cache already, ascending.
        tokens: What it may add in one batch with up to so many; the last holds beyond as well.
    """

    contexts: tuple[int, ...]
    tokens: tuple[int, ...]

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Row by row."""
        return tuple(zip(self.contexts, self.tokens, strict=True))

    def at(self, context: int) -> int:
        """Tokens for a long row that has so many in the cache."""
        return self.tokens[min(bisect_left(self.contexts, context), len(self.tokens) - 1)]
