"""Which bytes of a segment are taken, in whole numbers only.

First fit: the lowest hole that is large enough, so that the warm end of a segment is used again
and again. Slots start and end at multiples of 64; holes that touch become one at once.

    |aaaa|bb  |    |cccc|        |    give(64):    |aaaa|         |cccc|        |
     0    64   128  192  256                        0    64        192  256
"""

from __future__ import annotations

from bisect import bisect_left

ALIGNMENT = 64  # a cache line, and what vector loads like


class SlotsCorrupt(AssertionError):
    """Holes and slots contradict each other: a fault of the runtime."""


def aligned(size: int) -> int:
    """What ``size`` bytes take up: whole multiples of the alignment, at least one."""
    return max(size + ALIGNMENT - 1, ALIGNMENT) // ALIGNMENT * ALIGNMENT


class SlotMap:
    """The slots and holes of ``size_bytes`` bytes."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = aligned(size_bytes)
        self._taken: dict[int, int] = {}  # offset -> size, both of slots
        self._holes: list[int] = [0]  # offsets, ascending
        self._hole_size: dict[int, int] = {0: self.size_bytes}

    @property
    def held(self) -> int:
        return len(self._taken)

    def take(self, size: int) -> int | None:
        """The offset of a new slot of ``size`` bytes, or None if no hole is large enough."""
        size = aligned(size)
        for index, offset in enumerate(self._holes):
            room = self._hole_size[offset]
            if room < size:
                continue
            del self._hole_size[offset]
            if room == size:
                del self._holes[index]
            else:
                self._holes[index] = offset + size
                self._hole_size[offset + size] = room - size
            self._taken[offset] = size
            return offset
        return None

    def give(self, offset: int) -> None:
        """Free the slot at ``offset``."""
        size = self._taken.pop(offset)
        index = bisect_left(self._holes, offset)
        if index < len(self._holes) and self._holes[index] == offset + size:
            size += self._hole_size.pop(self._holes.pop(index))
        if index > 0:
            before = self._holes[index - 1]
            if before + self._hole_size[before] == offset:
                self._hole_size[before] += size
                return
        self._holes.insert(index, offset)
        self._hole_size[offset] = size

    def check(self) -> None:
        """Raise SlotsCorrupt unless slots and holes cover every byte once and no two holes touch."""
        if set(self._holes) != set(self._hole_size):
            raise SlotsCorrupt(f"holes at {self._holes}, sizes for {sorted(self._hole_size)}")
        pieces = sorted(
            [(offset, size, "slot") for offset, size in self._taken.items()]
            + [(offset, size, "hole") for offset, size in self._hole_size.items()]
        )
        end, last = 0, "slot"
        for offset, size, kind in pieces:
            if offset != end:
                raise SlotsCorrupt(f"a {kind} starts at {offset}, and what is before it ends at {end}")
            if kind == last == "hole":
                raise SlotsCorrupt(f"two holes touch at {offset}")
            end, last = offset + size, kind
        if end != self.size_bytes:
            raise SlotsCorrupt(f"slots and holes end at {end} of {self.size_bytes}")
