"""Rows of a warm-up, to make rows of other lengths of: whoever times a component needs what it takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from walkserve.engine.rows import Row
from walkserve.worker.live import Branch
from walkserve.worker.scheduler import Key


@dataclass(slots=True)
class Sample:
    """One row as an engine met it, and the branch's state and what sampling had seen, without its pages."""

    row: Row
    state: Any
    seen: Any

    def made(self, branch: Branch, tokens: int, *, is_last: bool) -> Row:
        """Such a row of so many tokens: what it takes per token is repeated, or cut."""
        branch.state, branch.seen = self.state, self.seen
        values = self.row.values
        if tokens != self.row.tokens:
            values = {name: _repeated(value, tokens) for name, value in values.items()}
        return replace(self.row, values=values, branch=branch, tokens=tokens, done=0, is_last=is_last)


class Samples:
    """The longest row of each method, and the last one of a single token.

    Args:
        keys: Methods that may be asked for a row; others of the same components are noted as well.
    """

    def __init__(self, keys: Collection[Key]) -> None:
        self.keys = keys
        self._components = {component for component, _ in keys}
        self._long: dict[Key, Sample] = {}
        self._short: dict[Key, Sample] = {}

    def note(self, key: Key, row: Row) -> None:
        """A row of a warm-up is about to run."""
        if key[0] not in self._components:
            return
        if row.done > 0:
            return  # the rest of a row that was split
        if row.tokens == 1:
            self._short[key] = Sample(row, row.branch.state, row.branch.seen)
            return
        longest = self._long.get(key)
        if longest is None or longest.row.tokens < row.tokens:
            self._long[key] = Sample(row, row.branch.state, row.branch.seen)

    def long(self, key: Key) -> Sample | None:
        """Of several tokens."""
        return self._long.get(key)

    def short(self, key: Key) -> tuple[Key, Sample] | None:
        """Of one token: of the same method, or else of another of its component that decodes."""
        for one in (key, *self._short):
            if one[0] == key[0] and one in self._short:
                return one, self._short[one]
        return None

    def clear(self) -> None:
        """Nothing more is asked for."""
        self._long.clear()
        self._short.clear()


def _repeated(value: Any, tokens: int) -> Any:
    """A list or tensor, which is token-first, with so many tokens; anything else as it is."""
    if isinstance(value, list):
        return (value * -(-tokens // len(value)))[:tokens] if value else value
    rows, *inner = getattr(value, "shape", ()) or (0,)
    return value.repeat(-(-tokens // rows), *(1 for _ in inner))[:tokens] if rows else value
