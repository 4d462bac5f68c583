"""Linear layers whose weights lie as the CPU's kernels want them, for products with few rows.

A language model that writes multiplies a handful of rows by all of its weights, again and again. Given plain
weights, oneDNN lays them out anew at each call and MKL works through them a row at a time: of a 512 x 156,940
head in float32, eight rows take 35 ms on one core. Laid out once, they take 12.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

_ROWS_HINT = 8
"""How many rows the layout is chosen for; it serves any number."""


class PackedLinear(nn.Module):
    """``x @ weight.T + bias``, with a copy of ``weight`` in the kernels' own layout; for inference.

    Where there is no such layout (on a GPU, in a build of torch without oneDNN, for types that it does not
    multiply) it keeps the weight itself, and is torch's own ``linear``.

    Two rows or more get the same bits in a batch of any size. One row alone may not.

    Args:
        weight: (outputs, inputs). Let go of it afterwards, or it is held twice.
        bias: (outputs,).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._is_packed = _can_pack(weight)
        # no parameters: packed, it is no tensor that a state dict could hold
        self._weight = _pack(weight) if self._is_packed else weight.detach()
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        if self._is_packed:
            return _multiply(x, self._weight, self._bias)
        return linear(x, self._weight, self._bias)


def pack_linears(module: nn.Module) -> None:
    """Put a ``PackedLinear`` in the place of every ``nn.Linear`` inside ``module``, one by one."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child.weight, child.bias))
        else:
            pack_linears(child)


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype in (torch.float32, torch.bfloat16)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


# What torch's own compiler makes of linear layers on a CPU; there is no public name for it.


@torch.no_grad()
def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _ROWS_HINT)
    return packed


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return product
