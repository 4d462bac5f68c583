"""Keys and values of one component's branches, in pages on one device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from walkserve.cache.pages import PagePool, PageTable
from walkserve_sdk import KVShape

__all__ = ["KVShape", "PagedCache"]


class PagedCache:
    """Storage for ``pages`` pages, with the pool that counts them.

    ``k`` and ``v`` are (layers, pages * page_size, kv_heads, head_dim): a token's
    place is one flat slot, the same in every layer.

    One batch at a time may use the storage; on a device that runs behind, its one
    ordered queue sees to that.
    """

    def __init__(
        self, shape: KVShape, *, pages: int, page_size: int, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        self.shape = shape
        self.pool = PagePool(pages, page_size)
        size = (shape.layers, pages * page_size, shape.kv_heads, shape.head_dim)
        self.k = torch.zeros(size, device=device, dtype=dtype)
        self.v = torch.zeros(size, device=device, dtype=dtype)
        # Two tensors, not one of two halves: each begins on an aligned address whatever its size.
        self._gathered = self.k.new_empty(0, *size[2:]), self.v.new_empty(0, *size[2:])

    def new_table(self) -> PageTable:
        """Begin an empty branch."""
        return PageTable(self.pool)

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Carry out the (source, target) page copies that a reservation asked for."""
        if not copies:
            return
        sources, targets = torch.tensor(copies, device=self.k.device).T
        for storage in (self.k, self.v):
            pages = storage.view(self.shape.layers, self.pool.pages, self.pool.page_size, -1)
            pages[:, targets] = pages[:, sources]

    def slots(self, table: PageTable, stop: int) -> Tensor:
        """Where tokens 0 to ``stop`` of a branch lie, as (stop,) int64 on the cache's device."""
        size = self.pool.page_size
        places = self.pages(table, stop)[:, None] * size + torch.arange(size, device=self.k.device)
        return places.flatten()[:stop]

    def pages(self, table: PageTable, stop: int) -> Tensor:
        """The pages in which tokens 0 to ``stop`` of a branch lie, int64 on the cache's device."""
        pages = table.pages[: -(-stop // self.pool.page_size)]
        return torch.tensor(pages, dtype=torch.int64, device=self.k.device)

    def gather(self, layer: int, at: Tensor, *, each: int = 1, room: int = 0) -> tuple[Tensor, Tensor]:
        """Collect K and V of one layer in the order of ``at``.

        Both lie in memory that the next gather overwrites: fresh tensors of this
        size come from the operating system each time, and touching their pages for
        the first time costs more than the copy itself.

        Args:
            at: (places,) flat slots; or pages, which are copied in half the time.
            each: Tokens of a place: 1 of a slot, ``page_size`` of a page.
            room: Tokens to leave room for after them; what is there has no meaning.

        Returns:
            K and V, each (places * each + room, kv_heads, head_dim).
        """
        stored = at.numel() * each
        tokens = stored + room
        if len(self._gathered[0]) < tokens:
            size = (max(tokens, 2 * len(self._gathered[0])), *self.k.shape[2:])  # branches grow every turn
            self._gathered = self.k.new_empty(size), self.v.new_empty(size)
        k, v = (gathered[:tokens] for gathered in self._gathered)
        place = each * self.k[0, 0].numel()
        for storage, gathered in ((self.k, k), (self.v, v)):
            torch.index_select(storage[layer].view(-1, place), 0, at, out=gathered[:stored].view(-1, place))
        return k, v
