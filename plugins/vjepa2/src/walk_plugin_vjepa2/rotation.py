"""Where a token is, as a rotation of queries and keys: along time, height and width.

A head's dimensions are divided in four. Of 64:

    0 … 19   20 … 39   40 … 59   60 … 63
    time     row       column    as they are

A third has 10 angles, ``position * 10000 ** (-i / 10)``, and 10 pairs of neighbours to rotate. The table of
sines is laid out twice in a row, f0 … f9 f0 … f9, though the pairs are neighbours, so that a pair's two
halves turn by different angles. The authors know it for a mistake; the weights were trained with it.
"""

from __future__ import annotations

import torch
from torch import Tensor


class FrameRotation:
    """Rotations of the tokens of frames, of which the first ``leading`` stand for no place in the picture.

    These turn along time only. A token's place in its sequence tells all there is to know, so the tables are
    by that.
    """

    def __init__(
        self, *, steps: int, grid: int, leading: int, head_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        third = 2 * ((head_dim // 3) // 2)
        angles = torch.zeros(steps, leading + grid * grid, head_dim)
        time, place = torch.arange(steps), torch.arange(grid * grid)
        angles[:, :, :third] = _angles(time, third)[:, None]
        angles[:, leading:, third : 2 * third] = _angles(place // grid, third)
        angles[:, leading:, 2 * third : 3 * third] = _angles(place % grid, third)
        angles = angles.flatten(0, 1).to(device)
        # the sign of a pair's rotation is in the table: (a, b) turns into (a cos - b sin, b cos + a sin)
        signs = torch.tensor([-1.0, 1.0], device=device).repeat(head_dim // 2)
        self._cos = angles.cos().to(dtype)
        self._sin = (angles.sin() * signs).to(dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """For tokens at these places of their sequences, (tokens,): two of (tokens, 1, 1, head_dim)."""
        return self._cos[positions][:, None, None], self._sin[positions][:, None, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn (tokens, 2, heads, head_dim), queries and keys, by what ``FrameRotation.at`` gave."""
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return x * cos + swapped * sin


def _angles(positions: Tensor, dims: int) -> Tensor:
    """(positions,) to (positions, dims)."""
    frequencies = torch.arange(dims // 2, dtype=torch.float32) / (dims / 2)
    return (positions[:, None] * (1 / 10000**frequencies)).repeat(1, 2)
