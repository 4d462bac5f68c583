"""Where the noise that SNAC mixes into its sound comes from.

A codec trained with noise has one noise block per upsampling, and each multiplies its features by a
normal draw per position. Which numbers a position gets must not depend on how the sound was cut into
chunks, so noise is asked for by layer and absolute position, never drawn in order.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

CELL = 256
"""Positions drawn from one generator. A frame of the 24 kHz model has 32, 256, 1,024 and 2,048 positions
in its four noise blocks; shorter cells would seed more generators, longer ones would throw more away."""


class NoiseSource(Protocol):
    """Standard normal numbers with a fixed place each."""

    def normal(self, layer: int, start: int, stop: int) -> Tensor:
        """Give the numbers of the positions ``start`` to ``stop`` of noise block ``layer``.

        Positions count from the start of the utterance at that block's own rate. The same position always
        gets the same number.

        Returns:
            ``(stop - start,)``, float32.
        """
        ...


class KeyedNoise:
    """Noise from one generator per cell of 256 positions, each seeded by what ``key`` says.

    Nothing is kept between calls, so a request can be continued from any state, or in another process.

    Args:
        key: From (layer, cell) to a seed, ``0 <= seed < 2**63``. Cell ``n`` holds the positions from
            ``256 * n``.
    """

    def __init__(self, key: Callable[[int, int], int]) -> None:
        self._key = key

    def normal(self, layer: int, start: int, stop: int) -> Tensor:
        if stop <= start:
            return torch.empty(0)
        first = start // CELL
        cells = [self._draw(layer, cell) for cell in range(first, -(-stop // CELL))]
        return torch.cat(cells)[start - first * CELL : stop - first * CELL]

    def _draw(self, layer: int, cell: int) -> Tensor:
        # Always on the CPU: a GPU's generator gives other numbers.
        generator = torch.Generator().manual_seed(self._key(layer, cell))
        return torch.randn(CELL, generator=generator)


class ShiftedNoise:
    """A noise source read from a later position on, for decoding a piece as if it stood alone.

    Args:
        source: Where the numbers come from.
        offsets: For each layer, how many positions lie before the piece.
    """

    def __init__(self, source: NoiseSource, offsets: tuple[int, ...]) -> None:
        self._source = source
        self._offsets = offsets

    def normal(self, layer: int, start: int, stop: int) -> Tensor:
        offset = self._offsets[layer]
        return self._source.normal(layer, offset + start, offset + stop)
