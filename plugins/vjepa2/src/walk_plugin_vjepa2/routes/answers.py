"""Tensors on their way out: in JSON, each with its dtype and shape, or as files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from walk_plugin_vjepa2.routes.fields import Wanted
from walkserve_sdk.arrays import write_npy, write_safetensors
from walkserve_sdk.errors import BadRequest
from walkserve_sdk.serving import Reply

Array = NDArray[Any]

SAFETENSORS = "application/x-safetensors"
NPY = "application/x-npy"
PNG = "image/png"


class Numbers(Struct, frozen=True):
    """A tensor of an answer."""

    dtype: str
    shape: tuple[int, ...]
    data: Annotated[
        bytes | list[Any],
        Meta(description="Its numbers little-endian in C order as base64; or in lists of lists."),
    ]


def numbers(array: Any, wanted: Wanted) -> Numbers:
    """An array as an answer has it."""
    array = np.asarray(array)
    little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    return Numbers(array.dtype.name, array.shape, little.tolist() if wanted == "lists" else little.tobytes())


def maybe(array: Any, wanted: Wanted) -> Numbers | None:
    """The same, of what may not be there."""
    return None if array is None else numbers(array, wanted)


def check_outputs(media_type: str, outputs: Sequence[str]) -> None:
    """Raises BadRequest where they do not go into one file of this type."""
    if media_type == NPY and len(set(outputs)) != 1:
        raise BadRequest(
            f"a .npy file holds one tensor, and there would be {len(outputs)}: {', '.join(outputs)}; ask for "
            f"one in 'outputs', or accept {SAFETENSORS}",
            param="outputs",
        )


async def as_file(
    tensors: Mapping[str, Any], media_type: str, texts: Mapping[str, str] | None = None
) -> Reply:
    """Tensors as a file.

    Args:
        tensors: Of an ``.npy`` file, one.
        texts: What a ``.safetensors`` file has beside them.
    """
    there = {name: np.asarray(tensor) for name, tensor in tensors.items() if tensor is not None}
    if media_type == SAFETENSORS:
        return Reply(await asyncio.to_thread(write_safetensors, there, texts), media_type)
    (one,) = there.values()
    return Reply(await asyncio.to_thread(write_npy, one), media_type)


async def png(picture: Array) -> bytes:
    """A picture as a file."""
    return await asyncio.to_thread(_png, picture)


def _png(picture: Array) -> bytes:
    from PIL import Image

    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()
