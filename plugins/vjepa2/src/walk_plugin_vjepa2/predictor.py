"""The world model: what a robot would see next, from what it has seen and done, one frame at a time.

A frame is an action, a pose and its patches, and sees itself in full and the frames before it. Positions are
rotations, so keys and values of a frame never change once it is there: they stay in the cache, and a step
computes one frame. The authors compute all frames again at each.

    sequence   a0 s0 p0 p1 … | a1 s1 p0 p1 … | a2 s2 p0 p1 …
                 cached          cached          this step  ->  the patches of frame 3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from walk_plugin_vjepa2.checkpoint import read_world_model
from walk_plugin_vjepa2.poses import next_pose
from walk_plugin_vjepa2.rotation import FrameRotation, rotate
from walk_plugin_vjepa2.shapes import Shape, Stack
from walkserve_sdk import Batch, CacheView, Checkpoint, Gives, KVShape, LoadError, token_count
from walkserve_sdk.nn import load_strictly, pack_linears

ACTION = 7
"""Numbers of an action and of a pose."""
_EXTRINSICS = 6
_LEADING = 2
"""Tokens of a frame that are no patches: its action and its pose."""
_TILE = 4
"""Rows of the small products come in multiples of this, so that a row's bits are the same in any batch."""


class _Attention(nn.Module):
    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.qkv = nn.Linear(stack.width, 3 * stack.width)
        self.proj = nn.Linear(stack.width, stack.width)
        self._heads = stack.heads

    def forward(self, x: Tensor, layer: int, cache: CacheView, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """(tokens, width) to what each token has gathered, not yet projected."""
        qkv = self.qkv(x).view(len(x), 3, self._heads, -1)
        qk = rotate(qkv[:, :2], *rotation)
        seen = cache.attend(layer, qk[:, 0], qk[:, 1], qkv[:, 2], causal=False)
        return seen.flatten(1)


class _MLP(nn.Module):
    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.fc1 = nn.Linear(stack.width, stack.hidden)
        self.fc2 = nn.Linear(stack.hidden, stack.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(gelu(self.fc1(x)))


class _Block(nn.Module):
    def __init__(self, stack: Stack, eps: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(stack.width, eps=eps)
        self.attn = _Attention(stack)
        self.norm2 = nn.LayerNorm(stack.width, eps=eps)
        self.mlp = _MLP(stack)

    def finish(self, x: Tensor, seen: Tensor) -> Tensor:
        """What follows attention, of all tokens or only of those that are wanted."""
        x = x + self.attn.proj(seen)
        return x + self.mlp(self.norm2(x))


class Weights(nn.Module):
    """The published key layout. ``extrinsics_encoder`` is stored and read, but used by no published model."""

    def __init__(self, stack: Stack, latent_width: int, eps: float) -> None:
        super().__init__()
        self.predictor_embed = nn.Linear(latent_width, stack.width)
        self.action_encoder = nn.Linear(ACTION, stack.width)
        self.state_encoder = nn.Linear(ACTION, stack.width)
        self.extrinsics_encoder = nn.Linear(_EXTRINSICS, stack.width)
        self.predictor_blocks = nn.ModuleList(_Block(stack, eps) for _ in range(stack.depth))
        self.predictor_norm = nn.LayerNorm(stack.width, eps=eps)
        self.predictor_proj = nn.Linear(stack.width, latent_width)


class ActionPredictor:
    """V-JEPA 2-AC's predictor (Assran et al. 2025), with the frames so far in pages."""

    def __init__(
        self, weights: Weights, shape: Shape, stack: Stack, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._weights = weights
        self._shape = shape
        self._device = device
        self._dtype = dtype
        head_dim = stack.width // stack.heads
        self._rotation = FrameRotation(
            steps=shape.steps,
            grid=shape.grid,
            leading=_LEADING,
            head_dim=head_dim,
            device=device,
            dtype=dtype,
        )
        self.kv_shape = KVShape(
            layers=stack.depth,
            kv_heads=stack.heads,
            head_dim=head_dim,
            context=shape.steps * shape.step_tokens,
        )

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> ActionPredictor:
        """Read the authors' layout, strictly."""
        stored = read_world_model(checkpoint)
        encoder, stack = stored.shape.encoder, stored.shape.predictor
        if encoder is None or stack is None:
            raise LoadError(f"{stored.place}: the size of its encoder and predictor is not known")
        with torch.device("meta"):
            weights = Weights(stack, encoder.width, stored.shape.eps)
        place = f"{stored.place}: the predictor"
        load_strictly(weights, stored.predictor, device=device, dtype=dtype, place=place)
        pack_linears(weights)
        return cls(weights.eval().requires_grad_(False), stored.shape, stack, device=device, dtype=dtype)

    @token_count(lambda self, latent, **_: len(latent) + _LEADING)
    def observe(self, batch: Batch) -> Gives:
        """Write a frame that was seen, and what was done then, into the row's cache; it gives nothing.

        Takes what ``step`` takes. What it would have predicted is not asked for, for the next frame is known.
        """
        poses, actions = (_stacked(batch.values(name)) for name in ("pose", "action"))
        self._run(batch, actions, poses)
        return {}

    @token_count(lambda self, latent, **_: len(latent) + _LEADING)
    def step(self, batch: Batch) -> Gives:
        """The next frame: of ``latent`` (tokens, width), ``action`` (7,) and ``pose`` (7,) the next two.

        The frame goes into the row's cache, which holds those before it; a new ``latent`` is normed over the
        width, as those of the encoder are.
        """
        poses, actions = (_stacked(batch.values(name)) for name in ("pose", "action"))
        x, seen = self._run(batch, actions, poses)
        # of the last block, what becomes of actions and poses is asked by nobody
        x, seen = self._patches(x, batch.size), self._patches(seen, batch.size)
        x = self._weights.predictor_blocks[-1].finish(x, seen)
        made = self._weights.predictor_proj(self._weights.predictor_norm(x)).float()
        latents = layer_norm(made, made.shape[-1:]).view(batch.size, -1, made.shape[-1])
        return {"latent": list(latents), "pose": list(next_pose(poses, actions))}

    def _run(self, batch: Batch, actions: Tensor, poses: Tensor) -> tuple[Tensor, Tensor]:
        """Through all blocks but the rest of the last: its input, and what its attention has gathered."""
        cache = batch.cache
        x = self._packed(batch.values("latent"), self._tiled(actions), self._tiled(poses), cache)
        seen = x
        rotation = self._rotation.at(cache.positions)
        for layer, block in enumerate(self._weights.predictor_blocks):
            if layer:
                x = self._weights.predictor_blocks[layer - 1].finish(x, seen)
            seen = block.attn(block.norm1(x), layer, cache, rotation)
        return x, seen

    def _tiled(self, numbers: Tensor) -> Tensor:
        missing = -len(numbers) % _TILE
        padded = torch.cat([numbers, numbers[-1:].expand(missing, -1)]) if missing else numbers
        return padded.to(self._device, self._dtype)

    def _packed(self, latents: Sequence[Any], actions: Tensor, poses: Tensor, cache: CacheView) -> Tensor:
        """(padded tokens, width of the predictor): each row's action, pose and patches, in this order."""
        rows = len(latents)
        seen = torch.stack([latent.to(self._device, self._dtype) for latent in latents])
        weights = self._weights
        frame = [
            weights.action_encoder(actions)[:rows, None],
            weights.state_encoder(poses)[:rows, None],
            weights.predictor_embed(seen),
        ]
        x = torch.cat(frame, dim=1).flatten(0, 1)
        missing = len(cache.positions) - len(x)
        return torch.cat([x, x.new_zeros(missing, x.shape[1])]) if missing else x

    def _patches(self, x: Tensor, rows: int) -> Tensor:
        tokens = self._shape.step_tokens
        return x[: rows * tokens].view(rows, tokens, -1)[:, _LEADING:].flatten(0, 1)


def _stacked(values: Sequence[Any]) -> Tensor:
    """(rows, 7) float32, on the CPU: a pose follows from poses and actions alone, and needs no device."""
    return torch.stack([torch.as_tensor(value, dtype=torch.float32, device="cpu") for value in values])
