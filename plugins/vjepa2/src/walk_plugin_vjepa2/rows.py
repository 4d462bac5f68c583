"""Rows that one pass can take together: those whose tensors have the same shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence


def alike(kinds: Sequence[Hashable], *, most: int) -> Iterator[list[int]]:
    """Groups of row numbers of one kind each, none of more than ``most`` rows."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for row, kind in enumerate(kinds):
        groups[kind].append(row)
    for group in groups.values():
        for start in range(0, len(group), most):
            yield group[start : start + most]
