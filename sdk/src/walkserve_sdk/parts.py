"""Parts from what a Python caller has: files, pictures, arrays, and several of them by name. Needs numpy."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from walkserve_sdk.arrays import Array, write_npy, write_safetensors
from walkserve_sdk.errors import BadRequest, shown
from walkserve_sdk.requests import KINDS, Part


def take_parts(fields: dict[str, Any], ordered: Sequence[Part] | None = None) -> tuple[Part, ...]:
    """Take a request's parts out of what its caller gave by keyword; what is left are options.

    A kind has one part, a list of several, or a mapping of names to them, and kinds come in the order of
    ``KINDS``. Media are bytes or the path of a file (``pathlib.Path``). An image may be a PIL image or a
    uint8 array as well, which goes as PNG, without loss (that takes Pillow). A tensor is an array of numpy or
    torch, and a mapping of names to tensors is one part, a ``.safetensors`` file.

    Args:
        ordered: The parts themselves, where their order matters; then none may come by keyword.

    Raises:
        BadRequest: Something is none of these; ``param`` is its kind.
        TypeError: Parts are given both in their order and by keyword.
    """
    given = {kind: fields.pop(kind) for kind in KINDS if kind in fields}
    by_kind = {kind: value for kind, value in given.items() if value is not None}
    if ordered is None:
        return tuple(part for kind, value in by_kind.items() for part in _parts(kind, value))
    if by_kind:
        kind = next(iter(by_kind))
        raise TypeError(f"give {kind} among the parts, where its place is clear, or only parts by keyword")
    for part in ordered:
        if not isinstance(part, Part):
            raise TypeError(f"parts in their order are Part(kind, data), not {shown(part)}")
    return tuple(ordered)


def _parts(kind: str, value: Any) -> Iterator[Part]:
    if isinstance(value, Mapping) and kind == "tensor":
        yield Part(kind, write_safetensors({name: _array(name, one) for name, one in value.items()}))
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield Part(kind, _data(kind, one), name)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _parts(kind, one)
    else:
        yield Part(kind, _data(kind, value))


def _data(kind: str, value: Any) -> str | bytes:
    if isinstance(value, str) or kind == "text":
        data: str = value  # of media it is refused by the model's own gate, like text that is none
        return data
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, PurePath):
        return _file(kind, value)
    if kind == "tensor":
        return write_npy(_array("", value))
    if kind == "image":
        return _png(value)
    raise BadRequest(f"{kind}: give bytes or a pathlib.Path, not a {type(value).__name__}", param=kind)


def _file(kind: str, path: PurePath) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadRequest(f"{kind}: {path} cannot be read: {error.strerror or error}", param=kind) from error


def _array(name: str, value: Any) -> Array:
    """numpy's view of an array; of bfloat16, which it has not, as float32."""
    if hasattr(value, "detach"):  # of torch
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if isinstance(value, str | bytes) or value is None:
        where = f"tensor {shown(name)}" if name else "tensor"
        raise BadRequest(f"{where}: give an array, not {shown(value, 60)}", param="tensor")
    try:
        return np.asarray(value)
    except ValueError as error:  # lists of unequal lengths
        raise BadRequest(f"tensor {shown(name)}: {error}", param="tensor") from None


def _png(value: Any) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise BadRequest(
            "image: it takes Pillow to make a file of it; install pillow, or give bytes or a pathlib.Path",
            param="image",
        ) from None
    if not isinstance(value, Image.Image):
        array = np.asarray(_array("", value))
        if (
            array.dtype != np.uint8
            or array.ndim not in (2, 3)
            or array.shape[2:] not in ((), (1,), (3,), (4,))
        ):
            raise BadRequest(
                f"image: an array of one is uint8 of shape (height, width, 3), not {array.dtype} of shape "
                f"{array.shape}; give bytes, a pathlib.Path or a PIL image otherwise",
                param="image",
            )
        if 0 in array.shape:
            raise BadRequest(f"image: it has no pixels, its shape is {array.shape}", param="image")
        value = Image.fromarray(np.ascontiguousarray(array[..., 0] if array.shape[2:] == (1,) else array))
    file = io.BytesIO()
    try:
        value.save(file, "PNG")
    except OSError as error:  # a mode that PNG has not, such as CMYK
        raise BadRequest(f"image: {error}; convert it to RGB", param="image") from None
    return file.getvalue()
