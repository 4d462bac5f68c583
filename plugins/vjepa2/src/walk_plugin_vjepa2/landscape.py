"""The energy landscape: what one step costs, all over a grid of actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from walk_plugin_vjepa2.cem import AXES, COLUMNS
from walk_plugin_vjepa2.landscape_drawing import draw_landscape
from walkserve_sdk import Batch, Checkpoint, Gives


class Landscape:
    """A grid of actions before the model has run, and a picture of what it found after it."""

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> Landscape:
        """It has no weights."""
        return cls()

    def grid(self, batch: Batch) -> Gives:
        """The candidates (points ** axes, 1, 7) of each row."""
        return {
            "actions": [grid(options.landscape_axes, _ticks(options))[:, None] for options in batch.options]
        }

    def chart(self, batch: Batch) -> Gives:
        """The energies in the grid's shape, the lowest of them, and of two axes a picture.

        ``planned`` is a plan (..., horizon, 7) whose first step the picture marks, or an empty list.
        """
        charts, pictures = [], []
        rows = zip(batch.options, batch.values("energies"), batch.values("planned"), strict=True)
        for options, energies, planned in rows:
            axes, ticks = options.landscape_axes, _ticks(options)
            energies = energies.reshape((len(ticks),) * len(axes)).float().cpu()
            lowest = grid(axes, ticks)[int(energies.argmin())]
            charts.append(
                {
                    "axes": list(axes),
                    "ticks": ticks,
                    "energies": energies,
                    "lowest_energy": float(energies.min()),
                    "lowest_action": lowest,
                }
            )
            pictures.append(_picture(axes, ticks, energies, lowest, planned) if len(axes) == 2 else None)
        return {"landscape": charts, "picture": pictures}


def grid(axes: Sequence[str], ticks: Tensor) -> Tensor:
    """Every action (points, 7) whose ``axes`` stand at ticks while the others do not move.

    The first axis is outermost.
    """
    places = torch.cartesian_prod(*[ticks] * len(axes)).reshape(-1, len(axes))
    actions = places.new_zeros(len(places), 7)
    actions[:, _columns(axes)] = places
    return actions


def _ticks(options: Any) -> Tensor:
    reach = options.landscape_range
    return torch.linspace(-reach, reach, options.landscape_points)


def _columns(axes: Sequence[str]) -> list[int]:
    """Where these axes stand in an action."""
    return [COLUMNS[AXES.index(axis)] for axis in axes]


def _picture(
    axes: Sequence[str], ticks: Tensor, energies: Tensor, lowest: Tensor, planned: Tensor | list[float]
) -> Tensor:
    columns = _columns(axes)
    first = planned.reshape(-1, 7)[0].cpu() if isinstance(planned, Tensor) else None
    drawn = draw_landscape(
        energies.numpy(),
        ticks.tolist(),
        (axes[0], axes[1]),
        lowest=tuple(lowest[columns].tolist()),
        planned=None if first is None else tuple(first[columns].tolist()),
    )
    return torch.from_numpy(drawn)
