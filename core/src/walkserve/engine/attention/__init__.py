"""Attention over the paged cache, one module per way to compute it."""

from walkserve.engine.attention.torch_sdpa import AttentionRow, PagedAttention

__all__ = ["AttentionRow", "PagedAttention"]
