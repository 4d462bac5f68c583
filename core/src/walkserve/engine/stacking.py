"""What the rows of a Fan gave, as one value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def stack_rows(values: list[Any]) -> Any:
    """One tensor, a row each, where all are tensors of one kind; else the list as it is."""
    first = values[0] if values else None
    if not isinstance(first, Tensor):
        return values
    kind = (first.shape, first.dtype, first.device)
    for one in values:
        if not isinstance(one, Tensor) or (one.shape, one.dtype, one.device) != kind:
            return values
    return torch.stack(values)
