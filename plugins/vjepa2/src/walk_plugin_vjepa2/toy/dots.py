"""The world that the toy learns: a soft disc on a fixed background, many pictures at once.

A state is x, y, z, three angles that are zero, and c, how far the gripper is closed. The disc stands at x and
y, is larger the higher z is, and turns from red to green as c goes from 0 to 1. An action is added to a
state, which stays in its range. Tests judge the checkpoint by a simulator of their own.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SIZE = 64
LOW = torch.tensor([-0.3, -0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
HIGH = torch.tensor([0.3, 0.3, 0.3, 0.0, 0.0, 0.0, 1.0])
MOST = torch.tensor([0.075, 0.075, 0.075, 0.0, 0.0, 0.0, 0.75])
"""The furthest that one action goes."""


def states(count: int, random: torch.Generator) -> Tensor:
    """(count, 7), anywhere."""
    return LOW + (HIGH - LOW) * torch.rand(count, 7, generator=random)


def episodes(count: int, frames: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """States (count, frames, 7) and the actions between them (count, frames - 1, 7)."""
    seen = [states(count, random)]
    actions = MOST * (2 * torch.rand(count, frames - 1, 7, generator=random) - 1)
    for action in actions.unbind(1):
        seen.append(after(seen[-1], action))
    return torch.stack(seen, 1), actions


def after(state: Tensor, action: Tensor) -> Tensor:
    """(..., 7): states after actions."""
    return torch.minimum(torch.maximum(state + action, LOW), HIGH)


def pictures(state: Tensor) -> Tensor:
    """(count, 7) to (count, 3, 64, 64) of 0 to 1."""
    x, y, z, closed = (state[:, column, None, None] for column in (0, 1, 2, 6))
    row = torch.arange(SIZE, dtype=torch.float32)[:, None]
    column = torch.arange(SIZE, dtype=torch.float32)
    away = torch.hypot(column - (32 + 90 * x), row - (32 - 90 * y))
    cover = torch.sigmoid((4.5 + 12 * z - away) / 1.2)[:, None]
    disc = torch.stack([1 - 0.6 * closed, 0.25 + 0.6 * closed, torch.full_like(closed, 0.2)], 1)
    return cover * disc + (1 - cover) * _background(row, column)


def camera(state: NDArray[np.float32]) -> NDArray[np.uint8]:
    """What a camera sees of states (count, 7): (count, 64, 64, 3)."""
    seen = 255 * pictures(torch.from_numpy(state))
    return seen.round().byte().permute(0, 2, 3, 1).contiguous().numpy()


def _background(row: Tensor, column: Tensor) -> Tensor:
    """(3, 64, 64): two slopes of colour, and two lighter bars."""
    across, down = column.expand(SIZE, SIZE), row.expand(SIZE, SIZE)
    plain = torch.stack(
        [0.15 + 0.1 * across / SIZE, 0.15 + 0.1 * down / SIZE, torch.full((SIZE, SIZE), 0.25)]
    )
    bars = ((across >= 8) & (across <= 11)) | ((down >= 40) & (down <= 43))
    return plain + 0.1 * bars
