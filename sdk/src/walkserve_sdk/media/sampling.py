"""Which frames of a video are taken.

Each way is a small class, so that a family can offer those its authors used. All of them look at the frames
whose times lie in ``[start_s, end_s)``, counted in seconds from the first frame; numbers of frames below are
numbers among those. Here ``N`` is how many there are.

    Spread(4)            N = 10:   0  .  2  .  .  5  .  7  .  .      i * N // 4
    Ends(4)              N = 10:   0  .  .  3  .  .  6  .  .  9      linspace(0, N - 1, 4), rounded down
    Step(3, frames=3)    N = 10:   0  .  .  3  .  .  6  .  .  .
    Rate(fps)            the frame on display at start_s, and at every 1 / fps seconds after it

The first three go by number, as loaders do; where frames do not come at a constant rate, ``Rate`` goes by the
clock: it repeats a frame that stays, and leaves out what comes faster. The first two ask for a number of
frames: a video that has fewer gives all it has, each once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from walkserve_sdk.errors import BadRequest

Indices = NDArray[np.int64]
MOST_FPS = 1_000
"""Beyond it there is nothing but the same frame again."""


@dataclass(frozen=True)
class Sampling:
    """All frames; what the others have in common.

    Args:
        start_s: Nothing before it is taken.
        end_s: Nothing from it on is; None for the video's own end.

    Raises:
        BadRequest: A number is out of its range; ``param`` is the field.
    """

    start_s: float = field(default=0.0, kw_only=True)
    end_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.start_s < float("inf"):
            raise BadRequest(f"start_s: it is 0 or more, got {self.start_s}", param="start_s")
        if self.end_s is not None and not self.start_s < self.end_s:
            raise BadRequest(
                f"end_s: it is more than start_s, {self.start_s:g}, got {self.end_s}", param="end_s"
            )
        for name in ("frames", "step", "fps"):
            value = getattr(self, name, None)
            if value is not None and not 0 < value < float("inf"):
                raise BadRequest(f"{name}: it is more than 0, got {value}", param=name)

    def choose(self, times_s: NDArray[np.float64], end_s: float, slack_s: float = 0.0) -> Indices:
        """Numbers of the frames that are taken, in order; one may come several times.

        Args:
            times_s: ``(frames,)``, ascending, the first is 0.
            end_s: When the last frame is over.
            slack_s: By how much a time may be rounded, in the file.
        """
        end_s = end_s if self.end_s is None else min(self.end_s, end_s)
        first, last = np.searchsorted(times_s, (self.start_s - slack_s, end_s - slack_s))
        return int(first) + self._among(int(last - first))

    def _among(self, count: int) -> Indices:
        return np.arange(count)


@dataclass(frozen=True)
class Spread(Sampling):
    """``frames`` of them, spread evenly, the first included: what transformers' video processors sample."""

    frames: int

    def _among(self, count: int) -> Indices:
        frames = min(self.frames, count)
        return np.arange(frames) * count // max(1, frames)


@dataclass(frozen=True)
class Ends(Sampling):
    """``frames`` of them, spread evenly, first and last included: as transformers' docs load a video."""

    frames: int

    def _among(self, count: int) -> Indices:
        return np.linspace(0, count - 1, min(self.frames, count)).astype(np.int64)


@dataclass(frozen=True)
class Step(Sampling):
    """Each ``step``-th from the first on: ``Step(2, frames=64)`` is what V-JEPA 2's authors show.

    Args:
        frames: How many at most; None for as many as there are.
    """

    step: int = 1
    frames: int | None = None

    def _among(self, count: int) -> Indices:
        return np.arange(0, count, self.step)[: self.frames]


@dataclass(frozen=True)
class Rate(Sampling):
    """``fps`` of them each second, whatever the video's own rate.

    Args:
        frames: How many at most; None for as many as there are.
    """

    fps: float
    frames: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fps > MOST_FPS:
            raise BadRequest(f"fps: it is at most {MOST_FPS:,}, got {self.fps}", param="fps")

    def choose(self, times_s: NDArray[np.float64], end_s: float, slack_s: float = 0.0) -> Indices:
        """As ``Sampling.choose``: the frame that is on display when its moment comes."""
        end_s = end_s if self.end_s is None else min(self.end_s, end_s)
        count = max(0, int(np.ceil((end_s - self.start_s - slack_s) * self.fps)))
        moments = (
            self.start_s + np.arange(count if self.frames is None else min(count, self.frames)) / self.fps
        )
        return np.searchsorted(times_s, moments + slack_s, side="right") - 1
