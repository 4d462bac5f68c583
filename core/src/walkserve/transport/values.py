"""Tensors in messages as numpy arrays, for processes that have no torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkserve.messages import Array, TensorRef
from walkserve.transport.shm import ArenaReader


def as_numpy(value: Array | TensorRef, reader: ArenaReader | None = None) -> NDArray[Any]:
    """A copy of what ``value`` holds; bfloat16, which numpy does not have, comes as float32.

    Args:
        reader: Where references are read; None is enough for an ``Array``.

    Raises:
        TensorGone: If the owner of a reference is gone.
        ValueError: If numpy has no such dtype, or the bytes do not fill the shape.
    """
    if isinstance(value, Array):
        return _copy(value.data, value.dtype, value.shape)
    if reader is None:
        raise ValueError(f"a tensor in the memory of {value.owner!r} cannot be read without a reader")
    with reader.view(value.segment, value.offset, value.size_bytes) as view:
        return _copy(view, value.dtype, value.shape)


def _copy(data: bytes | memoryview, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    if dtype == "bfloat16":  # the upper half of a float32
        upper = np.frombuffer(data, np.uint16).astype(np.uint32)
        return (upper << 16).view(np.float32).reshape(shape)
    try:
        known = np.dtype(dtype)
    except TypeError:
        raise ValueError(f"numpy has no dtype {dtype!r}") from None
    return np.frombuffer(data, known).reshape(shape).copy()
