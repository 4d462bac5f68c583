"""Where a token of an image stands: by tables that are added to it, as its rotary position is its image's."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PositionTable(nn.Module):
    """Sines and cosines by place, as stored: (side * side, width)."""

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        self.side = side
        self.pos_embed = nn.Parameter(torch.empty(side * side, width))

    def of_grid(self, rows: int, columns: int) -> Tensor:
        """(rows * columns, width)."""
        return self.pos_embed[places(rows, columns, self.side, self.pos_embed.device)]


def places(rows: int, columns: int, side: int, device: torch.device) -> Tensor:
    """Where the cells of a grid stand in a table of ``side`` columns.

        side 4, a grid of 2 x 3        0 1 2 .
                                       4 5 6 .

    Raises:
        ValueError: The grid is larger than the table; its cells would stand in each other's place.
    """
    if rows > side or columns > side:
        raise ValueError(f"there are positions for {side} x {side} tokens, not for {rows} x {columns}")
    row, column = (torch.arange(length, device=device) for length in (rows, columns))
    return (row[:, None] * side + column).flatten()
