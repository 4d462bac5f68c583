"""From microseconds to places on a time line, and the other way to words."""

from __future__ import annotations

from collections.abc import Iterator

TICKS = 9
"""About how many a time line has."""


class Scale:
    """A stretch of time laid over a stretch of pixels.

    Args:
        until_us: What is at its right end; it begins at 0.
        left: Pixels.
    """

    def __init__(self, until_us: int, left: float, width: float) -> None:
        self.until_us = max(until_us, 1)
        self.left = left
        self.width = width

    @property
    def right(self) -> float:
        return self.left + self.width

    def x(self, at_us: float) -> float:
        """Where a moment is; what lies outside is at the nearer end."""
        return self.left + self.width * min(max(at_us / self.until_us, 0.0), 1.0)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """(x, what to write there), at round moments."""
        step = _round_step(self.until_us / TICKS)
        in_s = self.until_us > 2_000_000
        for n in range(int(self.until_us // step) + 1):
            value = n * step / (1e6 if in_s else 1e3)
            yield self.x(n * step), f"{value:g} {'s' if in_s else 'ms'}"


def _round_step(least_us: float) -> int:
    """1, 2 or 5 times a power of ten, the next above."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least_us:
                return factor * power
        power *= 10


def in_words(us: float) -> str:
    """A time in three digits: 840 µs, 73.6 ms, 1.24 s."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= size:
            value = us / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{us:.0f} µs"


def bytes_in_words(size: int) -> str:
    """A size: 672 B, 96.0 KiB, 1.20 MiB."""
    for power, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= power:
            value = size / power
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{size} B"
