"""A V-JEPA 2-AC with random weights in the authors' layout, whose predictor is small enough for two cores.

The predictor has 6 layers x 384 and 6 heads, under frames of 256 tokens that are 1,024 wide. The encoder is
one layer: latents are given, and it only has to be there. Weights are drawn as the authors begin training,
the last linear layers of a block the smaller the deeper it is. Only the very last layer has a bias, which is
larger than its product: so a step forgets the rounding of those before, which would else add up to more than
1e-5 in thirty steps, whichever way they are computed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from walk_plugin_vjepa2.predictor import Weights
from walk_plugin_vjepa2.shapes import Stack

GRID, WIDTH, FRAMES = 16, 1024, 32
TOKENS = GRID**2
LAYERS, HIDDEN, HEADS = 6, 384, 6
EPS = 1e-6
CONFIG = {
    "model": "vjepa2_ac",
    "img_size": 256,
    "patch_size": 16,
    "num_frames": 2 * FRAMES,
    "tubelet_size": 2,
    "embed_dim": WIDTH,
    "depth": 1,
    "num_heads": 16,
    "mlp_ratio": 1.0,
    "pred_embed_dim": HIDDEN,
    "pred_depth": LAYERS,
    "pred_num_heads": HEADS,
}


def make_checkpoint(folder: Path) -> Weights:
    """Write ``config.json`` and the ``.pt`` into ``folder``; the predictor, as it is in there."""
    torch.manual_seed(0)
    predictor = Weights(Stack(HIDDEN, LAYERS, HEADS, 4 * HIDDEN), WIDTH, EPS)
    for name, tensor in predictor.named_parameters():
        _begin(name, tensor)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    stored = {
        "encoder": {f"module.backbone.{name}": tensor for name, tensor in _encoder().items()},
        "predictor": {f"module.{name}": tensor for name, tensor in predictor.state_dict().items()},
    }
    torch.save(stored, folder / "vjepa2-ac-benchmark.pt")
    return predictor.eval().requires_grad_(False)


@torch.no_grad()
def _begin(name: str, tensor: nn.Parameter) -> None:
    if tensor.dim() == 2:
        nn.init.trunc_normal_(tensor, std=0.02)
        if name.endswith(("attn.proj.weight", "mlp.fc2.weight")):
            tensor /= (2 * (int(name.split(".")[1]) + 1)) ** 0.5
    elif name == "predictor_proj.bias":
        nn.init.normal_(tensor)
    elif "norm" not in name:
        tensor.zero_()


def _encoder() -> dict[str, Tensor]:
    """By the authors' names."""
    parts: dict[str, Any] = {
        "patch_embed.proj": nn.Conv3d(3, WIDTH, (2, 16, 16)),
        "blocks.0.norm1": nn.LayerNorm(WIDTH),
        "blocks.0.attn.qkv": nn.Linear(WIDTH, 3 * WIDTH),
        "blocks.0.attn.proj": nn.Linear(WIDTH, WIDTH),
        "blocks.0.norm2": nn.LayerNorm(WIDTH),
        "blocks.0.mlp.fc1": nn.Linear(WIDTH, WIDTH),
        "blocks.0.mlp.fc2": nn.Linear(WIDTH, WIDTH),
        "norm": nn.LayerNorm(WIDTH),
    }
    return {f"{part}.{name}": t for part, module in parts.items() for name, t in module.state_dict().items()}
