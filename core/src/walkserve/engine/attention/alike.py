"""Rows of equal lengths in one attention: candidates of a Fan, which begin together and step together.

row 0   committed . . . . . . new . .          all rows: (rows, heads, new, committed + new)
row 1   committed . . . . . . new . .          no padding, and one mask for all
row 2   committed . . . . . . new . .
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from walkserve.cache.paged import PagedCache


@dataclass(frozen=True)
class Alike:
    """Some rows that keep their new tokens, equally many, after equally many committed ones.

    Args:
        at: (rows * tokens,) their places among the batch's tokens.
        pages: (rows * pages of one,) where their branches lie, new tokens included.
    """

    rows: int
    tokens: int
    committed: int
    at: Tensor
    pages: Tensor

    def attend(
        self, cache: PagedCache, layer: int, q: Tensor, out: Tensor, causal: bool, scale: float | None
    ) -> None:
        """Attention of all its rows, once their new keys and values are written."""
        stop = self.committed + self.tokens
        seen = cache.gather(layer, self.pages, each=cache.pool.page_size)
        k, v = (each.view(self.rows, -1, *each.shape[1:])[:, :stop].transpose(1, 2) for each in seen)
        mask = None
        if causal and self.committed:
            mask = torch.full((self.tokens, stop), -torch.inf, dtype=q.dtype, device=q.device)
            mask = mask.triu(self.committed + 1)
        answer = scaled_dot_product_attention(
            q[self.at].view(self.rows, self.tokens, *q.shape[1:]).transpose(1, 2),
            k,
            v,
            attn_mask=mask,
            is_causal=causal and mask is None,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        out.index_copy_(0, self.at, answer.transpose(1, 2).flatten(0, 1))


def groups_of_alike(kinds: Sequence[tuple[int, int]], most_tokens: int) -> Iterator[list[int]]:
    """Rows that may attend together: two or more, which see no more than ``most_tokens`` in all.

    Args:
        kinds: Of each row, its committed and its new tokens; no new ones for a row that is out of question.
    """
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, kind in enumerate(kinds):
        if kind[1]:
            found[kind].append(row)
    for (committed, tokens), rows in found.items():
        size = most_tokens // (committed + tokens)
        for start in range(0, len(rows), max(1, size)):
            group = rows[start : start + max(1, size)]
            if len(group) > 1:
                yield group
