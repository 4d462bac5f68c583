"""Rollouts as V-JEPA 2-AC's authors make them: at each step the predictor sees all frames so far once more.

Two ways over the same weights and with the same poses. Both compute all tokens of all frames in every layer,
attend densely under a mask in which a frame does not see later ones, and project every frame, of which the
last is kept:

* ``"engineered"``: queries, keys and values of all tokens in one product, and tables of rotations and the
  mask made once, before anything is timed. What is left between it and a cache is the cache.
* ``"plain"``: as the authors' code is written. In every layer of every call it takes action and pose tokens
  out and puts them through the product by themselves, makes sines and cosines of each third of the queries
  and again of the keys, and puts the sequence together again. The mask, of true and false, is made once.

(rows, frames * 258, width) throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from walk_plugin_vjepa2.poses import next_pose
from walk_plugin_vjepa2.predictor import Weights
from walk_plugin_vjepa2.rotation import FrameRotation, rotate

WAYS = ("engineered", "plain")
LEADING = 2
"""Tokens of a frame before its patches: action and pose."""


class Recompute:
    """The authors' loop.

    Args:
        grid: Patches along a side.
        frames: The most that it sees.
    """

    def __init__(self, weights: Weights, *, heads: int, grid: int, frames: int) -> None:
        self._weights = weights
        self._heads = heads
        self._grid = grid
        self._frame = LEADING + grid * grid
        head_dim = weights.predictor_proj.in_features // heads
        self._third = 2 * ((head_dim // 3) // 2)
        cpu: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}
        rotation = FrameRotation(steps=frames, grid=grid, leading=LEADING, head_dim=head_dim, **cpu)
        self._rotation = rotation.at(torch.arange(frames * self._frame))
        frame = torch.arange(frames).repeat_interleave(self._frame)
        self._seen = frame[:, None] >= frame
        self._mask = torch.zeros(self._seen.shape).masked_fill(~self._seen, -torch.inf)

    @torch.inference_mode()
    def roll_out(
        self,
        way: str,
        latents: Tensor,
        states: Tensor,
        past_actions: Tensor,
        actions: Tensor,
        *,
        on_step: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Tensor]:
        """What every candidate comes to.

        Args:
            way: ``"engineered"`` or ``"plain"``.
            latents: (T, tokens, width), normed, of what was observed; ``states`` (T, 7) and ``past_actions``
                (T - 1, 7) with them.
            actions: (rows, horizon, 7).
            on_step: Called after each step.

        Returns:
            Latents (rows, horizon, tokens, width) and poses (rows, horizon, 7).
        """
        attend = {"engineered": self._attend, "plain": self._attend_plainly}[way]
        rows, horizon, _ = actions.shape
        observed = len(latents)
        z, s, past = (each.expand(rows, *each.shape) for each in (latents, states, past_actions))
        for step in range(horizon):
            a = torch.cat([past, actions[:, : step + 1]], dim=1)
            made = self._predict(z, s, a, attend)[:, -z.shape[2] :]
            z = torch.cat([z, layer_norm(made, made.shape[-1:])[:, None]], dim=1)
            s = torch.cat([s, next_pose(s[:, -1], a[:, -1])[:, None]], dim=1)
            on_step()
        return z[:, observed:], s[:, observed:]

    def _predict(self, z: Tensor, s: Tensor, a: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        """All frames' next ones, (rows, frames * tokens, width)."""
        weights = self._weights
        leading = [weights.action_encoder(a)[:, :, None], weights.state_encoder(s)[:, :, None]]
        x = torch.cat([*leading, weights.predictor_embed(z)], dim=2).flatten(1, 2)
        for block in weights.predictor_blocks:
            x = block.finish(x, attend(block.attn, block.norm1(x)))
        x = x.unflatten(1, (-1, self._frame))[:, :, LEADING:].flatten(1, 2)
        made: Tensor = weights.predictor_proj(weights.predictor_norm(x))
        return made

    # --- fused, and with tables -------------------------------------------------------------------

    def _attend(self, attention: Any, x: Tensor) -> Tensor:
        rows, tokens, _ = x.shape
        qkv = attention.qkv(x).view(rows * tokens, 3, self._heads, -1)
        cos, sin = (table[:tokens].repeat(rows, 1, 1, 1) for table in self._rotation)
        qk = rotate(qkv[:, :2], cos, sin)
        q, k, v = (
            each.view(rows, tokens, self._heads, -1).transpose(1, 2)
            for each in (qk[:, 0], qk[:, 1], qkv[:, 2])
        )
        seen = scaled_dot_product_attention(q, k, v, attn_mask=self._mask[:tokens, :tokens])
        return seen.transpose(1, 2).flatten(2)

    # --- as the authors' code is written ----------------------------------------------------------

    def _attend_plainly(self, attention: Any, x: Tensor) -> Tensor:
        tokens = x.shape[1]
        frames = x.unflatten(1, (-1, self._frame))
        count = frames.shape[1]
        time = torch.arange(count)
        q, k, v = ([], [], [])  # type: tuple[list[Tensor], list[Tensor], list[Tensor]]
        for leading in range(LEADING):
            for to, made in zip((q, k, v), self._qkv(attention, frames[:, :, leading]), strict=True):
                to.append((made if to is v else self._turned(made, time)).unsqueeze(3))
        place = torch.arange(count * self._grid**2)
        inside = place % self._grid**2
        places = place // self._grid**2, inside // self._grid, inside % self._grid
        patches = self._qkv(attention, frames[:, :, LEADING:].flatten(1, 2))
        for to, made in zip((q, k, v), patches, strict=True):
            turned = made if to is v else self._turned(made, *places)
            to.append(turned.unflatten(2, (count, -1)))
        q, k, v = (torch.cat(each, dim=3).flatten(2, 3) for each in (q, k, v))
        seen = scaled_dot_product_attention(q, k, v, attn_mask=self._seen[:tokens, :tokens])
        return seen.transpose(1, 2).flatten(2)

    def _qkv(self, attention: Any, x: Tensor) -> Tensor:
        """(3, rows, heads, tokens, head_dim)."""
        return attention.qkv(x).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)

    def _turned(self, x: Tensor, *places: Tensor) -> Tensor:
        """(rows, heads, tokens, head_dim), a third of its dimensions for each kind of place."""
        parts = list(x.split(self._third, dim=-1))
        for third, place in enumerate(places):
            parts[third] = self._turned_third(parts[third], place)
        return torch.cat(parts, dim=-1)

    def _turned_third(self, x: Tensor, place: Tensor) -> Tensor:
        half = self._third // 2
        frequencies = 1 / 10000 ** (torch.arange(half, dtype=torch.float32) / half)
        angles = place[:, None] * frequencies
        sin, cos = (each.repeat(1, 2) for each in (angles.sin(), angles.cos()))
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        return x * cos + torch.stack([-second, first], dim=-1).flatten(-2) * sin
