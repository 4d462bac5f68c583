"""Keys and values of one component's branches, in pages on one device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from walkserve.cache.pages import (
    PagePool,
    PageTable,
    come_back,
    committed_pages,
    go_away,
)
from walkserve_sdk import KVShape

__all__ = ["KVShape", "PagedCache"]


class _HostPages:
    """Pages moved out together: K and V, each (layers, pages, page_size * kv_heads * head_dim)."""

    def __init__(self, k: Tensor, v: Tensor) -> None:
        self.k = k
        self.v = v


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

    def save(self, tables: Sequence[PageTable]) -> int:
        """Move branches to host memory, a page that several share once, and free their pages.

        On a device this is put into its ordered queue, and nothing waits: who writes to these pages next
        comes after it there, and so does ``load``.

        Returns:
            How many pages were moved.
        """
        pages = committed_pages(tables)
        at = self._at(pages)
        go_away(tables, _HostPages(*(_to_host(self._by_page(one).index_select(1, at)) for one in self._both)))
        return len(pages)

    def load(self, tables: Sequence[PageTable]) -> int:
        """Bring back branches, all at once that share pages.

        Returns:
            How many pages were moved.

        Raises:
            OutOfPages: If they have no room; then nothing has changed.
        """
        moved: dict[_HostPages, list[tuple[int, int]]] = {}
        for stored, page in come_back(tables):
            assert isinstance(stored.store, _HostPages)
            moved.setdefault(stored.store, []).append((stored.index, page))
        for store, pairs in moved.items():
            sources, targets = zip(*pairs, strict=True)
            at = self._at(targets)
            for storage, host in zip(self._both, (store.k, store.v), strict=True):
                back = host.to(storage.device, non_blocking=True)
                if sources != tuple(range(host.shape[1])):  # only a part of what was moved out together
                    back = back.index_select(1, self._at(sources))
                self._by_page(storage).index_copy_(1, at, back)
        return sum(map(len, moved.values()))

    @property
    def _both(self) -> tuple[Tensor, Tensor]:
        return self.k, self.v

    def _by_page(self, storage: Tensor) -> Tensor:
        """(layers, pages, page_size * kv_heads * head_dim), the same memory."""
        return storage.view(self.shape.layers, self.pool.pages, -1)

    def _at(self, pages: Sequence[int]) -> Tensor:
        return torch.tensor(pages, dtype=torch.int64, device=self.k.device)

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


def _to_host(tensor: Tensor) -> Tensor:
    """In host memory; from a device by its queue, into pinned memory that nobody else is given meanwhile."""
    if tensor.device.type == "cpu":
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
