"""What messages hold as numpy arrays, and what a client writes as messages hold it; without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkserve.messages import Array, Blob, Named, TensorRef, Value
from walkserve.transport.shm import ArenaReader
from walkserve_sdk.errors import BadRequest, shown


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


_NUMERIC = "biufc"
_CURE = "give bytes, text, a number, an array, a list of these, or a record without bytes"


def as_value(value: Any, param: str) -> Value:
    """What a client writes to the stream ``param``, as a message holds it: an array as a copy of its own.

    Raises:
        BadRequest: No message can hold it.
    """
    if isinstance(value, Mapping):
        return Named({str(name): _field(one, f"{param}.{name}") for name, one in value.items()})
    return list(_listed(value, param)) if isinstance(value, list | tuple) else _single(value, param)


def _field(value: Any, param: str) -> Any:
    made = _listed(value, param) if isinstance(value, list | tuple) else _single(value, param)
    if any(isinstance(one, Blob) for one in (made if isinstance(made, list) else [made])):
        raise BadRequest(f"{param}: a record holds no bytes; send them beside it, in a list", param=param)
    return made


def _listed(value: Sequence[Any], param: str) -> list[bool | int | float | str | Blob | Array]:
    for index, one in enumerate(value):
        if isinstance(one, list | tuple):
            raise BadRequest(f"{param}: item {index} of a list is a list itself; give it flat", param=param)
    return [_single(one, param) for one in value]


def _single(value: Any, param: str) -> bool | int | float | str | Blob | Array:
    match value:
        case np.generic():
            return _single(value.item(), param)
        case bool() | float() | Blob():
            return value
        case str():
            return _text(value, param)
        case int() if -(2**63) <= value < 2**64:
            return value
        case int():
            raise BadRequest(f"{param}: the number {shown(value)} is beyond 64 bits", param=param)
        case bytes() | bytearray() | memoryview():
            return Blob(bytes(value))
        case None:
            raise BadRequest(f"{param}: None is no item; {_CURE}", param=param)
    return _array(value, param)


def _text(value: str, param: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{param}: a text that is no UTF-8: {error.reason}", param=param) from error
    return value


def _array(value: Any, param: str) -> Array:
    try:
        array = np.asarray(value) if hasattr(value, "__array__") else None
    except (TypeError, RuntimeError, ValueError) as error:  # a tensor on a device, for instance
        raise BadRequest(f"{param}: {error}; give an array in host memory", param=param) from error
    if array is None or array.dtype.kind not in _NUMERIC:
        what = type(value).__name__ if array is None else f"array of {array.dtype}"
        raise BadRequest(f"{param}: no stream can hold a value of type {what}; {_CURE}", param=param)
    known = array.dtype.newbyteorder("<")
    return Array(known.name, array.shape, array.astype(known, order="C", copy=False).tobytes())
