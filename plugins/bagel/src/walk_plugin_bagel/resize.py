"""Sizes of images: what they are made before the model sees them, and which it can paint. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from walk_plugin_bagel.settings import Limits
from walkserve_sdk import BadRequest

_MOST_PIXELS = 14 * 14 * 9 * 1024

Size = tuple[int, int]
"""Width and height, in pixels."""


def resized(size: Size, limits: Limits) -> Size:
    """What the authors make of an image: as near to its own size and shape as the limits let it be.

    A long one may end below ``min_size`` on its short side: 3000 x 400 becomes 1024 x 128. One of too many
    pixels is scaled by their ratio, not by its root, as the authors do.
    """
    scale = min(limits.max_size / max(size), 1.0)
    scale = max(scale, limits.min_size / min(size))
    size = _fit(size, scale, limits.stride)
    if size[0] * size[1] > _MOST_PIXELS:
        size = _fit(size, _MOST_PIXELS / (size[0] * size[1]), limits.stride)
    if max(size) > limits.max_size:
        size = _fit(size, limits.max_size / max(size), limits.stride)
    return size


def _fit(size: Size, scale: float, stride: int) -> Size:
    # rounded twice, and halves to even, as the authors do
    width, height = (max(stride, round(round(side * scale) / stride) * stride) for side in size)
    return width, height


@dataclass(frozen=True)
class Canvas:
    """The sizes a checkpoint can paint: sides that are multiples of ``stride``, up to ``largest``."""

    stride: int
    largest: int

    def read(self, asked: str) -> Size:
        """``"1024x768"``, width first.

        Raises:
            BadRequest: It is no size, or none that can be painted; the message names the nearest that can.
        """
        width, x, height = asked.partition("x")
        if not (x and _is_number(width) and _is_number(height)):
            raise BadRequest(f"size: {asked!r} is none; write WIDTHxHEIGHT, such as '1024x768'", param="size")
        size = int(width), int(height)
        near = self.near(size)
        if near != [size]:
            raise BadRequest(
                f"size: {asked} cannot be painted; its sides have to be multiples of {self.stride}, of at "
                f"most {self.largest}; nearest to it: {', '.join(f'{w}x{h}' for w, h in near)}",
                param="size",
            )
        return size

    def near(self, size: Size) -> list[Size]:
        """The sizes around one, the nearest first: itself alone, if it is one of them."""
        sides = [
            {self._clamped(side // self.stride), self._clamped(-(-side // self.stride))} for side in size
        ]
        return sorted(
            product(*sides), key=lambda near: (abs(near[0] - size[0]) + abs(near[1] - size[1]), near)
        )

    def _clamped(self, strides: int) -> int:
        return min(max(strides, 1) * self.stride, self.largest)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
