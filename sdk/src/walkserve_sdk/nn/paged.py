"""Attention over the paged cache for decoder layers of transformers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

PAGED = "walkserve_paged"
"""Name of the attention implementation; give it as a config's ``_attn_implementation``."""


def register_paged_attention() -> str:
    """Make ``PAGED`` known to transformers, and return it.

    A layer is then called on packed tokens, as a batch of one, with ``paged=batch.cache`` among its keyword
    arguments; its own projections and rotations run as they are, only the attention itself is the cache's.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(PAGED, _attend)
    return PAGED


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    paged: Any,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Shapes of transformers: (1, heads, tokens, head_dim) in, (1, tokens, heads, head_dim) out."""
    packed = (each[0].transpose(0, 1) for each in (query, key, value))
    return paged.attend(module.layer_idx, *packed, scale=scaling)[None], None
