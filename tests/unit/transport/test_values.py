"""Reading tensors out of messages without torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from walkserve.messages import Array, TensorRef
from walkserve.transport.base import TensorGone
from walkserve.transport.shm import Arena, ArenaReader
from walkserve.transport.values import as_numpy


@pytest.mark.parametrize(
    "wanted",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.int64),
        np.array([True, False]),
        np.float16(0.5).reshape(()),
        np.zeros((0, 4), np.float32),
    ],
    ids=lambda a: f"{a.dtype}-{a.shape}",
)
def test_an_array_is_read_from_the_message_and_from_shared_memory(tmp_path: Path, wanted: np.ndarray) -> None:
    data, dtype, shape = wanted.tobytes(), wanted.dtype.name, wanted.shape
    arena, reader = Arena(tmp_path, "a", 4096), ArenaReader(tmp_path)
    arena.put(b"before")
    slot = arena.put(data)
    reference = TensorRef("a", slot.key, slot.segment, slot.offset, slot.size, dtype, shape)
    for got in as_numpy(Array(dtype, shape, data)), as_numpy(reference, reader):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        assert np.array_equal(got, wanted)
        assert got.flags.writeable and got.flags.owndata
    reader.close()
    arena.close()


def test_bfloat16_comes_as_float32() -> None:
    # 1.0, -2.5, infinity; a bfloat16 is the upper half of a float32
    data = np.array([0x3F80, 0xC020, 0x7F80], np.uint16).tobytes()
    got = as_numpy(Array("bfloat16", (3, 1), data))
    assert got.dtype == np.float32
    assert got.tolist() == [[1.0], [-2.5], [float("inf")]]


def test_what_was_read_outlives_the_memory_it_came_from(tmp_path: Path) -> None:
    arena, reader = Arena(tmp_path, "a", 4096), ArenaReader(tmp_path)
    slot = arena.put(b"\1\2\3")
    got = as_numpy(TensorRef("a", slot.key, slot.segment, slot.offset, 3, "uint8", (3,)), reader)
    arena.free(slot.key)
    arena.put(b"\4\5\6")
    arena.close()
    reader.close()
    assert got.tolist() == [1, 2, 3]


def test_a_reference_needs_a_reader_and_an_owner_that_lives(tmp_path: Path) -> None:
    reference = TensorRef("gone", 1, "gone.0.arena", 0, 3, "uint8", (3,))
    with pytest.raises(ValueError, match="'gone'"):
        as_numpy(reference)
    with pytest.raises(TensorGone):
        as_numpy(reference, ArenaReader(tmp_path))


def test_bytes_that_do_not_fill_the_shape_and_unknown_dtypes_are_errors() -> None:
    with pytest.raises(ValueError):
        as_numpy(Array("float32", (2,), b"\0\0\0\0"))
    with pytest.raises(ValueError, match="float8_e4m3fn"):
        as_numpy(Array("float8_e4m3fn", (2,), b"\0\0"))


@pytest.mark.parametrize("module", ["values", "shm", "sockets", "local", "rundir", "base"])
def test_torch_is_not_needed(module: str) -> None:
    program = f"import sys, walkserve.transport.{module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
