"""The components of the family that paints under guidance: a few seeded numbers each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from walkserve_sdk import Batch, Gives, KVShape, causal, token_count

DIM, HEADS, HEAD_DIM, LATENTS = 16, 2, 8, 3


def _numbers(*shape: int, seed: int) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made / shape[-1] ** 0.5


class Reader:
    """Text to tokens."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Reader:
        return cls()

    def encode(self, batch: Batch) -> Gives:
        ids = [[ord(letter) % 64 for letter in text] for text in batch.values("text")]
        return {"ids": ids, "length": [len(one) for one in ids]}


class LM:
    """One layer of attention over the prompt."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.kv_shape = KVShape(layers=1, kv_heads=HEADS, head_dim=HEAD_DIM, context=1024)
        self._words = _numbers(64, DIM, seed=1).to(device, dtype) * DIM**0.5
        self._qkv = _numbers(3 * HEADS * HEAD_DIM, DIM, seed=2).to(device, dtype)

    @classmethod
    def load(cls, checkpoint: Any, *, device: torch.device, dtype: torch.dtype) -> LM:
        return cls(device, dtype)

    @causal
    def read(self, batch: Batch) -> Gives:
        self._attend(batch, self._words[batch.cat("ids")], causal=True)
        return {}

    @token_count(lambda self, latents, t: len(latents))
    def velocity(self, batch: Batch) -> Gives:
        latents = batch.values("latents")
        times = [one + t for one, t in zip(latents, batch.values("t"), strict=True)]
        tokens = torch.cat(times)
        missing = len(batch.cache.positions) - len(tokens)
        made = self._attend(batch, functional.pad(tokens, (0, 0, 0, missing)), causal=False)
        return {"velocity": [made[at : at + LATENTS] for at in batch.cache.cu_seqlens[:-1]]}

    def _attend(self, batch: Batch, tokens: Tensor, *, causal: bool) -> Tensor:
        at = batch.cache.positions[: len(tokens), None].to(tokens.dtype)
        hidden = functional.normalize(tokens + torch.sin(at * torch.arange(1, DIM + 1) / DIM), dim=-1)
        q, k, v = functional.linear(hidden, self._qkv).view(len(tokens), 3, HEADS, HEAD_DIM).unbind(1)
        seen = batch.cache.attend(0, q.contiguous(), k.contiguous(), v.contiguous(), causal=causal)
        return functional.normalize(seen.reshape(len(tokens), DIM), dim=-1)


class Solver:
    """From noise, a step a turn."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Solver:
        return cls()

    def noise(self, batch: Batch) -> Gives:
        return {
            "latents": [
                torch.randn(LATENTS, DIM, generator=torch.Generator().manual_seed(seed))
                for seed in batch.values("seed")
            ]
        }

    def step(self, batch: Batch) -> Gives:
        names = ("latents", "full", "no_text", "no_image")
        rows = zip(*(batch.values(name) for name in names), strict=True)
        return {"latents": [self._stepped(*row) for row in rows]}

    def _stepped(
        self, latents: Tensor, full: Tensor, no_text: Tensor | None, no_image: Tensor | None
    ) -> Tensor:
        """Further from what there is without the text, and from what there is without the image."""
        if no_text is not None and no_image is not None:
            full = no_text + 4 * (full - no_text)
            full = no_image + 1.5 * (full - no_image)
        return latents - full / 49

    def finish(self, batch: Batch) -> Gives:
        return {"picture": batch.values("latents")}
