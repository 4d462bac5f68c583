"""An arena of shared memory: one process writes tensors into slots, others read them there.

A segment is a file in the server's run folder, with all its pages present from the start: a fresh
page costs more than copying what goes into it. Slots are reused. When no segment has room, a
further one is added and stays; ``segments`` counts them, and more than one says that the size
given to the arena is too small.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from walkserve.transport.base import OutOfSharedMemory, TensorGone
from walkserve.transport.slots import SlotMap, aligned

SEGMENT_BYTES = 32 * 1024 * 1024


class Slot(NamedTuple):
    """Where something is: ``size`` bytes from ``offset`` in the file ``segment``."""

    key: int
    segment: str
    offset: int
    size: int


class _Segment:
    def __init__(self, path: Path, size_bytes: int) -> None:
        self.name = path.name
        self.slots = SlotMap(size_bytes)
        self._path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # allocated now: without it a full /dev/shm is a SIGBUS at some later write
            os.posix_fallocate(descriptor, 0, self.slots.size_bytes)
            self._map = mmap.mmap(
                descriptor, self.slots.size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE
            )
        except OSError as error:
            path.unlink()
            raise OutOfSharedMemory(
                f"no room for {self.slots.size_bytes:,} bytes of shared memory: {error.strerror}"
            ) from error
        finally:
            os.close(descriptor)
        self.view = memoryview(self._map)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        with suppress(BufferError):  # a view of a slot is still held: the memory goes with it
            self.view.release()
            self._map.close()


class Arena:
    """The writing end, for one thread: its segments are ``{name}.{n}.arena`` in ``folder``."""

    def __init__(self, folder: Path, name: str, size_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._name = name
        self._size_bytes = size_bytes
        self._slots: dict[int, tuple[_Segment, int]] = {}
        self._last_key = 0
        self._segments: list[_Segment] = []
        self._add_segment(size_bytes)

    def _add_segment(self, size_bytes: int) -> _Segment:
        path = self._folder / f"{self._name}.{len(self._segments)}.arena"
        segment = _Segment(path, size_bytes)
        self._segments.append(segment)
        return segment

    @property
    def held(self) -> int:
        """How many slots are taken."""
        return len(self._slots)

    @property
    def segments(self) -> int:
        return len(self._segments)

    def reserve(self, size: int) -> tuple[Slot, memoryview]:
        """Take a slot of ``size`` bytes; the view is what to write into, and to let go of then.

        Raises:
            OutOfSharedMemory: If a further segment is needed and the machine has no room for it.
        """
        for segment in self._segments:
            offset = segment.slots.take(size)
            if offset is not None:
                break
        else:
            segment = self._add_segment(max(self._size_bytes, aligned(size)))
            offset = segment.slots.take(size)
            assert offset is not None  # it was made large enough
        self._last_key += 1
        self._slots[self._last_key] = (segment, offset)
        slot = Slot(self._last_key, segment.name, offset, size)
        return slot, segment.view[offset : offset + size]

    def put(self, data: bytes | memoryview) -> Slot:
        """Copy ``data`` into a slot of its own."""
        source = memoryview(data).cast("B")
        slot, view = self.reserve(source.nbytes)
        with view:
            view[:] = source
        return slot

    def free(self, key: int) -> None:
        """Give the slot back. Keys are never used twice, so one that is not held is passed over."""
        if key in self._slots:
            segment, offset = self._slots.pop(key)
            segment.slots.give(offset)

    def check(self) -> None:
        """Raise SlotsCorrupt if the books do not agree."""
        for segment in self._segments:
            segment.slots.check()

    def close(self) -> None:
        """Remove the segments; who has mapped one keeps it until it lets go."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
        self._slots.clear()


class ArenaReader:
    """The reading end, of all arenas in ``folder``. Maps a segment when it is first read from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: dict[str, mmap.mmap] = {}

    def view(self, segment: str, offset: int, size: int) -> memoryview:
        """A read-only view of a slot: copy what you need and let go before its owner may free it.

        Raises:
            TensorGone: If the segment is gone, or ends before the slot does.
        """
        mapped = self._maps.get(segment) or self._map(segment)
        if offset < 0 or size < 0 or offset + size > len(mapped):
            raise TensorGone(f"{size} bytes at {offset} lie outside of segment {segment!r}")
        return memoryview(mapped)[offset : offset + size]

    def _map(self, segment: str) -> mmap.mmap:
        if "/" in segment or not segment.endswith(".arena"):
            raise TensorGone(f"{segment!r} is no segment of an arena")
        try:
            descriptor = os.open(self._folder / segment, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise TensorGone(f"segment {segment!r} is gone, and its owner with it") from None
        try:
            mapped = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        self._maps[segment] = mapped
        return mapped

    def forget(self, name: str) -> None:
        """Unmap the segments of the arena ``name``, whose owner is gone: mapped, they stay in memory."""
        for segment in [s for s in self._maps if s.rsplit(".", 2)[0] == name]:
            with suppress(BufferError):  # a view of it is still held: the memory goes with it
                self._maps.pop(segment).close()

    def close(self) -> None:
        while self._maps:
            with suppress(BufferError):
                self._maps.popitem()[1].close()
