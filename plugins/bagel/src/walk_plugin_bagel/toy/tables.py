"""Tables of positions as the authors begin them, which training leaves as they are: by the formula of MAE."""

from __future__ import annotations

import torch
from torch import Tensor

from walk_plugin_bagel.positions import PositionTable


def fill_table(table: PositionTable) -> None:
    """Sines and cosines of the column in one half of the width, of the row in the other."""
    width = table.pos_embed.shape[1]
    row, column = (
        each.flatten()
        for each in torch.meshgrid(*[torch.arange(table.side, dtype=torch.float64)] * 2, indexing="ij")
    )
    with torch.no_grad():
        table.pos_embed.copy_(torch.cat([_waves(column, width // 2), _waves(row, width // 2)], 1))
    table.pos_embed.requires_grad_(False)


def _waves(places: Tensor, width: int) -> Tensor:
    angles = places[:, None] * 10_000.0 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    return torch.cat([angles.sin(), angles.cos()], 1)
