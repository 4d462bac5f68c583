"""A process's pulse: when its loop last came round, in eight bytes that its supervisor reads.

A file in the run folder, mapped by who writes and by who reads. Neither can block the other, and it tells of
a process that hangs, or is stopped, as well as of one that works.
"""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from time import monotonic_ns
from types import TracebackType
from typing import Self

SIZE_BYTES = 8


def pulse_path(folder: Path, address: str) -> Path:
    """Where the process at ``address`` has its pulse."""
    return folder / f"{address}.pulse"


class Pulse:
    """The writing end. A context manager; leaving it removes the file.

    Until the first ``beat`` it reads as 0: whoever still loads has none, and is not watched.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self._path = pulse_path(folder, address)
        with self._path.open("x+b") as file:
            file.truncate(SIZE_BYTES)
            self._map = mmap.mmap(file.fileno(), SIZE_BYTES)
        self._cell = memoryview(self._map).cast("Q")

    def beat(self) -> None:
        """The loop has come round. 0.1 µs, so that it can be said every turn."""
        self._cell[0] = monotonic_ns()

    def close(self) -> None:
        self._cell.release()
        self._map.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PulseReader:
    """The reading end of one process's pulse, which may not be there yet."""

    def __init__(self, folder: Path, address: str) -> None:
        self._path = pulse_path(folder, address)
        self._map: mmap.mmap | None = None

    def read(self) -> int:
        """CLOCK_MONOTONIC of its last beat, in ns; 0 while there has been none."""
        if self._map is None:
            try:
                with self._path.open("rb") as file:
                    self._map = mmap.mmap(file.fileno(), SIZE_BYTES, prot=mmap.PROT_READ)
            except (FileNotFoundError, ValueError):  # ValueError: it is being made, and still empty
                return 0
        return int.from_bytes(self._map[:SIZE_BYTES], sys.byteorder)

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
