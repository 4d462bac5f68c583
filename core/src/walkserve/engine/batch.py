"""The batch a component meets: rows packed along tokens, their caches, states and random streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from itertools import accumulate
from typing import Any, overload

import torch
from torch import Tensor

from walkserve.engine.attention import AttentionRow, PagedAttention
from walkserve.engine.held import Held
from walkserve.engine.random import key63, uniform
from walkserve.engine.rows import Row, RowResult
from walkserve.engine.sampler import SampleRow, sample
from walkserve_sdk import ComponentError, Stop
from walkserve_sdk.errors import shown

COLDEST = 1e-5
"""A temperature below this draws as this does: only the likeliest token, and no division overflows."""


class RowStates(MutableSequence[Any]):
    """The rows' states. Assigning notes a new state for the commit; the old one stays what it was."""

    def __init__(self, rows: Sequence[Row], results: Sequence[RowResult]) -> None:
        self._rows = rows
        self._results = results

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [row.branch.state for row in self._rows[index]]
        return self._rows[index].branch.state

    def __setitem__(self, index: Any, state: Any) -> None:
        self._results[index].state = state

    def __len__(self) -> int:
        return len(self._rows)

    def __delitem__(self, index: Any) -> None:
        raise TypeError("a batch has as many states as rows")

    def insert(self, index: int, value: Any) -> None:
        raise TypeError("a batch has as many states as rows")

    def __iter__(self) -> Iterator[Any]:
        return (row.branch.state for row in self._rows)


class TorchBatch:
    """See ``walkserve_sdk.Batch`` for what components may rely on.

    Args:
        tile: Packed tokens and sampling rows are padded to a multiple of this; 1 pads nothing. Products of
            matrices give a row the same bits in every batch whose size is such a multiple.
    """

    def __init__(self, held: Held, rows: Sequence[Row], *, tile: int, deterministic: bool) -> None:
        self._held = held
        self._rows = rows
        self._tile = tile
        self._deterministic = deterministic
        self._cache: PagedAttention | None = None
        self._draws = 0
        self.results = [RowResult() for _ in rows]
        self.size = len(rows)
        self.state = RowStates(rows, self.results)
        self.options = [row.options for row in rows]
        self.turn = [row.turn for row in rows]

    @property
    def cache(self) -> PagedAttention:
        if self._cache is None:
            if self._held.cache is None:
                raise TypeError(
                    f"{self._held.name} has no cache: declare it with Component(..., kv=PagedKV())"
                )
            tokens = sum(row.tokens for row in self._rows)
            self._cache = PagedAttention(
                self._held.cache,
                [AttentionRow(row.branch.table, row.tokens, row.keeps) for row in self._rows],
                deterministic=self._deterministic,
                padded_tokens=self._padded(tokens),
            )
        return self._cache

    def _padded(self, count: int) -> int:
        return -(-count // self._tile) * self._tile

    def values(self, name: str) -> list[Any]:
        return [self._piece(row, row.values[name]) for row in self._rows]

    def _piece(self, row: Row, value: Any) -> Any:
        """A split row's share of what it takes per token."""
        if (
            self._held.cache is None
            or (row.is_last and row.done == 0)
            or not isinstance(value, list | Tensor)
        ):
            return value
        return value[row.done : row.done + row.tokens]

    def cat(self, name: str) -> Tensor:
        pieces = self.values(name)
        if any(isinstance(piece, Tensor) for piece in pieces):
            joined = torch.cat([self._tensor(piece) for piece in pieces])
        else:
            flat: list[Any] = []
            for piece in pieces:
                flat.extend(piece) if isinstance(piece, list) else flat.append(piece)
            joined = torch.tensor(flat, dtype=torch.int64, device=self._held.device)
        missing = self._padded(len(joined)) - len(joined)
        return torch.cat([joined, joined.new_zeros(missing, *joined.shape[1:])]) if missing else joined

    def _tensor(self, piece: Any) -> Tensor:
        made = piece if isinstance(piece, Tensor) else torch.tensor(piece, dtype=torch.int64)
        return made.to(self._held.device).reshape(1) if made.dim() == 0 else made.to(self._held.device)

    def last(self, hidden: Tensor) -> Tensor:
        ends = list(accumulate(row.tokens for row in self._rows))
        at = [end - 1 for end in ends]
        at += [at[-1]] * (self._padded(self.size) - self.size)
        if at == list(range(len(hidden))):
            return hidden  # one token each: nothing to pick
        return hidden[torch.tensor(at, device=hidden.device)]

    def sample(
        self,
        logits: Tensor | Sequence[Tensor],
        *,
        params: str = "sampling",
        stop: Mapping[int, str] | None = None,
        seen: str | None = None,
        allow: Sequence[Tensor | None] | None = None,
    ) -> list[Any]:
        draw, self._draws = self._draws, self._draws + 1
        ready = [index for index, row in enumerate(self._rows) if row.is_last]
        if seen is not None:
            self._note_seen(seen, params)
        allowed = allow if allow is not None else [None] * self.size
        asked = [self._sample_row(index, params, seen, draw, allowed[index]) for index in ready]
        if len(ready) < len(logits):
            logits = _picked(logits, ready)
        drawn: list[Any] = [None] * self.size  # pieces of a split row draw nothing
        for index, token in zip(ready, sample(logits, asked) if ready else [], strict=True):
            drawn[index] = token
            self.results[index].sampled += 1
            if stop is not None and token in stop:
                self.stop(index, Stop(stop[token]))
        return drawn

    def _note_seen(self, name: str, params: str) -> None:
        for row, result, piece in zip(self._rows, self.results, self.values(name), strict=True):
            if getattr(row.options, params).repetition_penalty == 1:
                continue
            new = self._tensor(piece)
            result.seen = new if row.branch.seen is None else torch.cat([row.branch.seen, new])

    def _sample_row(
        self, index: int, params: str, seen: str | None, draw: int, allowed: Tensor | None
    ) -> SampleRow:
        row = self._rows[index]
        wanted = getattr(row.options, params)
        penalised = seen is not None and wanted.repetition_penalty != 1
        return SampleRow(
            temperature=max(wanted.temperature, COLDEST) if wanted.temperature > 0 else 0.0,
            top_k=wanted.top_k,
            top_p=wanted.top_p,
            min_p=wanted.min_p,
            repetition_penalty=wanted.repetition_penalty if penalised else 1.0,
            uniform=uniform(*row.key, row.turn, draw) if wanted.temperature > 0 else 0.0,
            seen=self.results[index].seen if penalised else None,
            allowed=allowed,
        )

    def stop(self, row: int, stop: Stop) -> None:
        self.results[row].stop = stop

    def count(self, row: int, name: str, by: int = 1) -> None:
        counts = self.results[row].counts
        if counts is None:
            counts = self.results[row].counts = {}
        counts[name] = counts.get(name, 0) + by

    def key(self, row: int, *counters: int | str) -> int:
        return key63(*self._rows[row].key, *counters)

    def give(self, gives: Mapping[str, Sequence[Any]] | None) -> list[RowResult]:
        """Deal what the method returned out to the rows, a single value by the name its node has for it.

        Raises:
            ComponentError: It returned other names than a node declares, or fewer values than rows.
        """
        counted = [
            row
            for row, result in zip(self._rows, self.results, strict=True)
            if row.is_last and (result.stop is None or result.stop.keep)
        ]
        if not counted:
            return self.results  # all of it is discarded, so it may be anything
        given = self._checked(gives, {row.gives for row in counted if row.gives is not None})
        for name, values in given.items():
            if len(values) < self.size:
                raise ComponentError(
                    f"{self._held.name} gave {len(values)} values of {name!r} for {self.size} rows"
                )
            for row, result, value in zip(self._rows, self.results, values, strict=False):
                result.gives[row.gives[0] if len(given) == 1 and row.gives else name] = value
        return self.results

    def _checked(self, gives: Any, declared: set[tuple[str, ...]]) -> Mapping[str, Sequence[Any]]:
        given = {} if gives is None else gives
        for names in declared:
            fits = isinstance(given, Mapping) and (
                given.keys() == set(names) or len(given) == len(names) == 1
            )
            if not fits:
                there = sorted(given) if isinstance(given, Mapping) and given else gives
                raise ComponentError(
                    f"{self._held.name}: it must give {sorted(names)}, but returned {shown(there)}"
                )
        return given


def _picked(logits: Tensor | Sequence[Tensor], rows: list[int]) -> Tensor | Sequence[Tensor]:
    if isinstance(logits, Tensor):
        return logits[torch.tensor(rows, dtype=torch.int64, device=logits.device)]
    return [logits[row] for row in rows]
