"""A torch tensor as bytes, and back, whatever its dtype."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from walkserve.messages import Array

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
}


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.bfloat16`` as ``"bfloat16"``."""
    return str(dtype).removeprefix("torch.")


def write(tensor: Tensor, buffer: memoryview | bytearray) -> None:
    """Copy ``tensor``, from whatever device and layout, into a buffer of exactly its size, not zero."""
    torch.frombuffer(buffer, dtype=tensor.dtype).reshape(tensor.shape).copy_(tensor.detach())


def read(buffer: memoryview | bytes, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """A new tensor with a copy of what ``buffer`` holds.

    Raises:
        ValueError: If this torch has no such dtype, or the buffer is not of that size.
    """
    if dtype not in _DTYPES:
        raise ValueError(f"no dtype {dtype!r} in torch {torch.__version__}")
    tensor = torch.empty(shape, dtype=_DTYPES[dtype])
    # as bytes by way of numpy, which takes a read-only buffer and does not need to know bfloat16
    tensor.reshape(-1).view(torch.uint8).numpy()[...] = np.frombuffer(buffer, np.uint8)
    return tensor


def to_array(tensor: Tensor) -> Array:
    """``tensor`` as a value that rides inline."""
    data = bytearray(tensor.numel() * tensor.element_size())
    if data:
        write(tensor, data)
    return Array(dtype=dtype_name(tensor.dtype), shape=tuple(tensor.shape), data=bytes(data))


def from_array(value: Array) -> Tensor:
    """A tensor of its own with what ``value`` holds."""
    return read(value.data, value.dtype, value.shape)
