"""A light model of caches and states: per branch a length, a content id and a state."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple


class Branch(NamedTuple):
    """One continuation of one component's cache and state.

    Args:
        length: Tokens in the cache.
        content: Equal ids mean equal content: a fork copies the id, whatever keeps something makes a new
            one. 0 is empty.
        state: The component's own, shared by reference.
    """

    length: int = 0
    content: int = 0
    state: Any = None


EMPTY = Branch()


class Branches:
    """Every branch of one request, or of one row of a Fan."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Branch] = {}
        self._contents = count(1)

    def get(self, component: str, branch: str) -> Branch:
        """A branch that nobody wrote or forked is empty."""
        return self.known.get((component, branch), EMPTY)

    def fork(self, component: str, branch: str | None, to: str) -> None:
        """Onto an existing name it replaces it; of None it is empty."""
        self.known[component, to] = EMPTY if branch is None else self.get(component, branch)

    def keep(self, component: str, branch: str, length: int, state: Any) -> None:
        """Commit what a call left."""
        self.known[component, branch] = Branch(length, next(self._contents), state)

    def for_row(self) -> Branches:
        """An anonymous fork of everything; what a row writes is gone with it."""
        row = Branches()
        row.known = dict(self.known)
        row._contents = self._contents
        return row
