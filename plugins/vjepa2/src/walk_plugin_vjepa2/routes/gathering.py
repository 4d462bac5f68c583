"""From the fields of a body to the parts of a request; what is wrong is told by the field it stands in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from walk_plugin_vjepa2.routes.fields import InlineTensor, Seen
from walkserve_sdk import Part
from walkserve_sdk.arrays import from_json, read_tensors, write_safetensors
from walkserve_sdk.errors import BadRequest, did_you_mean

Array = NDArray[Any]

_ALONE = {"frames": 3, "latents": 2, "states": 1}
"""Axes that one frame's has, which may come without the axis of frames."""
_PIXELS = {"frames": "[frames, height, width, 3]", "goal": "[height, width, 3]"}


@dataclass(frozen=True)
class Gathered:
    """What a body has.

    Args:
        parts: Of the request.
        names: Of the fields that came, those in ``tensors`` among them.
    """

    parts: tuple[Part, ...]
    names: frozenset[str]

    def require_one(self, *names: str, what: str) -> None:
        """Raises BadRequest unless exactly one of these fields came."""
        given = [name for name in names if name in self.names]
        if len(given) != 1:
            told = f"{' and '.join(given)} are given" if given else "it is missing"
            raise BadRequest(
                f"{what}: {told}; send one of {', '.join(names)}", param=given[1] if given else names[0]
            )

    def require(self, name: str, what: str) -> None:
        """Raises BadRequest unless this field came."""
        if name not in self.names:
            raise BadRequest(f"{name!r} is missing: {what}", param=name, code="missing_required_parameter")


async def gather(fields: Seen, *, tensors: Sequence[str]) -> Gathered:
    """Read what came, beside the event loop.

    Args:
        tensors: Names of the fields that are, or may be, tensors.

    Raises:
        BadRequest: One cannot be read, or came twice.
    """
    return await asyncio.to_thread(_gather, fields, tuple(tensors))


def _gather(fields: Seen, known: tuple[str, ...]) -> Gathered:
    arrays: dict[str, Array] = {}
    parts: list[Part] = []
    if fields.video is not None:
        parts.append(Part("video", fields.video))
    for name in known:
        for sent in _sent(name, getattr(fields, name)):
            if isinstance(sent, Part):
                parts.append(sent)
            else:
                arrays[name] = sent
    images = {part.name for part in parts}
    for name, array in _together(fields.tensors, known):
        if name in arrays or name in images:
            raise BadRequest(f"{name} is in 'tensors', and a field too; give it once", param=name)
        arrays[name] = array
    names = frozenset({*arrays, *(part.name or part.kind for part in parts)})
    if arrays:
        told = {"goal_frame" if name == "goal" else name: _shaped(name, one) for name, one in arrays.items()}
        parts.append(Part("tensor", write_safetensors(told)))
    return Gathered(tuple(parts), names)


def _sent(name: str, value: Any) -> Iterator[Part | Array]:
    """What one field has: images, or one tensor."""
    match value:
        case None:
            return
        case bytes() if name in _PIXELS and not _is_tensor(value):
            yield Part("image", value, name)
        case bytes():
            yield _one_tensor(name, value)
        case list() if name == "frames" and not (len(value) == 1 and _is_tensor(value[0])):
            yield from (Part("image", each, name) for each in value)
        case list() if name == "frames":
            yield _one_tensor(name, value[0])
        case _:
            plain = msgspec.to_builtins(value) if isinstance(value, InlineTensor) else value
            yield _numbers(name, plain)


def _numbers(name: str, plain: Any) -> Array:
    with _told_as(name):
        return from_json(plain, name)


def _one_tensor(name: str, data: bytes) -> Array:
    with _told_as(name):
        read = read_tensors(data, name)
    if len(read) != 1:
        raise BadRequest(
            f"{name}: the file has {len(read)} tensors; send one alone, or the file as 'tensors'", param=name
        )
    return next(iter(read.values()))


def _together(data: bytes | None, known: Sequence[str]) -> Iterator[tuple[str, Array]]:
    if data is None:
        return
    with _told_as("tensors"):
        read = read_tensors(data)
    for name, array in read.items():
        if name not in known:
            what = f"there is no tensor {name!r} here" if name else "a .npy file has no names"
            raise BadRequest(f"tensors: {what}{did_you_mean(name, known)}", param="tensors")
        yield name, array


@contextmanager
def _told_as(field: str) -> Iterator[None]:
    """What is wrong with a tensor inside is told by the field."""
    try:
        yield
    except BadRequest as error:
        raise BadRequest(str(error), param=field, code=error.code) from None


def _shaped(name: str, array: Array) -> Array:
    is_alone = array.ndim == _ALONE.get(name)
    pixels = _PIXELS.get(name)
    if pixels:
        has_axes = is_alone or array.ndim == pixels.count(",") + 1
        if array.dtype != np.uint8 or not has_axes or array.shape[-1] != 3:
            raise BadRequest(
                f"{name}: it is {pixels} of uint8, not {array.dtype} of shape {list(array.shape)}", param=name
            )
    return array[None] if is_alone else array


def _is_tensor(data: bytes) -> bool:
    """By its first bytes: an ``.npy`` file, or the header of a ``.safetensors`` file."""
    return data[:6] == b"\x93NUMPY" or data[8:9] == b"{"
