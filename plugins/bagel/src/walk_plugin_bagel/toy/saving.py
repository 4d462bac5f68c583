"""Writing the checkpoint as the authors do: their files, their names of tensors, 16 bits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from diffusers import AutoencoderKL
from safetensors.torch import save_file
from torch import Tensor, nn

from walk_plugin_bagel.settings import Glue, Language, Preprocessing, Settings, Vision
from walk_plugin_bagel.toy.drawings import SIDE
from walk_plugin_bagel.toy.tokenizer_files import VOCABULARY

LANGUAGE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "qk_norm": True,
    "tie_word_embeddings": False,
}
VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,  # one more than are stored, as published
    "num_attention_heads": 4,
    "num_channels": 3,
    "patch_size": 14,
    "image_size": 224,
    "layer_norm_eps": 1e-06,
    "rope": False,
}
VAE: dict[str, Any] = {
    "resolution": SIDE,
    "in_channels": 3,
    "downsample": 4,
    "ch": 32,
    "out_ch": 3,
    "ch_mult": [1, 2, 2],
    "num_res_blocks": 1,
    "z_channels": 4,
}
IMAGES = {
    "vae_transform": {"max_size": SIDE, "min_size": SIDE, "stride": 8},
    "vit_transform": {"max_size": 56, "min_size": 56, "stride": 14},
}
TABLE_SIDE = 16
"""Cells in a row of either table of positions."""

_MIDDLE = {"resnets.0": "block_1", "attentions.0": "attn_1", "resnets.1": "block_2"}
_RULES = (
    (re.compile(r"\bconv_norm_out\b"), "norm_out"),
    (re.compile(r"\bmid_block\.(\w+\.\d)"), lambda found: f"mid.{_MIDDLE[found[1]]}"),
    (re.compile(r"\bdown_blocks\.(\d)"), r"down.\1"),
    (re.compile(r"\bup_blocks\.(\d)"), lambda found: f"up.{len(VAE['ch_mult']) - 1 - int(found[1])}"),
    (re.compile(r"\bresnets\."), "block."),
    (re.compile(r"\bconv_shortcut\b"), "nin_shortcut"),
    (re.compile(r"\b(down|up)samplers\.0\b"), r"\1sample"),
    (re.compile(r"\bgroup_norm\b"), "norm"),
    (re.compile(r"\bto_([qkv])\b"), r"\1"),
    (re.compile(r"\bto_out\.0\b"), "proj_out"),
)


def toy_settings() -> Settings:
    """What ``read_settings`` says of the toy, before there is a file."""
    return Settings(
        language=msgspec.convert(LANGUAGE, Language),
        vision=msgspec.convert(VISION, Vision),
        glue=msgspec.convert({"vae_config": VAE}, Glue),
        images=msgspec.convert(IMAGES, Preprocessing),
        latent_side=TABLE_SIDE,
        vit_side=TABLE_SIDE,
    )


def write_configs(folder: Path, *, scale: float, shift: float) -> None:
    """Write the small files.

    Args:
        folder: Where.
        scale: What a latent is multiplied by, after
        shift: is subtracted from it.
    """
    glue = {
        "vae_config": VAE | {"scale_factor": scale, "shift_factor": shift},
        "latent_patch_size": 2,
        "max_latent_size": TABLE_SIDE,
        "vit_max_num_patch_per_side": TABLE_SIDE,
        "timestep_shift": 1.0,
    }
    for name, said in (
        ("config.json", glue),
        ("llm_config.json", LANGUAGE),
        ("vit_config.json", VISION),
        ("preprocessor_config.json", IMAGES),
    ):
        (folder / name).write_text(json.dumps(said, indent=1) + "\n", "utf-8")


def save_vae(vae: AutoencoderKL, folder: Path) -> None:
    """Write ``ae.safetensors``."""
    _save(authors_names(vae.state_dict()), folder / "ae.safetensors")


def save_model(parts: Mapping[str, nn.Module], folder: Path) -> None:
    """Write ``ema.safetensors``: the tensors of all parts, which have names of their own."""
    tensors = {name: tensor for part in parts.values() for name, tensor in part.state_dict().items()}
    _save(tensors, folder / "ema.safetensors")


def authors_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What diffusers makes its own names of; its attention is linear where theirs is a convolution of 1 x
    1."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if "attentions" in name and tensor.ndim == 2:
            tensor = tensor[..., None, None]
        for pattern, into in _RULES:
            name = pattern.sub(into, name)
        renamed[name] = tensor
    return renamed


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    stored = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(stored, path, metadata={"format": "pt"})
