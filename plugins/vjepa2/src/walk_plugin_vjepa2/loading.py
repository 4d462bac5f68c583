"""transformers' V-JEPA 2, its encoder and its masked predictor each by itself, filled from either layout."""

from __future__ import annotations

import torch
from torch import nn
from transformers import VJEPA2Config
from transformers.models.vjepa2.modeling_vjepa2 import VJEPA2Encoder, VJEPA2Predictor

from walk_plugin_vjepa2.checkpoint import Stored
from walk_plugin_vjepa2.renaming import encoder_names, predictor_names
from walk_plugin_vjepa2.shapes import Stack
from walkserve_sdk import LoadError
from walkserve_sdk.nn import load_strictly, pack_linears


def load_encoder(stored: Stored, *, device: torch.device, dtype: torch.dtype) -> VJEPA2Encoder:
    """The encoder, strictly."""
    with torch.device("meta"):
        encoder = VJEPA2Encoder(_config(stored))
    tensors = encoder_names(stored.encoder) if stored.published else stored.encoder
    load_strictly(encoder, tensors, device=device, dtype=dtype, place=f"{stored.place}: the encoder")
    return _ready(encoder)


def load_masked_predictor(stored: Stored, *, device: torch.device, dtype: torch.dtype) -> VJEPA2Predictor:
    """The masked predictor, strictly."""
    if not stored.predictor:
        raise LoadError(f"{stored.place} has no predictor; take a checkpoint that has both of its parts")
    with torch.device("meta"):
        predictor = VJEPA2Predictor(_config(stored))
    tensors = predictor_names(stored.predictor) if stored.published else stored.predictor
    load_strictly(predictor, tensors, device=device, dtype=dtype, place=f"{stored.place}: the predictor")
    return _ready(predictor)


def _ready(module: nn.Module) -> nn.Module:
    pack_linears(module)
    return module.eval().requires_grad_(False)


def _config(stored: Stored) -> VJEPA2Config:
    """transformers' configuration of this shape; its predictor's only where there is such a one."""
    shape = stored.shape
    encoder = shape.encoder
    if encoder is None:
        raise LoadError(f"{stored.place}: the size of its encoder is not known")
    figures = {} if stored.is_conditioned or shape.predictor is None else _predictor(stored, shape.predictor)
    return VJEPA2Config(
        patch_size=shape.patch,
        crop_size=shape.image,
        frames_per_clip=shape.frames,
        tubelet_size=shape.tubelet,
        hidden_size=encoder.width,
        num_attention_heads=encoder.heads,
        num_hidden_layers=encoder.depth,
        mlp_ratio=_ratio(encoder),
        layer_norm_eps=shape.eps,
        attn_implementation="sdpa",
        **figures,
    )


def _predictor(stored: Stored, stack: Stack) -> dict[str, int | float]:
    stacked = stored.predictor.get("embeddings.mask_tokens")
    by_number = sum(name.startswith("mask_tokens.") for name in stored.predictor)
    return {
        "pred_hidden_size": stack.width,
        "pred_num_attention_heads": stack.heads,
        "pred_num_hidden_layers": stack.depth,
        "pred_mlp_ratio": _ratio(stack),
        "pred_num_mask_tokens": by_number if stacked is None else stacked.shape[0],
    }


def _ratio(stack: Stack) -> float:
    """One from which transformers' ``int(width * ratio)`` gives the width inside an MLP back."""
    return (stack.hidden + 0.5) / stack.width
