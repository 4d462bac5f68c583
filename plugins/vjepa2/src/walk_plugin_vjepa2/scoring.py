"""The scorer: how far what would be seen is from what is wanted."""

from __future__ import annotations

import torch
from torch import Tensor

from walkserve_sdk import Batch, Checkpoint, Gives

_AT_ONCE = 32  # candidates whose differences are in memory together; at the published size 46 MB in float32


class Scorer:
    """The energy of the authors' planner: mean absolute difference of two frames' latents."""

    dtype = torch.float32  # of energies: small differences decide who is kept

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> Scorer:
        """It has no weights."""
        return cls()

    def energy(self, batch: Batch) -> Gives:
        """Energies (candidates,) of ``latent`` (candidates, tokens, width); of a single one, ()."""
        rows = zip(batch.values("latent"), batch.values("goal"), strict=True)
        return {"energies": [energies(latent, goal) for latent, goal in rows]}


def energies(latent: Tensor, goal: Tensor) -> Tensor:
    """Of latents (..., tokens, width) towards a goal (tokens, width)."""
    goal = goal.float()
    candidates = latent.reshape(-1, *goal.shape)
    found = [(some.float() - goal).abs().mean((1, 2)) for some in candidates.split(_AT_ONCE)]
    return torch.cat(found).reshape(latent.shape[:-2])
