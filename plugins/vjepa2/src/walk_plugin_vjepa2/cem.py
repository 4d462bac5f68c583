"""The cross-entropy method over actions: draw, keep the best, draw around them. Its arithmetic.

As the authors have it (``notebooks/utils/mpc_utils.py`` of facebookresearch/vjepa2), draw for draw. A belief
is a tensor (2, horizon, 4), how the next actions are drawn::

                     dx      dy      dz      gripper
    belief[0]   mean
    belief[1]   std                                      one row for each step of the horizon

and an action has seven numbers: dx, dy, dz, the change of three Euler angles, which is always zero here, and
the change of the gripper.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

AXES = ("x", "y", "z", "gripper")
"""What a plan moves, in the order of a belief's last dimension."""

COLUMNS = (0, 1, 2, 6)
"""Where these stand in an action."""

MOST_GRIPPER = 0.75
"""A step never moves the gripper further."""

LEAST_GRIPPER = 0.25
"""In the end a smaller movement of the gripper is none."""


class SearchOptions(Protocol):
    """The options of a request that a search reads; ``VJepa2AC.Options`` says what each is."""

    @property
    def horizon(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def topk(self) -> int: ...
    @property
    def maxnorm(self) -> float: ...
    @property
    def momentum_mean(self) -> float: ...
    @property
    def momentum_std(self) -> float: ...
    @property
    def momentum_mean_gripper(self) -> float: ...
    @property
    def momentum_std_gripper(self) -> float: ...
    @property
    def close_gripper(self) -> int | None: ...


def first_belief(options: SearchOptions) -> Tensor:
    """Before anything was tried: around no movement, as far as a step may go, the gripper further."""
    std = torch.tensor([options.maxnorm, options.maxnorm, options.maxnorm, 1.0])
    return torch.stack([torch.zeros_like(std), std])[:, None].repeat(1, options.horizon, 1)


def draw(belief: Tensor, options: SearchOptions, generator: torch.Generator) -> Tensor:
    """Candidates, (samples, horizon, 7), of a belief; ``generator`` is on the CPU, as all of it is."""
    actions = belief.new_zeros(options.samples, options.horizon, 7)
    for step, (mean, std) in enumerate(belief.unbind(1)):
        noise = torch.randn(options.samples, len(AXES), generator=generator)
        moved = noise * std + mean
        actions[:, step, :3] = moved[:, :3].clamp(-options.maxnorm, options.maxnorm)
        actions[:, step, 6] = moved[:, 3].clamp(-MOST_GRIPPER, MOST_GRIPPER)
    if options.close_gripper is not None:
        actions[:, options.close_gripper :, 6] = 1.0
    return actions


def refined(belief: Tensor, actions: Tensor, energies: Tensor, options: SearchOptions) -> Tensor:
    """The belief after the candidates (samples, horizon, 7) turned out to have these energies (samples,)."""
    best = energies.topk(options.topk, largest=False).indices
    kept = actions[best][..., COLUMNS]
    found = torch.stack([kept.mean(0), kept.std(0)])
    momentum = belief.new_tensor(
        [
            [options.momentum_mean] * 3 + [options.momentum_mean_gripper],
            [options.momentum_std] * 3 + [options.momentum_std_gripper],
        ]
    )[:, None]
    return found * (1 - momentum) + belief * momentum


def concluded(belief: Tensor) -> Tensor:
    """The plan, (horizon, 7): the means, and of the gripper only movements that are worth one."""
    mean = belief[0]
    plan = mean.new_zeros(len(mean), 7)
    plan[:, :3] = mean[:, :3]
    plan[:, 6] = torch.where(mean[:, 3].abs() < LEAST_GRIPPER, 0.0, mean[:, 3])
    return plan
