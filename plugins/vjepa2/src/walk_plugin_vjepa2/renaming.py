"""The authors' names of tensors as transformers' ``VJEPA2Encoder`` and ``VJEPA2Predictor`` have them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_ENCODER = (
    (re.compile(r"^blocks\."), "layer."),
    (re.compile(r"\.attn\."), ".attention."),
    (re.compile(r"^patch_embed\."), "embeddings.patch_embeddings."),
    (re.compile(r"^norm\."), "layernorm."),
)
_PREDICTOR = (
    (re.compile(r"^predictor_blocks\."), "layer."),
    (re.compile(r"\.attn\."), ".attention."),
    (re.compile(r"^predictor_embed\."), "embeddings.predictor_embeddings."),
    (re.compile(r"^predictor_norm\."), "layernorm."),
    (re.compile(r"^predictor_proj\."), "proj."),
)
_MASK_TOKEN = re.compile(r"^mask_tokens\.(\d+)$")


def encoder_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An encoder's tensors; a ``pos_embed``, which positions by rotation leave unused, stays behind."""
    return _renamed({name: t for name, t in tensors.items() if name != "pos_embed"}, _ENCODER)


def predictor_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A masked predictor's tensors; its mask tokens become one."""
    masks = {int(found[1]): t for name, t in tensors.items() if (found := _MASK_TOKEN.match(name))}
    others = {name: t for name, t in tensors.items() if not _MASK_TOKEN.match(name)}
    renamed = _renamed(others, _PREDICTOR)
    if masks:
        renamed["embeddings.mask_tokens"] = torch.stack([masks[index] for index in sorted(masks)])
    return renamed


def _renamed(
    tensors: Mapping[str, Tensor], rules: tuple[tuple[re.Pattern[str], str], ...]
) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in tensors.items():
        for pattern, into in rules:
            name = pattern.sub(into, name)
        before, qkv, kind = name.partition(".qkv.")
        if not qkv:
            renamed[name] = tensor
            continue
        for part, third in zip(("query", "key", "value"), tensor.chunk(3), strict=False):
            renamed[f"{before}.{part}.{kind}"] = third
    return renamed
