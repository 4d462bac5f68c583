"""A mixture of transformers: two sets of weights that read one sequence together (BAGEL, Deng et al. 2025).

What a token is decides which expert it goes to: latents of images to the one that paints, all else to the one
that understands. Only in attention do the two meet::

    sequence      a  red fox  [  x  x  x  x  ]          text, and an image between its delimiters
    understands   a  red fox  [              ]          norms, projections, MLP: each its own
    paints                       x  x  x  x
    attention     a  red fox  [  x  x  x  x  ]          all of them, over the same keys

So the tokens of a batch are kept apart from the first layer to the last, in two shares, and are laid together
for attention alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from walk_plugin_bagel.settings import Language
from walkserve_sdk import CacheView

Kind = Literal["understands", "paints"]
SUFFIX: dict[Kind, str] = {"understands": "", "paints": "_moe_gen"}
"""What the checkpoint adds to the name of every weight of an expert."""


@dataclass
class Share:
    """The tokens of a batch that go to one expert.

    Args:
        at: Their places in the batch; None for all of them in order. May be padded by repeating the last.
        hidden: (places, width); new with every layer.
    """

    kind: Kind
    at: Tensor | None
    hidden: Tensor


class Layer(nn.Module):
    """The published key layout: everything twice."""

    def __init__(self, said: Language) -> None:
        super().__init__()
        self.self_attn, self.mlp, self.mlp_moe_gen = nn.Module(), _MLP(said), _MLP(said)
        width, head = said.hidden_size, said.head_dim
        queries, keys = said.num_attention_heads * head, said.num_key_value_heads * head
        for suffix in SUFFIX.values():
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.add_module(name + suffix, nn.RMSNorm(width, eps=said.rms_norm_eps))
            for name, module in (
                ("q_proj", nn.Linear(width, queries)),
                ("k_proj", nn.Linear(width, keys)),
                ("v_proj", nn.Linear(width, keys)),
                ("o_proj", nn.Linear(queries, width, bias=False)),
                ("q_norm", nn.RMSNorm(head, eps=said.rms_norm_eps)),
                ("k_norm", nn.RMSNorm(head, eps=said.rms_norm_eps)),
            ):
                self.self_attn.add_module(name + suffix, module)


class _MLP(nn.Module):
    def __init__(self, said: Language) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(said.hidden_size, said.intermediate_size, bias=False)
        self.up_proj = nn.Linear(said.hidden_size, said.intermediate_size, bias=False)
        self.down_proj = nn.Linear(said.intermediate_size, said.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class _Expert:
    """One expert's weights of one layer."""

    def __init__(self, layer: Layer, suffix: str, head_dim: int) -> None:
        attention = layer.self_attn
        self._head_dim = head_dim
        self._norm = layer.get_submodule("input_layernorm" + suffix)
        self._norm_after = layer.get_submodule("post_attention_layernorm" + suffix)
        self._mlp = layer.get_submodule("mlp" + suffix)
        self._q, self._k, self._v, self._o, self._q_norm, self._k_norm = (
            attention.get_submodule(name + suffix)
            for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
        )

    def before(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (places, heads, head_dim), not yet rotated."""
        normed = self._norm(hidden)
        q, k, v = (
            projected(normed).unflatten(-1, (-1, self._head_dim)) for projected in (self._q, self._k, self._v)
        )
        return self._q_norm(q), self._k_norm(k), v

    def after(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """The layer's output: (places, width)."""
        hidden = hidden + self._o(attended)
        return hidden + self._mlp(self._norm_after(hidden))


class Decoder:
    """All layers, over walkserve's paged cache."""

    def __init__(self, layers: Sequence[Layer], said: Language, device: torch.device) -> None:
        self._layers: list[dict[Kind, _Expert]] = [
            {kind: _Expert(layer, suffix, said.head_dim) for kind, suffix in SUFFIX.items()}
            for layer in layers
        ]
        halves = torch.arange(0, said.head_dim, 2, device=device, dtype=torch.float32) / said.head_dim
        self._frequencies = 1.0 / said.rope_theta**halves

    def run(self, shares: Sequence[Share], ropes: Tensor, cache: CacheView, *, causal: bool) -> None:
        """Take the shares through all layers.

        Args:
            ropes: (tokens,) the rotary position of every token of the batch.
            causal: Whether a token sees only those before it, or all of its row.
        """
        rotation = self._rotation(ropes)
        for index, experts in enumerate(self._layers):
            parts = [experts[share.kind].before(share.hidden) for share in shares]
            q, k, v = (_together(shares, each, len(ropes)) for each in zip(*parts, strict=True))
            seen = cache.attend(
                index, _rotated(q, rotation), _rotated(k, rotation), v, causal=causal
            ).flatten(1)
            for share in shares:
                attended = seen if share.at is None else seen[share.at]
                share.hidden = experts[share.kind].after(share.hidden, attended)

    def _rotation(self, ropes: Tensor) -> tuple[Tensor, Tensor]:
        angles = (ropes[:, None].float() * self._frequencies)[:, None]
        return angles.cos(), angles.sin()


def _together(shares: Sequence[Share], parts: Sequence[Tensor], tokens: int) -> Tensor:
    """What experts made of their shares, in the order of the batch."""
    if shares[0].at is None:
        return parts[0]
    whole = parts[0].new_zeros(tokens, *parts[0].shape[1:])
    for share, part in zip(shares, parts, strict=True):
        assert share.at is not None
        whole.index_copy_(0, share.at, part)
    return whole


def _rotated(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions (Su et al. 2021), the halves of a head as pairs; in float32 whatever ``x`` is."""
    cos, sin = rotation
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
