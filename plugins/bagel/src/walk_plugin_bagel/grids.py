"""Images as grids of tokens and back. What is a square of pixels becomes one token's numbers, row by row.

image or latent (channels, height, width)      grid (height / size, width / size, size * size * channels)

    c 0 0 1 1        one square, size 2:  (0,0)  (0,1)  (1,0)  (1,1)     each with all its channels,
      2 2 3 3                              c...   c...   c...   c...     which so lie side by side
"""

from __future__ import annotations

from torch import Tensor, uint8


def numbers_of(pixels: Tensor) -> Tensor:
    """uint8 (height, width, 3) to float32 (3, height, width) of [-1, 1]."""
    return ((pixels.float() / 255 - 0.5) / 0.5).permute(2, 0, 1)


def pixels_of(numbers: Tensor) -> Tensor:
    """And back; cut off, not rounded, as the authors do."""
    return ((numbers * 0.5 + 0.5).clamp(0, 1) * 255).to(uint8).permute(1, 2, 0).contiguous()


def to_grid(image: Tensor, size: int) -> Tensor:
    """(channels, height, width) to (rows, columns, size * size * channels)."""
    channels, height, width = image.shape
    squares = image.reshape(channels, height // size, size, width // size, size)
    return squares.permute(1, 3, 2, 4, 0).reshape(height // size, width // size, -1)


def from_grid(grid: Tensor, size: int) -> Tensor:
    """(rows, columns, size * size * channels) to (channels, height, width)."""
    rows, columns, _ = grid.shape
    squares = grid.reshape(rows, columns, size, size, -1)
    return squares.permute(4, 0, 2, 1, 3).reshape(-1, rows * size, columns * size)
