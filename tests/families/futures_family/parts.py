"""The components of the family that imagines: a few seeded numbers each."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from walkserve_sdk import Batch, Gives, KVShape, Stop, causal, token_count

DIM, HEADS, HEAD_DIM = 16, 2, 8


def _numbers(*shape: int, seed: int) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made / shape[-1] ** 0.5


class Trouble(RuntimeError):
    """Raised where a plan has asked for it."""


class Reader:
    """Text to tokens, plans to actions."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Reader:
        return cls()

    def read(self, batch: Batch) -> Gives:
        seen = [[ord(letter) % 64 for letter in text] for text in batch.values("text")]
        return {"seen": seen, "actions": batch.values("plans"), "tokens": [len(one) for one in seen]}


class World:
    """One layer of attention over all that was seen and imagined. A turn brings two tokens and an action."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.kv_shape = KVShape(layers=1, kv_heads=HEADS, head_dim=HEAD_DIM, context=1024)
        self._words = _numbers(128, DIM, seed=1).to(device, dtype) * DIM**0.5
        self._qkv = _numbers(3 * HEADS * HEAD_DIM, DIM, seed=2).to(device, dtype)

    @classmethod
    def load(cls, checkpoint: Any, *, device: torch.device, dtype: torch.dtype) -> World:
        return cls(device, dtype)

    @causal
    def see(self, batch: Batch) -> Gives:
        seen = self._attend(batch, self._words[batch.cat("seen")], causal=True)
        last = batch.last(seen)
        return {"latent": [torch.stack([one, -one]) for one in last[: batch.size]]}

    @token_count(lambda self, latent, action: len(latent) + 1)
    def step(self, batch: Batch) -> Gives:
        actions = batch.values("action")
        if "!" in actions:
            raise Trouble("a turn fails, as it is asked to")
        if any(options.turn_ms for options in batch.options):
            time.sleep(max(options.turn_ms for options in batch.options) / 1000)
        rows = [
            torch.cat([self._words[ord(action)][None], latent + batch.key(row) % 1024 / 1024])
            for row, (action, latent) in enumerate(zip(actions, batch.values("latent"), strict=True))
        ]
        tokens = torch.cat(rows)
        missing = len(batch.cache.positions) - len(tokens)
        made = self._attend(batch, functional.pad(tokens, (0, 0, 0, missing)), causal=False)
        for row, action in enumerate(actions):
            if action == ".":
                batch.stop(row, Stop("ended"))
        latents = [made[at + 1 : at + 3] for at in batch.cache.cu_seqlens[:-1]]
        return {"latent": latents, "note": actions}

    def _attend(self, batch: Batch, tokens: Tensor, *, causal: bool) -> Tensor:
        at = batch.cache.positions[: len(tokens), None].to(tokens.dtype)
        hidden = functional.normalize(tokens + torch.sin(at * torch.arange(1, DIM + 1) / DIM), dim=-1)
        q, k, v = functional.linear(hidden, self._qkv).view(len(tokens), 3, HEADS, HEAD_DIM).unbind(1)
        seen = batch.cache.attend(0, q.contiguous(), k.contiguous(), v.contiguous(), causal=causal)
        return functional.normalize(seen.reshape(len(tokens), DIM), dim=-1)


class Scales:
    """What every future came to, in the order of the plans."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Scales:
        return cls()

    def weigh(self, batch: Batch) -> Gives:
        return {
            "weight": [
                torch.tensor([float(one.sum()) + len(told) for one, told in zip(latents, paths, strict=True)])
                for latents, paths in zip(batch.values("latent"), batch.values("path"), strict=True)
            ]
        }
