"""What a Python caller may give as a part, and what becomes of it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from walkserve_sdk import BadRequest, Part
from walkserve_sdk.arrays import read_tensors
from walkserve_sdk.parts import take_parts


def only(**fields: Any) -> Part:
    (part,) = take_parts(fields)
    return part


def test_kinds_are_taken_in_one_order_and_what_is_left_are_options() -> None:
    fields = {"steps": 3, "image": b"\x89PNG", "text": "hi", "audio": None}
    assert take_parts(fields) == (Part("text", "hi"), Part("image", b"\x89PNG"))
    assert fields == {"steps": 3}


def test_a_list_is_several_and_a_mapping_names_them(tmp_path: Path) -> None:
    file = tmp_path / "a.mp4"
    file.write_bytes(b"film")
    assert take_parts({"text": ["a", "b"], "video": {"past": file, "goal": bytearray(b"x")}}) == (
        Part("text", "a"),
        Part("text", "b"),
        Part("video", b"film", name="past"),
        Part("video", b"x", name="goal"),
    )


def test_an_array_is_a_tensor_and_a_mapping_of_them_is_one_file() -> None:
    states = np.arange(14, dtype=np.float64).reshape(2, 7)
    assert read_tensors(only(tensor=states).data)[""].tolist() == states.tolist()
    part = only(tensor={"states": states, "horizon": 3, "actions": [[0.5], [1.0]]})
    assert part.name == ""
    read = read_tensors(part.data)  # type: ignore[arg-type]
    assert {name: (one.dtype.name, one.tolist()) for name, one in read.items()} == {
        "states": ("float64", states.tolist()),
        "horizon": ("int64", 3),
        "actions": ("float64", [[0.5], [1.0]]),
    }
    assert len(take_parts({"tensor": [states, states]})) == 2


def test_tensors_of_torch_are_taken_too_and_bfloat16_as_float32() -> None:
    torch = pytest.importorskip("torch")
    grown = torch.ones(2, requires_grad=True)
    half = torch.tensor([1.5], dtype=torch.bfloat16)
    read = read_tensors(only(tensor={"grown": grown, "half": half}).data)  # type: ignore[arg-type]
    assert (read["grown"].tolist(), read["half"].tolist(), read["half"].dtype) == ([1, 1], [1.5], np.float32)


@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 3, 4), (2, 3)])
def test_a_picture_goes_without_loss(shape: tuple[int, ...]) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    for given in (pixels, image.fromarray(pixels)):
        data = only(image=given).data
        assert isinstance(data, bytes)
        with image.open(io.BytesIO(data)) as opened:
            assert opened.format == "PNG" and np.array_equal(np.asarray(opened), pixels)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"video": 5}, "video: give bytes or a pathlib.Path, not a int"),
        ({"audio": np.zeros(3)}, "audio: give bytes or a pathlib.Path, not a ndarray"),
        ({"image": Path("/nowhere/a.png")}, "image: /nowhere/a.png cannot be read: No such file"),
        ({"image": np.zeros((2, 2, 3))}, "image: an array of one is uint8 of shape"),
        ({"image": np.zeros((0, 2, 3), np.uint8)}, "image: it has no pixels"),
        ({"tensor": {"x": b"bytes"}}, "tensor 'x': give an array, not b'bytes'"),
        ({"tensor": {"x": [[1], [1, 2]]}}, "tensor 'x': "),
        ({"tensor": {"x": 1j}}, "the tensor 'x': its dtype is complex128"),
    ],
)
def test_what_no_part_can_be_made_of_is_refused(fields: dict[str, Any], told: str) -> None:
    if "image" in fields:
        pytest.importorskip("PIL.Image")
    with pytest.raises(BadRequest) as refused:
        take_parts(dict(fields))
    assert told in str(refused.value)
    assert refused.value.param == next(iter(fields))


def test_parts_come_in_their_order_or_by_keyword_not_both() -> None:
    ordered = [Part("image", b"a"), Part("text", "b", name="why")]
    assert take_parts({"steps": 1}, ordered) == tuple(ordered)
    with pytest.raises(TypeError, match="give text among the parts"):
        take_parts({"text": "hi"}, ordered)
    with pytest.raises(TypeError, match=r"parts in their order are Part\(kind, data\), not 'hi'"):
        take_parts({}, ["hi"])  # type: ignore[list-item]
