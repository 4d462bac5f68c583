"""Attention of one batch over the paged cache, by PyTorch's scaled dot product.

Three paths, chosen per row when the batch is built:

* row by row: gather what the row may see, then one attention. For prefill, for
  calls that keep nothing, and for every row of a deterministic batch, where a
  row's arithmetic may not depend on its neighbours.
* decode rows of similar length together: one padded gather and one masked attention
  per layer, while that is the faster way.
* rows of several tokens and of equal lengths together (``alike.py``), while they are small.

The query group of grouped-query attention (``group`` = heads / kv_heads) shares a
key head. One new token folds the group into the query length, so that a group is
one matrix product and needs no mask; several new tokens keep it as a dimension of
its own, over which keys and values are repeated without a copy:

    one token    q (1, kv_heads, group, head_dim)        k, v (1, kv_heads, seen, head_dim)
    several      q (kv_heads, group, tokens, head_dim)   k, v (kv_heads, group*, seen, head_dim)
                                                         * stride 0
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from walkserve.cache.paged import PagedCache
from walkserve.cache.pages import PageTable
from walkserve.engine.attention.alike import Alike, groups_of_alike


@dataclass(frozen=True)
class AttentionRow:
    """One row's branch, its number of new tokens, and whether the branch keeps them."""

    table: PageTable
    tokens: int
    keeps: bool = True


# Where decoding rows one by one becomes faster than together, as measured on a CPU: once a padded
# gather no longer stays in the processor's cache, or is too much padding; and once a row is so long that
# gathering it in whole pages, which only a row by itself can be, outweighs the calls that this takes.
_MOST_GATHERED_BYTES = 2 << 20  # of K, and as many of V
_MOST_GATHERED_BYTES_OF_A_DEVICE = 256 << 20  # there, calls are what costs
_FEWEST_ROWS = 8  # of the longest row's size, that these bytes have room for
_MOST_PADDING = 1.5  # times what the rows see


@dataclass
class _Alone:
    """A row computed by itself: it sees ``committed`` tokens, then its own K and V."""

    start: int
    stop: int
    committed: int
    keeps: bool
    pages: Tensor  # of what is committed; of a row that keeps, of its own tokens as well
    dtype: torch.dtype

    @cached_property
    def mask(self) -> Tensor | None:
        """(tokens, committed + tokens), 0 or -inf; None where torch's own causal mask is the same.

        Two tokens after three committed ones:     0 0 0 0 -
                                                   0 0 0 0 0
        """
        if self.committed == 0:
            return None
        size = (self.stop - self.start, self.committed + self.stop - self.start)
        return torch.full(size, -torch.inf, dtype=self.dtype, device=self.pages.device).triu(
            self.committed + 1
        )


@dataclass(frozen=True)
class _Together:
    """Rows of one kept token each, computed as one padded batch."""

    at: Tensor  # (rows,) each row's place among the tokens
    slots: Tensor  # (rows * longest,)
    mask: Tensor  # (rows, 1, 1, longest), 0 or -inf


class PagedAttention:
    """What a component meets as ``batch.cache``: its rows' branches, for one batch.

    Building it reserves room for every row that keeps, and carries out the page
    copies that this takes. Committing is for whoever finishes the batch.

    Attributes:
        cu_seqlens: Where each row's tokens begin, and where the last one's end.
        lengths: Committed tokens of each row's branch before this call.
        positions: (padded tokens,) int64, each token's place in its branch; 0 where padded.
    """

    def __init__(
        self,
        cache: PagedCache,
        rows: Sequence[AttentionRow],
        *,
        deterministic: bool = False,
        padded_tokens: int | None = None,
    ) -> None:
        """Plan a batch.

        Args:
            cache: Where the rows' tables have their pages.
            rows: In the order of their tokens in q, k and v.
            deterministic: Compute each row by itself, so that its bits are the same in any batch.
            padded_tokens: Token dimension of q, k and v, if they are padded at the end.

        Raises:
            OutOfPages: If a row's new tokens have no room. Rows before it have theirs, unused.
            ValueError: If two rows would write the same branch, or the padding is too small.
        """
        self.cu_seqlens = tuple(accumulate((row.tokens for row in rows), initial=0))
        self.lengths = tuple(row.table.length for row in rows)
        self._cache = cache
        self._deterministic = deterministic
        self._tokens = self.cu_seqlens[-1]
        self._padded = self._tokens if padded_tokens is None else padded_tokens
        if self._padded < self._tokens:
            raise ValueError(f"{self._tokens} tokens do not fit into {self._padded}")
        writers = [row.table for row in rows if row.keeps]
        if len({id(table) for table in writers}) < len(writers):
            raise ValueError("two rows of one batch would write the same branch")
        _reserve(cache, rows)
        places = [row.table.length + new for row in rows for new in range(row.tokens)]
        self.positions = self._index(places + [0] * (self._padded - self._tokens))
        self._plan_writes(rows)
        self._plan_reads(rows)

    @torch.no_grad()
    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, scale: float | None = None
    ) -> Tensor:
        """Write the new K and V of the rows that keep, and attend to each row's branch and new tokens.

        Args:
            layer: Which of the cache's layers.
            q: (padded tokens, heads, head_dim); ``heads`` is a multiple of ``kv_heads``.
            k: (padded tokens, kv_heads, head_dim), in the cache's dtype.
            v: Like ``k``.
            causal: Whether a new token sees only the new tokens up to itself, or all of its row.
            scale: What q x k is multiplied by, 1 / sqrt(head_dim) if not given.

        Returns:
            (padded tokens, heads, head_dim), zeros where padded.
        """
        if len(q) != self._padded:
            raise ValueError(f"q has {len(q)} tokens, this batch has {self._padded}")
        self._write(layer, k, v)
        out = q.new_empty(q.shape)  # contiguous, whatever q is a slice of
        out[self._tokens :] = 0
        for rows in self._together:
            self._attend_together(rows, layer, q, out, scale)
        for alike in self._alike:
            alike.attend(self._cache, layer, q, out, causal, scale)
        for row in self._alone:
            self._attend_alone(row, layer, q, k, v, out, causal, scale)
        return out

    def _attend_alone(
        self,
        row: _Alone,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        causal: bool,
        scale: float | None,
    ) -> None:
        new = slice(row.start, row.stop)
        q = self._aligned(q[new])
        if row.committed:
            k, v = self._seen(row, layer, k, v)
        else:
            k, v = self._aligned(k[new]), self._aligned(v[new])
        tokens, (_, kv_heads, head_dim) = row.stop - row.start, k.shape
        group = q.shape[1] // kv_heads
        if tokens == 1:
            folded = q.reshape(1, kv_heads, group, head_dim)
            k, v = k.transpose(0, 1)[None], v.transpose(0, 1)[None]
            out[new] = scaled_dot_product_attention(folded, k, v, scale=scale).reshape(1, -1, head_dim)
            return
        grouped = q.view(tokens, kv_heads, group, head_dim).permute(1, 2, 0, 3)
        k, v = (each.transpose(0, 1)[:, None].expand(-1, group, -1, -1) for each in (k, v))
        mask = row.mask if causal else None
        answer = scaled_dot_product_attention(
            grouped, k, v, attn_mask=mask, is_causal=causal and mask is None, scale=scale
        )
        out[new].view(tokens, kv_heads, group, head_dim).copy_(answer.permute(2, 0, 1, 3))

    def _seen(self, row: _Alone, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of all that a row with a past sees."""
        committed, stop = row.committed, row.committed + row.stop - row.start
        size = self._cache.pool.page_size
        room = max(0, stop - len(row.pages) * size)
        seen = self._cache.gather(layer, row.pages, each=size, room=room)
        if not row.keeps:
            for stored, new in zip(seen, (k, v), strict=True):
                stored[committed:stop] = new[row.start : row.stop]
        return seen[0][:stop], seen[1][:stop]

    def _aligned(self, rows: Tensor) -> Tensor:
        """In a deterministic batch a copy, which begins on an aligned address.

        A slice may not, and the last bits of a product on a CPU differ with the address
        modulo 16 bytes: with the rows before this one.
        """
        return rows.clone(memory_format=torch.contiguous_format) if self._deterministic else rows

    def _attend_together(
        self, rows: _Together, layer: int, q: Tensor, out: Tensor, scale: float | None
    ) -> None:
        k, v = self._cache.gather(layer, rows.slots)
        count, (_, kv_heads, head_dim) = len(rows.at), k.shape
        k, v = (each.view(count, -1, kv_heads, head_dim).transpose(1, 2) for each in (k, v))
        folded = q[rows.at].view(count, kv_heads, -1, head_dim)
        answer = scaled_dot_product_attention(folded, k, v, attn_mask=rows.mask, scale=scale)
        out.index_copy_(0, rows.at, answer.reshape(count, -1, head_dim))

    def _write(self, layer: int, k: Tensor, v: Tensor) -> None:
        if self._kept is not None:
            k, v = k[self._kept], v[self._kept]
        self._cache.k[layer].index_copy_(0, self._targets, k[: len(self._targets)])
        self._cache.v[layer].index_copy_(0, self._targets, v[: len(self._targets)])

    def _plan_writes(self, rows: Sequence[AttentionRow]) -> None:
        kept: list[int] = []
        targets: list[int] = []
        for start, row in zip(self.cu_seqlens, rows, strict=False):
            if row.keeps:
                kept += range(start, start + row.tokens)
                targets += row.table.slots(row.table.length, row.table.length + row.tokens)
        self._targets = self._index(targets)
        self._kept = self._index(kept) if len(kept) < self._tokens else None

    def _plan_reads(self, rows: Sequence[AttentionRow]) -> None:
        decodes = [i for i, row in enumerate(rows) if row.tokens == 1 and row.keeps]
        if self._deterministic:
            decodes = []
        groups = [group for group in self._groups(decodes) if len(group) > 1]
        together = {i for group in groups for i in group}
        self._together = [self._plan_together(rows, group) for group in groups]
        alike = [] if self._deterministic else self._alike_groups(rows)
        self._alike = [self._plan_alike(rows, group) for group in alike]
        together.update(i for group in alike for i in group)
        self._alone = [
            _Alone(
                start=self.cu_seqlens[i],
                stop=self.cu_seqlens[i + 1],
                committed=self.lengths[i],
                keeps=row.keeps,
                pages=self._cache.pages(row.table, self.lengths[i] + row.tokens * row.keeps),
                dtype=self._cache.k.dtype,
            )
            for i, row in enumerate(rows)
            if row.tokens and i not in together
        ]

    def _alike_groups(self, rows: Sequence[AttentionRow]) -> list[list[int]]:
        if len(rows) == 1 or all(row.tokens == 1 for row in rows):
            return []
        most = _MOST_GATHERED_BYTES // self._cache.k[0, 0].nbytes
        if self._cache.k.device.type != "cpu":
            most = _MOST_GATHERED_BYTES_OF_A_DEVICE // self._cache.k[0, 0].nbytes
        kinds = [
            (length, row.tokens if row.keeps and row.tokens > 1 else 0)
            for length, row in zip(self.lengths, rows, strict=True)
        ]
        return list(groups_of_alike(kinds, most))

    def _plan_alike(self, rows: Sequence[AttentionRow], group: list[int]) -> Alike:
        first = group[0]
        tokens, committed = rows[first].tokens, self.lengths[first]
        at = [self.cu_seqlens[i] + new for i in group for new in range(tokens)]
        pages = [self._cache.pages(rows[i].table, committed + tokens) for i in group]
        return Alike(len(group), tokens, committed, self._index(at), torch.cat(pages))

    def _groups(self, decodes: list[int]) -> Iterator[list[int]]:
        """Divide rows, longest first, into groups that are worth padding to their longest."""
        most = _MOST_GATHERED_BYTES // self._cache.k[0, 0].nbytes
        group: list[int] = []
        seen = longest = 0
        for i in sorted(decodes, key=lambda i: -self.lengths[i]):
            length = self.lengths[i] + 1
            padded = (len(group) + 1) * longest
            is_long = longest * _FEWEST_ROWS > most
            if group and (is_long or padded > most or padded > _MOST_PADDING * (seen + length)):
                yield group
                group, seen = [], 0
            if not group:
                longest = length
            group.append(i)
            seen += length
        if group:
            yield group

    def _plan_together(self, rows: Sequence[AttentionRow], decodes: list[int]) -> _Together:
        at = self._index([self.cu_seqlens[i] for i in decodes])
        longest = max(self.lengths[i] for i in decodes) + 1
        slots = at.new_empty(len(decodes), longest)
        mask = self._cache.k.new_zeros(len(decodes), 1, 1, longest)
        for row, i in enumerate(decodes):
            seen = self.lengths[i] + 1
            slots[row, :seen] = self._cache.slots(rows[i].table, seen)
            # Padded with a slot of its own: a masked NaN is still a NaN, and a neighbour may have one.
            slots[row, seen:] = slots[row, 0]
            mask[row, :, :, seen:] = -torch.inf
        return _Together(at, slots.flatten(), mask)

    def _index(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._cache.k.device)


def _reserve(cache: PagedCache, rows: Sequence[AttentionRow]) -> None:
    copies: list[tuple[int, int]] = []
    try:
        for row in rows:
            if row.keeps:
                copies += row.table.reserve(row.tokens)
    finally:  # a table that has changed pages needs their content, whatever became of the next one
        cache.copy_pages(copies)
