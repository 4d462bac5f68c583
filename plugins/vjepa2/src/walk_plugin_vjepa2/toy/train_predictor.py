"""How the toy's predictor is trained: the served module itself, with the published losses.

Both are the mean absolute difference of normed latents: of every next frame from the true ones before it
(teacher forcing), and of two frames in a row, the second from what was predicted of the first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import l1_loss, scaled_dot_product_attention
from transformers.models.vjepa2.modeling_vjepa2 import VJEPA2Encoder

from walk_plugin_vjepa2.predictor import ActionPredictor, Weights
from walk_plugin_vjepa2.shapes import Shape, Stack
from walk_plugin_vjepa2.toy.dots import episodes, pictures
from walk_plugin_vjepa2.toy.schedule import Schedule
from walk_plugin_vjepa2.toy.train_encoder import LOOK, PATCH, SIZE, TUBELET, look

STEPS = 680
WIDTH, DEPTH, HEADS, RATIO = 96, 3, 4, 4
STEPS_SEEN = 4
"""Frames that the predictor sees: those observed and those imagined."""

_ROWS = 16
EPS = 1e-6


class WholeEpisodes:
    """A ``Batch`` of every frame of some episodes at once, whose cache lets gradients through.

    A row is a frame, as when it is served; what keeps it from seeing later ones is a mask here.

    Args:
        latents: (episodes, frames, tokens, width); ``actions`` and ``poses`` are (episodes, frames, 7).
    """

    def __init__(self, latents: Tensor, actions: Tensor, poses: Tensor) -> None:
        rows, frames, patches, _ = latents.shape
        tokens = patches + 2
        self.size = rows * frames
        self.cache = self
        self.lengths: Sequence[int] = [frame * tokens for _ in range(rows) for frame in range(frames)]
        self.cu_seqlens: Sequence[int] = list(accumulate([tokens] * self.size, initial=0))
        self.positions = torch.arange(frames * tokens).repeat(rows)
        self._values = {"latent": latents, "action": actions, "pose": poses}
        frame = torch.arange(frames).repeat_interleave(tokens)
        self._mask = frame[:, None] >= frame

    def values(self, name: str) -> list[Any]:
        return list(self._values[name].flatten(0, 1))

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, scale: float | None = None
    ) -> Tensor:
        # (tokens of all, heads, head_dim) -> (episodes, heads, tokens, head_dim)
        q, k, v = (each.unflatten(0, (-1, len(self._mask))).transpose(1, 2) for each in (q, k, v))
        attended = scaled_dot_product_attention(q, k, v, attn_mask=self._mask, scale=scale)
        return attended.transpose(1, 2).flatten(0, 1)


def predicted(predictor: ActionPredictor, latents: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
    """(episodes, frames, tokens, width): of every frame, what follows it."""
    made = predictor.step(WholeEpisodes(latents, actions, poses))["latent"]
    return torch.stack(list(made)).view_as(latents)


def untrained(latent_width: int) -> tuple[Weights, ActionPredictor]:
    """Weights as they begin, which can learn, and the predictor that runs on them."""
    stack = Stack(WIDTH, DEPTH, HEADS, WIDTH * RATIO)
    shape = Shape(SIZE, PATCH, TUBELET, STEPS_SEEN * TUBELET, predictor=stack, eps=EPS)
    weights = Weights(stack, latent_width, EPS)
    return weights, ActionPredictor(weights, shape, stack, device=torch.device("cpu"), dtype=torch.float32)


def train_predictor(encoder: VJEPA2Encoder, seed: int, *, steps: int = STEPS) -> Weights:
    """Train from nothing, on short episodes of random actions."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    weights, predictor = untrained(encoder.config.hidden_size)
    # no extrinsics are known, so their encoder is stored as it began
    learned = [each for name, each in weights.named_parameters() if "extrinsics" not in name]
    schedule = Schedule(learned, steps=steps, rate=2e-3, betas=(0.9, 0.95))
    began = time.process_time()
    for step in range(steps):
        poses, actions = episodes(_ROWS, STEPS_SEEN, random)
        with torch.no_grad():
            latents = look(encoder, LOOK.normed(255 * pictures(poses.flatten(0, 1))))
        latents = latents.unflatten(0, (_ROWS, STEPS_SEEN))
        forced = predicted(predictor, latents[:, :-1], actions, poses[:, :-1])
        begun = torch.cat([latents[:, :1], forced[:, :1]], 1)
        second = predicted(predictor, begun, actions[:, :2], poses[:, :2])[:, 1]
        imagined = torch.stack([forced[:, 0], second], 1)
        truth = latents[:, 1:]
        one, two = l1_loss(forced, truth), l1_loss(imagined, truth[:, :2])
        schedule.step(one + two)
        if step % 100 == 0 or step == steps - 1:
            print(
                f"predictor {step:5d}/{steps}  one step {one.item():.4f}  two steps {two.item():.4f}"
                f"  {time.process_time() - began:.0f} s of CPU",
                flush=True,
            )
    return weights.eval().requires_grad_(False)
