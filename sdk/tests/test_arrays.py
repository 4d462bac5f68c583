"""Tensors as files and as JSON: what goes in comes out, and what is wrong with one is told."""

import base64
import contextlib
import io
import json
import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from walkserve_sdk import BadRequest
from walkserve_sdk.arrays import (
    DTYPES,
    from_json,
    read_tensors,
    to_json,
    write_npy,
    write_safetensors,
)

NAMES = [name for name in DTYPES if name != "bfloat16"]
ARRAYS = st.sampled_from(NAMES).flatmap(
    lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


def check_same(got: np.ndarray, wanted: np.ndarray) -> None:
    assert got.dtype == wanted.dtype and got.dtype.isnative
    assert got.shape == wanted.shape
    assert got.tobytes() == wanted.tobytes()  # also of what is not a number
    assert got.flags.c_contiguous and got.flags.writeable


@settings(max_examples=60)
@given(ARRAYS, st.booleans())
def test_what_is_written_is_read_again(array: np.ndarray, turned: bool) -> None:
    array = array.T if turned else array
    check_same(read_tensors(write_npy(array), "x")["x"], np.ascontiguousarray(array).reshape(array.shape))
    check_same(from_json(json.loads(json.dumps(to_json(array)))), array.copy(order="C"))
    both = read_tensors(write_safetensors({"a": array, "b": array[..., None]}))
    assert list(both) == ["a", "b"]
    check_same(both["a"], array.copy(order="C"))
    check_same(both["b"], array[..., None].copy(order="C"))


@pytest.mark.parametrize("dtype", [">f4", ">i8", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpys_own_files_are_read_whatever_their_order(dtype: str, order: Any) -> None:
    array = np.asarray(np.arange(6).reshape(2, 3), dtype, order=order)
    file = io.BytesIO()
    np.save(file, array)
    got = read_tensors(file.getvalue())[""]
    check_same(got, array.astype(array.dtype.newbyteorder("=")).copy(order="C"))


def test_another_implementation_reads_and_writes_the_same_safetensors() -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {"latents": np.arange(6, dtype=np.float16).reshape(2, 3), "ids": np.array([1, 2**40])}
    there = safetensors.load(write_safetensors(tensors, {"note": "hi"}))
    assert {name: one.numpy().tolist() for name, one in there.items()} == {
        name: one.tolist() for name, one in tensors.items()
    }
    half = torch.tensor([1.0, -2.5, float("inf")], dtype=torch.bfloat16)
    got = read_tensors(safetensors.save({"half": half, "yes": torch.tensor([True, False])}))
    assert got["half"].dtype == np.float32 and got["half"].tolist() == [1.0, -2.5, float("inf")]
    assert got["yes"].tolist() == [True, False]


def test_numbers_in_lists_are_a_tensor() -> None:
    for value, dtype in (
        ([[1, 2], [3, 4]], "int64"),
        ([1, 2.5], "float32"),
        ([True], "bool"),
        (7, "int64"),
        ([], "float32"),
        ([2**63], "uint64"),
    ):
        got = from_json(value)
        assert (got.dtype.name, got.tolist()) == (dtype, value)
    got = from_json({"dtype": "float16", "shape": [2], "data": [1, 2]})
    assert (got.dtype, got.tolist()) == (np.float16, [1.0, 2.0])
    assert from_json({"dtype": "bfloat16", "shape": [1], "data": base64.b64encode(b"\x20\xc0").decode()}) == [
        -2.5
    ]


def npy_of(head: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(head)) + head.encode() + data


def safetensors_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str = "F32", shape: Any = (1,), begin: int = 0, end: int = 4) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    return file.getvalue()


HEAD = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"
BAD_FILES = {
    "nothing": (b"", "neither of a .safetensors nor of a .npy"),
    "text": (b"hello world, this is no file", "neither of a .safetensors nor of a .npy"),
    "a pickle": (pickle.dumps([1, 2]), "neither of a .safetensors nor of a .npy"),
    "pickled objects": (pickled(), "pickled Python objects, which are never read"),
    "a header that is cut off": (write_npy(np.zeros(3))[:20], "its .npy header cannot be read"),
    "a header that is no literal": (npy_of("__import__('os')"), "its .npy header cannot be read"),
    "a later version": (npy_of(HEAD % "(1,)", version=b"\3\0"), "version (3, 0); write it again"),
    "complex numbers": (npy_of(HEAD.replace("<f4", "<c8") % "(1,)", bytes(8)), "its dtype is complex64"),
    "text in an npy": (npy_of(HEAD.replace("<f4", "<U3") % "(1,)", bytes(12)), "its dtype is str96"),
    "numbers that are cut off": (
        write_npy(np.zeros(3))[:-1],
        "has 24 bytes, and its file 23; it was cut off",
    ),
    "numbers left over": (write_npy(np.zeros(3)) + b"x", "has 24 bytes, and its file 25"),
    "a negative size": (npy_of(HEAD % "(-1,)"), "sizes are whole numbers from 0"),
    "too large": (npy_of(HEAD % "(2**40,)".replace("2**40", str(2**40))), "bytes are the most there may be"),
    "too large beside a zero": (npy_of(HEAD % f"(0, {2**62}, {2**62})"), "bytes are the most there may be"),
    "too many axes": (npy_of(HEAD % str((1,) * 17), bytes(4)), "it has 17 axes, and 16 are the most"),
    "a bool of 2": (npy_of(HEAD.replace("<f4", "|b1") % "(1,)", b"\2"), "not all 0 or 1"),
    "a header of a gigabyte": (
        struct.pack("<Q", 2**30) + bytes(9),
        "neither of a .safetensors nor of a .npy",
    ),
    "a long header": (safetensors_of(b" " * (2**20 + 1)), "its header has 1,048,577 bytes"),
    "no JSON": (safetensors_of(b"{{"), "its .safetensors header cannot be read"),
    "deep JSON": (safetensors_of(b"[" * 100_000), "its .safetensors header cannot be read"),
    "no entry": (safetensors_of({"x": 3}), "its .safetensors header cannot be read"),
    "an unknown dtype": (
        safetensors_of({"x": entry("F8_E4M3")}, bytes(4)),
        "the tensor 'x': no dtype 'F8_E4M3'",
    ),
    "a hole": (
        safetensors_of({"x": entry(begin=4, end=8)}, bytes(8)),
        "the tensor 'x': it is said to lie at 4 to 8",
    ),
    "an overlap": (
        safetensors_of({"x": entry(), "y": entry(begin=2, end=6)}, bytes(6)),
        "the tensor 'y': it is said to lie at 2 to 6",
    ),
    "beyond the end": (
        safetensors_of({"x": entry(shape=(2,), end=8)}, bytes(4)),
        "it is said to lie at 0 to 8 of 4",
    ),
    "backwards": (safetensors_of({"x": entry(end=-4)}, bytes(4)), "and -4 are there"),
    "more than it says": (
        safetensors_of({"x": entry()}, bytes(5)),
        "its tensors have 4 bytes, and after its header",
    ),
    "another size": (
        safetensors_of({"x": entry(shape=(2,))}, bytes(4)),
        "float32 of shape [2] has 8 bytes, and 4",
    ),
    "a size that is a truth": (
        safetensors_of(b'{"x":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}', bytes(4)),
        "its .safetensors header cannot be read",
    ),
    "a size below zero": (
        safetensors_of({"x": entry(shape=(-1, -1))}, bytes(4)),
        "sizes are whole numbers from 0",
    ),
    "a large one": (
        safetensors_of({"x": entry(shape=(2**60,))}, bytes(4)),
        "bytes are the most there may be",
    ),
    "too many": (
        safetensors_of({str(n): entry(shape=(0,), begin=0, end=0) for n in range(1025)}),
        "it has 1,025 tensors, and 1,024 are the most",
    ),
}


@pytest.mark.parametrize(("data", "told"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_cannot_be_read_is_refused_with_what_is_wrong_with_it(data: bytes, told: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_tensors(data, "states" if data[:1] == b"\x93" else "")
    assert told in str(refused.value)
    assert str(refused.value).startswith("the tensor")
    assert ("'states'" in str(refused.value)) == (data[:1] == b"\x93")
    assert refused.value.param == "tensor"


def test_the_limit_is_for_all_of_a_file_and_bfloat16_counts_as_what_it_becomes() -> None:
    two = write_safetensors({"a": np.zeros(4, np.float32), "b": np.zeros(4, np.float32)})
    assert len(read_tensors(two, most_bytes=32)) == 2
    with pytest.raises(BadRequest, match="the tensor 'b': .* 15 bytes are the most"):
        read_tensors(two, most_bytes=31)
    half = safetensors_of({"h": entry("BF16", shape=(4,), end=8)}, bytes(8))
    assert read_tensors(half, most_bytes=16)["h"].nbytes == 16
    with pytest.raises(BadRequest, match="the tensor 'h'"):
        read_tensors(half, most_bytes=15)


BAD_JSON = {
    "text": ("hi", "no numbers in lists of lists"),
    "nothing": (None, "no numbers in lists of lists"),
    "ragged": ([[1], [1, 2]], "no numbers in lists of lists"),
    "a null among them": ([1, None], "no numbers in lists of lists"),
    "a field too much": ({"dtyp": "float32"}, "unknown field 'dtyp'; did you mean 'dtype'?"),
    "no dtype": ({"shape": [1], "data": ""}, "no dtype None is read; known: bool"),
    "another dtype": (
        {"dtype": "float33", "data": [1]},
        "no dtype 'float33' is read; did you mean 'float32'?",
    ),
    "no shape": ({"dtype": "float32", "data": "AAAAAA=="}, "its shape is a list of whole numbers, not None"),
    "no base64": ({"dtype": "uint8", "shape": [1], "data": "%"}, "its data is no base64"),
    "too few": (
        {"dtype": "float32", "shape": [2], "data": "AAAAAA=="},
        "of shape [2] has 8 bytes, and its data 4",
    ),
    "another shape": ({"dtype": "uint8", "shape": [2], "data": [1]}, "its lists are of shape [1], not [2]"),
    "too much for it": ({"dtype": "uint8", "data": [256]}, "its numbers are not all uint8"),
    "a fraction": ({"dtype": "int64", "data": [0.5]}, "its numbers are not all int64"),
    "large": ({"dtype": "uint8", "shape": [2**40], "data": ""}, "bytes are the most there may be"),
    "a half axis": ({"dtype": "uint8", "shape": [0.5], "data": ""}, "sizes are whole numbers from 0"),
}


@pytest.mark.parametrize(("value", "told"), BAD_JSON.values(), ids=BAD_JSON)
def test_json_that_is_no_tensor_is_refused_with_what_is_wrong_with_it(value: Any, told: str) -> None:
    with pytest.raises(BadRequest) as refused:
        from_json(value, "goal")
    assert str(refused.value).startswith("the tensor 'goal': ")
    assert told in str(refused.value)


@settings(max_examples=60)
@given(
    st.binary(max_size=60), st.sampled_from([b"", b"\x93NUMPY\1\0", b"\x93NUMPY\2\0", struct.pack("<Q", 9)])
)
def test_no_bytes_do_anything_but_be_read_or_refused(data: bytes, head: bytes) -> None:
    with contextlib.suppress(BadRequest):
        read_tensors(head + data)


def test_what_no_tensor_may_be_is_not_written() -> None:
    with pytest.raises(
        BadRequest, match="the tensor 'x': its dtype is complex128; convert it to one of bool"
    ):
        write_safetensors({"x": np.zeros(1, complex)})
    with pytest.raises(BadRequest, match="keeps this name for itself"):
        write_safetensors({"__metadata__": np.zeros(1)})
    for write in (write_npy, to_json):
        with pytest.raises(BadRequest, match="its dtype is object"):
            write(np.array([{}], object))
