"""The masked predictor: from the latents of some places of a video, those of others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from walk_plugin_vjepa2.checkpoint import read_video_model
from walk_plugin_vjepa2.loading import load_masked_predictor
from walk_plugin_vjepa2.rows import alike
from walkserve_sdk import Batch, Checkpoint, Gives

_MOST_TOKENS = 16_384
"""Seen and predicted ones, of all rows of one pass, or one row's if they are more."""


class MaskedPredictor:
    """transformers' ``VJEPA2Predictor``, with the mask token it takes when nobody says which (the second)."""

    def __init__(self, predictor: Any, *, device: torch.device, dtype: torch.dtype) -> None:
        self._predictor = predictor
        self._device = device
        self._dtype = dtype

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> MaskedPredictor:
        """Read the predictor of either layout, strictly."""
        predictor = load_masked_predictor(read_video_model(checkpoint), device=device, dtype=dtype)
        return cls(predictor, device=device, dtype=dtype)

    def predict(self, batch: Batch) -> Gives:
        """``predicted`` (places, width) of the places in ``target``, from ``latent`` at those in ``context``.

        Both are int64 (places,), or None for every place there is, as the authors' default masks are.
        """
        latents = [latent.to(self._device, self._dtype) for latent in batch.values("latent")]
        seen, wanted = (
            [self._places(each, latent) for each, latent in zip(batch.values(name), latents, strict=True)]
            for name in ("context", "target")
        )
        predicted: list[Any] = [None] * batch.size
        shapes = list(zip(map(len, latents), map(len, seen), map(len, wanted), strict=True))
        most = max(1, _MOST_TOKENS // max(context + target for _, context, target in shapes))
        for rows in alike(shapes, most=most):
            latent, context, target = (
                torch.stack([each[row] for row in rows]) for each in (latents, seen, wanted)
            )
            made = self._predictor(latent, [context], [target]).last_hidden_state.float()
            for row, one in zip(rows, made, strict=True):
                predicted[row] = one
        return {"predicted": predicted}

    def _places(self, places: Any, latent: Tensor) -> Tensor:
        if places is None:
            return torch.arange(len(latent), device=self._device)
        return torch.as_tensor(places, dtype=torch.int64, device=self._device)
