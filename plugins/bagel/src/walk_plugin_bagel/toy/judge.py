"""A judge that knows digits and colours but no model: it says what is drawn.

Digits it knows from people's own: a picture is made as small as theirs, and a kernel machine (regularised
least squares with a Gaussian kernel, in closed form) that has learned those says which it is most like.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from walk_plugin_bagel.toy.drawings import COLOURS, digits, strokes

_WIDTH = 0.2  # squared, of the kernel; a digit has length 1
_RIDGE = 0.01


class Judge:
    """Learns from some of the digits.

    Args:
        count: From the first on.
    """

    def __init__(self, count: int) -> None:
        known = digits()
        self._known = _features(np.stack([strokes(image) for image in known.images[:count]]))
        wanted = np.where(known.labels[:count, None] == np.arange(10), 1.0, -1.0)
        likeness = _likeness(self._known, self._known) + _RIDGE * np.eye(count)
        self._weights = np.linalg.solve(likeness, wanted)

    def digit(self, picture: NDArray[np.uint8]) -> int:
        """Which digit a picture, uint8 (32, 32, 3), shows."""
        seen = _features(picture.max(-1)[None])
        return int((_likeness(seen, self._known) @ self._weights)[0].argmax())

    def colour(self, picture: NDArray[np.uint8]) -> str:
        """Which colour it is drawn in: the one nearest to the mean of what is not dark."""
        ink = picture[picture.max(-1) > 127] / 255
        if not len(ink):
            return "none"
        mean = ink.mean(0)
        return min(COLOURS, key=lambda name: float(np.square(mean - COLOURS[name]).sum()))


def _features(strokes: NDArray[np.uint8]) -> NDArray[Any]:
    """uint8 (pictures, 32, 32) to (pictures, 64): the means of squares of 4 x 4, of length 1."""
    small = strokes.reshape(len(strokes), 8, 4, 8, 4).mean((2, 4)).reshape(len(strokes), 64)
    return small / np.maximum(np.linalg.norm(small, axis=1, keepdims=True), 1e-6)


def _likeness(these: NDArray[Any], those: NDArray[Any]) -> NDArray[Any]:
    return np.exp((these @ those.T - 1) / _WIDTH)
