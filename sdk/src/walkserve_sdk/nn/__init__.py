"""Torch building blocks for plugins; importing this imports torch, a declaration never does."""

from walkserve_sdk.nn.packed import PackedLinear, pack_linears
from walkserve_sdk.nn.paged import PAGED, register_paged_attention
from walkserve_sdk.nn.scores import score_record, scores_of
from walkserve_sdk.nn.weights import load_strictly, read_safetensors

__all__ = [
    "PAGED",
    "PackedLinear",
    "load_strictly",
    "pack_linears",
    "read_safetensors",
    "register_paged_attention",
    "score_record",
    "scores_of",
]
