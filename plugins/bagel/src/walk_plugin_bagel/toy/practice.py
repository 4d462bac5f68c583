"""Requests of one kind, side by side, whose cache is made for training: it lets gradients through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class Practice:
    """Rows that a language model reads turn by turn, as it does when it serves: what was read stays in the
    cache.

    seen = Practice(24)
    llm.prefill_vit(seen.turn(seen=tokens))
    llm.prefill_text(seen.turn(ids=questions))
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.state: list[Any] = [None] * rows
        self.lengths = [0] * rows
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self._is_kept = torch.zeros(rows, 0, dtype=torch.bool)

    def turn(self, *, keeps: bool = True, **values: Sequence[Any]) -> Turn:
        """A ``Batch`` of what all rows have next.

        Args:
            keeps: Whether later turns see this one.
            values: By name, one for each row; of "ids", "seen" and "latents" the first gives the tokens.
        """
        return Turn(self, values, keeps=keeps)


class Turn:
    """One call of the model, with the cache that it sees."""

    def __init__(self, practice: Practice, values: Mapping[str, Sequence[Any]], *, keeps: bool) -> None:
        self.size, self.state = practice.rows, practice.state
        self.cache = self
        self._practice, self._values, self._keeps = practice, values, keeps
        self.lengths: Sequence[int] = list(practice.lengths)
        news = _tokens(values)
        self.cu_seqlens: Sequence[int] = list(accumulate(news, initial=0))
        self.positions = torch.cat(
            [torch.arange(have, have + new) for have, new in zip(self.lengths, news, strict=True)]
        )
        # (rows, most): where a row's tokens are in the batch; what is past its end is its first once more
        most = torch.arange(max(news))
        new = torch.tensor(news)[:, None]
        self._is_new = most < new
        self._at = torch.tensor(self.cu_seqlens[:-1])[:, None] + most.where(self._is_new, 0)
        self._before = dict(practice._kept)
        self._was_kept = practice._is_kept
        if keeps:
            practice.lengths = [have + new for have, new in zip(self.lengths, news, strict=True)]
            practice._is_kept = torch.cat([practice._is_kept, self._is_new], 1)

    def values(self, name: str) -> list[Any]:
        return list(self._values[name])

    def cat(self, name: str) -> Tensor:
        return torch.tensor([each for row in self._values[name] for each in row])

    def last(self, hidden: Tensor) -> Tensor:
        """The last new token of each row."""
        return hidden[[stop - 1 for _, stop in pairwise(self.cu_seqlens)]]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, scale: float | None = None
    ) -> Tensor:
        # (tokens of all, heads, head_dim) -> (rows, heads, most, head_dim)
        q, k, v = (each[self._at].transpose(1, 2) for each in (q, k, v))
        most = self._at.shape[1]
        fresh = self._is_new[:, None].expand(-1, most, -1)
        if causal:
            fresh = fresh & torch.ones(most, most, dtype=torch.bool).tril()
        mask = torch.cat([self._was_kept[:, None].expand(-1, most, -1), fresh], 2)
        if layer in self._before:
            k, v = (torch.cat(pair, 2) for pair in zip(self._before[layer], (k, v), strict=True))
        if self._keeps:
            self._practice._kept[layer] = k, v
        attended = scaled_dot_product_attention(
            q, k, v, attn_mask=mask[:, None], scale=scale, enable_gqa=True
        )
        return attended.transpose(1, 2)[self._is_new]


def _tokens(values: Mapping[str, Sequence[Any]]) -> list[int]:
    """New tokens of each row; an image has two delimiters."""
    if "ids" in values:
        return [len(ids) for ids in values["ids"]]
    if "seen" in values:
        return [len(seen) + 2 for seen in values["seen"]]
    return [latents.shape[0] * latents.shape[1] + 2 for latents in values["latents"]]
