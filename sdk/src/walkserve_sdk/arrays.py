"""Tensors as files and as JSON, in and out: what is wrong with one is told before any of it is copied.

A file is ``.npy`` (one tensor, https://numpy.org/neps/nep-0001-npy-format.html), never with pickled objects,
or ``.safetensors`` (several by name, https://github.com/huggingface/safetensors). numpy has no bfloat16: it
becomes float32, which holds it exactly. Needs numpy.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.lib import format as npy
from numpy.typing import NDArray

from walkserve_sdk.errors import BadRequest, did_you_mean, shown

Array = NDArray[Any]

MOST_BYTES = 2**30
"""Of all tensors of one file, unless a caller says otherwise."""
MOST_TENSORS = 1024
MOST_AXES = 16
MOST_HEADER_BYTES = 2**20

SAFE_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}
"""A ``.safetensors`` file's words -> numpy's."""
DTYPES = tuple(SAFE_DTYPES.values())
"""Those that a tensor may have on its way in or out."""
_SAFE_WORDS = {name: word for word, name in SAFE_DTYPES.items()}
_NPY_MAGIC = b"\x93NUMPY"
_CURE = "send a .safetensors file, or a .npy file without pickled objects"


# --- files in -----------------------------------------------------------------------------------------


def read_tensors(
    data: bytes, name: str = "", *, most_bytes: int = MOST_BYTES, most_tensors: int = MOST_TENSORS
) -> dict[str, Array]:
    """The tensors of a file, by name, as arrays that their reader may change.

    Args:
        data: What a part of kind ``"tensor"`` has.
        name: Of the part: what the one tensor of an ``.npy`` file is called.
        most_bytes: What all of them may have; bfloat16 counts as the float32 that it becomes.
        most_tensors: How many there may be.

    Raises:
        BadRequest: It is no such file, or a tensor in it cannot be read; ``param`` is "tensor".
    """
    if data[: len(_NPY_MAGIC)] == _NPY_MAGIC:
        return {name: _read_npy(data, name, most_bytes)}
    return _read_safetensors(data, name, most_bytes, most_tensors)


def _read_npy(data: bytes, name: str, most_bytes: int) -> Array:
    what = _what(name)
    file = io.BytesIO(data[: MOST_HEADER_BYTES + 64])
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise _wrong(what, f"it is an .npy file of version {version}; write it again with numpy.save")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
    except (ValueError, SyntaxError, TypeError, EOFError, RecursionError, MemoryError) as error:
        raise _wrong(what, f"its .npy header cannot be read ({_line(error)}); {_CURE}") from None
    if dtype.hasobject:
        raise _wrong(what, f"it is an .npy file of pickled Python objects, which are never read; {_CURE}")
    _check_dtype(what, dtype.name)
    size_bytes = _check_shape(what, shape, dtype.itemsize, most_bytes)
    numbers = memoryview(data)[file.tell() :]
    if len(numbers) != size_bytes:
        raise _wrong(
            what,
            f"{_shaped(dtype.name, shape)} has {size_bytes:,} bytes, and its file {len(numbers):,}; "
            "it was cut off, or has more than one array",
        )
    return _array(what, numbers, dtype, shape, "F" if is_fortran else "C")


class _Entry(Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def _read_safetensors(data: bytes, name: str, most_bytes: int, most_tensors: int) -> dict[str, Array]:
    what = _what(name)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= len(data) - 8:
        raise _wrong(
            what, f"these {len(data):,} bytes are neither of a .safetensors nor of a .npy file; {_CURE}"
        )
    if length > MOST_HEADER_BYTES:
        raise _wrong(what, f"its header has {length:,} bytes, and {MOST_HEADER_BYTES:,} are the most")
    try:
        header = msgspec.json.decode(data[8 : 8 + length], type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        entries = {key: msgspec.json.decode(raw, type=_Entry) for key, raw in header.items()}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _wrong(what, f"its .safetensors header cannot be read ({_line(error)}); {_CURE}") from None
    if len(entries) > most_tensors:
        raise _wrong(what, f"it has {len(entries):,} tensors, and {most_tensors:,} are the most")
    numbers = memoryview(data)[8 + length :]
    left, end = most_bytes, 0
    for key, entry in sorted(entries.items(), key=lambda each: each[1].data_offsets):
        left -= _check_entry(_what(key), entry, end, len(numbers), left)
        end = entry.data_offsets[1]
    if end != len(numbers):
        raise _wrong(what, f"its tensors have {end:,} bytes, and after its header are {len(numbers):,}")
    return {key: _entry_array(key, entry, numbers) for key, entry in entries.items()}


def _check_entry(what: str, entry: _Entry, begin: int, most: int, left: int) -> int:
    """How many bytes it takes once it is read."""
    if entry.dtype not in SAFE_DTYPES:
        raise _wrong(what, f"no dtype {shown(entry.dtype)} is read{did_you_mean(entry.dtype, SAFE_DTYPES)}")
    dtype = SAFE_DTYPES[entry.dtype]
    is_bfloat16 = dtype == "bfloat16"
    itemsize = 2 if is_bfloat16 else np.dtype(dtype).itemsize
    size_bytes = _check_shape(what, entry.shape, itemsize, left // 2 if is_bfloat16 else left)
    first, last = entry.data_offsets
    if first != begin or last > most:
        raise _wrong(
            what, f"it is said to lie at {first:,} to {last:,} of {most:,} bytes, and {begin:,} was next"
        )
    if last - first != size_bytes:
        shaped = _shaped(dtype, entry.shape)
        raise _wrong(what, f"{shaped} has {size_bytes:,} bytes, and {last - first:,} are there")
    return 2 * size_bytes if is_bfloat16 else size_bytes


def _entry_array(name: str, entry: _Entry, numbers: memoryview) -> Array:
    first, last = entry.data_offsets
    dtype = SAFE_DTYPES[entry.dtype]
    return _decoded(_what(name), numbers[first:last], dtype, entry.shape)


# --- files out ----------------------------------------------------------------------------------------


def write_npy(array: Array) -> bytes:
    """An array as an ``.npy`` file. Raises BadRequest for a dtype that no tensor may have."""
    array = np.asarray(array)
    _check_dtype("the tensor", array.dtype.name)
    file = io.BytesIO()
    npy.write_array(file, _little(array), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def write_safetensors(tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """Arrays by name as a ``.safetensors`` file.

    Args:
        metadata: Text beside them.

    Raises:
        BadRequest: A dtype that no tensor may have, or a name that the format keeps for itself.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    pieces: list[memoryview] = []  # of the arrays themselves: what is large is copied once, by the join
    end = 0
    for name, tensor in tensors.items():
        array = np.asarray(tensor)
        _check_dtype(_what(name), array.dtype.name)
        if name == "__metadata__":
            raise _wrong(_what(name), "a .safetensors file keeps this name for itself; choose another")
        pieces.append(_little(array).data)
        begin, end = end, end + pieces[-1].nbytes
        header[name] = {
            "dtype": _SAFE_WORDS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8
    return b"".join([len(text).to_bytes(8, "little"), text, *pieces])


# --- JSON ---------------------------------------------------------------------------------------------


def to_json(array: Array) -> dict[str, Any]:
    """An array as an object: ``dtype``, ``shape``, and its numbers little-endian in C order as base64."""
    array = np.asarray(array)
    _check_dtype("the tensor", array.dtype.name)
    data = base64.b64encode(_little(array).tobytes()).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}


def from_json(value: Any, name: str = "", *, most_bytes: int = MOST_BYTES) -> Array:
    """An array from what ``to_json`` makes, or from numbers in lists of lists.

    Numbers in lists may stand as ``data`` in the object too, whose ``dtype`` they then have; alone they are
    int64 where all are whole, bool where all are, and else float32.

    Raises:
        BadRequest: It is neither; the message names the tensor.
    """
    what = _what(name)
    if not isinstance(value, dict):
        return _from_lists(what, value, None)
    unknown = value.keys() - {"dtype", "shape", "data"}
    if unknown:
        field = min(unknown, key=str)
        raise _wrong(
            what, f"unknown field {shown(field)}{did_you_mean(str(field), ('dtype', 'shape', 'data'))}"
        )
    dtype, shape, data = value.get("dtype"), value.get("shape"), value.get("data")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        known = did_you_mean(dtype, DTYPES) if isinstance(dtype, str) else f"; known: {', '.join(DTYPES)}"
        raise _wrong(what, f"no dtype {shown(dtype)} is read{known}")
    if isinstance(data, str):
        return _from_base64(what, data, dtype, shape, most_bytes)
    array = _from_lists(what, data, "float32" if dtype == "bfloat16" else dtype)
    if shape is not None and list(array.shape) != shape:
        raise _wrong(
            what, f"its lists are of shape {list(array.shape)}, not {shown(shape)}; leave 'shape' out"
        )
    return array


def _from_base64(what: str, text: str, dtype: str, shape: Any, most_bytes: int) -> Array:
    if not isinstance(shape, list):
        raise _wrong(what, f"its shape is a list of whole numbers, not {shown(shape)}")
    size_bytes = _check_shape(what, shape, 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize, most_bytes)
    try:
        numbers = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _wrong(what, f"its data is no base64: {_line(error)}") from None
    if len(numbers) != size_bytes:
        raise _wrong(what, f"{_shaped(dtype, shape)} has {size_bytes:,} bytes, and its data {len(numbers):,}")
    return _decoded(what, memoryview(numbers), dtype, shape)


def _from_lists(what: str, value: Any, dtype: str | None) -> Array:
    try:
        array = np.asarray(value)
        if array.size == 0:
            array = array.astype(dtype or "float32")
        if array.dtype.kind not in "biuf":
            raise ValueError
    except (ValueError, OverflowError, TypeError):
        raise _wrong(
            what, f"it is no numbers in lists of lists of equal lengths: {shown(value, 60)}"
        ) from None
    if array.ndim > MOST_AXES:
        raise _wrong(what, f"it has {array.ndim} axes, and {MOST_AXES} are the most")
    wanted = np.dtype(dtype or {"b": "bool", "i": "int64", "u": "uint64", "f": "float32"}[array.dtype.kind])
    with np.errstate(over="ignore"):  # of a float that float16 has no room for, which is infinite
        made = array.astype(wanted)
    if wanted.kind in "biu" and not np.array_equal(made, array):
        raise _wrong(what, f"its numbers are not all {wanted.name}: {shown(value, 60)}")
    return made


# --- what holds for all of them -------------------------------------------------------------------------


def _wrong(what: str, message: str) -> BadRequest:
    return BadRequest(f"{what}: {message}", param="tensor")


def _what(name: str) -> str:
    return f"the tensor {shown(name, 60)}" if name else "the tensor"


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _shaped(dtype: str, shape: Any) -> str:
    return f"{dtype} of shape {list(shape)}"


def _check_dtype(what: str, dtype: str) -> None:
    if dtype not in DTYPES:
        raise _wrong(what, f"its dtype is {dtype}; convert it to one of {', '.join(DTYPES)}")


def _check_shape(what: str, shape: Any, itemsize: int, most_bytes: int) -> int:
    """How many bytes a tensor of this shape has."""
    if len(shape) > MOST_AXES:
        raise _wrong(what, f"it has {len(shape)} axes, and {MOST_AXES} are the most")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise _wrong(what, f"its shape is {shown(list(shape))}, and sizes are whole numbers from 0")
    if math.prod(max(size, 1) for size in shape) * itemsize > most_bytes:
        raise _wrong(
            what, f"its shape is {shown(list(shape))}, and {most_bytes:,} bytes are the most there may be"
        )
    return int(math.prod(shape)) * itemsize


def _decoded(what: str, numbers: memoryview, dtype: str, shape: Any) -> Array:
    """Little-endian numbers in C order as an array of its own."""
    if dtype == "bfloat16":  # the upper half of a float32
        upper = _array(what, numbers, np.dtype("<u2"), shape, "C")
        return (upper.astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return _array(what, numbers, np.dtype(dtype).newbyteorder("<"), shape, "C")


def _array(what: str, numbers: memoryview, dtype: np.dtype[Any], shape: Any, order: Any) -> Array:
    """A copy in this machine's byte order and C order."""
    if not len(numbers):
        return np.empty(shape, dtype.newbyteorder("="))
    if dtype.kind == "b" and np.frombuffer(numbers, np.uint8).max() > 1:
        raise _wrong(what, "its numbers are not all 0 or 1, as those of a bool are")
    there = np.frombuffer(numbers, dtype).reshape(shape, order=order)
    return np.array(there, dtype.newbyteorder("="), order="C")


def _little(array: Array) -> Array:
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")
