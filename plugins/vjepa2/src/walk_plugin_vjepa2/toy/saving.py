"""Writing the checkpoint as the authors do: one ``.pt``, with their names of tensors and their prefixes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers.models.vjepa2.modeling_vjepa2 import VJEPA2Encoder

from walk_plugin_vjepa2.predictor import Weights
from walk_plugin_vjepa2.preprocessing import FILE
from walk_plugin_vjepa2.toy import train_encoder as e
from walk_plugin_vjepa2.toy import train_predictor as p

NAME = "vjepa2-ac-dot.pt"

_RULES = (
    (re.compile(r"^layer\."), "blocks."),
    (re.compile(r"\.attention\."), ".attn."),
    (re.compile(r"^embeddings\.patch_embeddings\."), "patch_embed."),
    (re.compile(r"^layernorm\."), "norm."),
    (re.compile(r"\.query\."), ".qkv."),
)


def save(folder: Path, encoder: VJEPA2Encoder, predictor: Weights) -> None:
    """Write the ``.pt``, 16 bits, and the two files that say what it is."""
    config = {
        "img_size": e.SIZE,
        "patch_size": e.PATCH,
        "tubelet_size": e.TUBELET,
        "encoder": {"embed_dim": e.WIDTH, "depth": e.DEPTH, "num_heads": e.HEADS, "mlp_ratio": e.RATIO},
        "predictor": {
            "predictor_embed_dim": p.WIDTH,
            "depth": p.DEPTH,
            "num_heads": p.HEADS,
            "mlp_ratio": p.RATIO,
            "num_frames": p.STEPS_SEEN * e.TUBELET,
            "is_frame_causal": True,
            "use_rope": True,
            "use_extrinsics": False,
        },
        "layer_norm_eps": p.EPS,
    }
    look = {"image_mean": e.LOOK.mean, "image_std": e.LOOK.std}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    (folder / FILE).write_text(json.dumps(look, indent=1) + "\n", "utf-8")
    stored = {
        "encoder": _stored(authors_names(encoder.state_dict()), "module.backbone."),
        "predictor": _stored(predictor.state_dict(), "module."),
    }
    torch.save(stored, folder / NAME)


def authors_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What ``renaming.encoder_names`` makes transformers' names of; query, key and value become one again."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if ".key." in name or ".value." in name:
            continue
        if ".query." in name:
            tensor = torch.cat([tensor, *(tensors[name.replace(".query.", f".{part}.")] for part in _REST)])
        for pattern, into in _RULES:
            name = pattern.sub(into, name)
        renamed[name] = tensor
    return renamed


_REST = ("key", "value")


def _stored(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor.detach().to(torch.bfloat16) for name, tensor in tensors.items()}
