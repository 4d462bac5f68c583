"""How the toy's encoder is trained: to know its patch and, in every token, the whole state.

The authors' encoder has seen a million hours of video. This one is told what matters: two linear heads,
thrown away afterwards, rebuild from each token the pixels of its patch and read off the state. From *each*
token, because with a head over all of them together distances between latents lead to no goal.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, mse_loss
from transformers import VJEPA2Config
from transformers.models.vjepa2.modeling_vjepa2 import VJEPA2Encoder

from walk_plugin_vjepa2.preprocessing import Look
from walk_plugin_vjepa2.toy.dots import pictures, states
from walk_plugin_vjepa2.toy.schedule import Schedule

STEPS = 1500
WIDTH, DEPTH, HEADS, RATIO = 96, 2, 4, 4
SIZE, PATCH, TUBELET = 64, 16, 2
LOOK = Look(SIZE, (0.45,) * 3, (0.25,) * 3)

_ROWS = 48
_STATE = (0, 1, 2, 6)  # the columns that a picture shows
_RANGE = torch.tensor([0.3, 0.3, 0.3, 1.0])


def train_encoder(seed: int, *, steps: int = STEPS) -> VJEPA2Encoder:
    """Train from nothing, on single pictures."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    encoder = VJEPA2Encoder(_config())
    rebuild, read = nn.Linear(WIDTH, 3 * PATCH * PATCH), nn.Linear(WIDTH, len(_STATE))
    parameters = [each for part in (encoder, rebuild, read) for each in part.parameters()]
    schedule = Schedule(parameters, steps=steps, rate=2e-3, betas=(0.9, 0.95))
    began = time.process_time()
    for step in range(steps):
        state = states(_ROWS, random)
        seen = LOOK.normed(255 * pictures(state))
        latents = look(encoder, seen)
        told = (state[:, None, _STATE] / _RANGE).expand(-1, latents.shape[1], -1)
        pixels, knows = mse_loss(rebuild(latents), _patches(seen)), mse_loss(read(latents), told)
        schedule.step(pixels + 10 * knows)
        if step % 250 == 0 or step == steps - 1:
            print(
                f"encoder {step:5d}/{steps}  pixels {pixels.item():.4f}  state {knows.item():.5f}"
                f"  {time.process_time() - began:.0f} s of CPU",
                flush=True,
            )
    return encoder.eval().requires_grad_(False)


def look(encoder: VJEPA2Encoder, seen: Tensor) -> Tensor:
    """Pictures (rows, 3, 64, 64) to latents (rows, tokens, width), as ``FrameEncoder`` has them."""
    clips = seen[:, None].expand(-1, TUBELET, -1, -1, -1)
    latents = encoder(pixel_values_videos=clips).last_hidden_state
    return layer_norm(latents, latents.shape[-1:])


def _patches(seen: Tensor) -> Tensor:
    """(rows, 3, 64, 64) to (rows, tokens, numbers of a patch), in the order of the tokens."""
    cells = seen.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)
    return cells.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def _config() -> VJEPA2Config:
    return VJEPA2Config(
        patch_size=PATCH,
        crop_size=SIZE,
        tubelet_size=TUBELET,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_hidden_layers=DEPTH,
        mlp_ratio=RATIO,
        layer_norm_eps=1e-6,
        attn_implementation="sdpa",
    )
