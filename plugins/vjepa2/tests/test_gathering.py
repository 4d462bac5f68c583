"""Fields of a body become parts of a request; what is wrong is told by the field it stands in."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from msgspec import convert

from walk_plugin_vjepa2.routes.fields import Scene
from walk_plugin_vjepa2.routes.gathering import Gathered, gather
from walk_plugin_vjepa2.routes.plans import TENSORS
from walkserve_sdk import BadRequest
from walkserve_sdk.arrays import read_tensors, to_json, write_npy, write_safetensors

FRAME = np.zeros((4, 6, 3), np.uint8)
POSE = np.arange(7, dtype=np.float32)


def gathered(**fields: Any) -> Gathered:
    return asyncio.run(gather(convert(fields, Scene), tensors=TENSORS))


def arrays(**fields: Any) -> dict[str, np.ndarray]:
    (part,) = gathered(**fields).parts
    assert part.kind == "tensor"
    return read_tensors(part.data)


@pytest.mark.parametrize(
    "states",
    [
        write_npy(POSE[None]),
        write_safetensors({"anything": POSE[None]}),
        to_json(POSE[None]),
        {"dtype": "float32", "data": POSE[None].tolist()},
        POSE[None].tolist(),
        POSE.tolist(),
    ],
)
def test_a_tensor_comes_as_a_file_as_json_or_as_lists(states):
    np.testing.assert_array_equal(arrays(states=states)["states"], POSE[None])


@pytest.mark.parametrize(
    "frames", [[write_npy(FRAME)], write_npy(FRAME[None]), to_json(FRAME), [write_safetensors({"f": FRAME})]]
)
def test_frames_may_be_an_array_and_one_needs_no_axis(frames):
    assert arrays(frames=frames)["frames"].shape == (1, 4, 6, 3)


def test_images_are_parts_named_by_their_fields():
    found = gathered(frames=[b"one", b"two"], goal=b"three", video=b"four")
    assert [(part.kind, part.name, part.data) for part in found.parts] == [
        ("video", "", b"four"),
        ("image", "frames", b"one"),
        ("image", "frames", b"two"),
        ("image", "goal", b"three"),
    ]
    assert found.names == {"video", "frames", "goal"}


def test_one_file_may_have_all_tensors():
    together = write_safetensors({"frames": FRAME, "states": POSE, "goal": FRAME})
    found = arrays(tensors=together, past_actions=[])
    assert {name: one.shape for name, one in found.items()} == {
        "frames": (1, 4, 6, 3),
        "states": (1, 7),
        "goal_frame": (4, 6, 3),
        "past_actions": (0,),
    }


@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        ({"states": [[1, 2], [3]]}, "states", "no numbers in lists of lists of equal lengths"),
        ({"states": b"\x93NUMPY"}, "states", "the tensor 'states': its .npy header cannot be read"),
        ({"states": b"nothing"}, "states", "neither of a .safetensors nor of a .npy file"),
        ({"states": {"dtype": "float31", "data": [1]}}, "states", "no dtype 'float31' is read; did you mean"),
        ({"states": to_json(POSE) | {"shape": [8]}}, "states", "has 32 bytes, and its data 28"),
        ({"states": write_safetensors({"a": POSE, "b": POSE})}, "states", "the file has 2 tensors"),
        ({"frames": to_json(FRAME / 255)}, "frames", r"of uint8, not float64 of shape \[4, 6, 3\]"),
        ({"frames": to_json(FRAME[..., :1])}, "frames", r"not uint8 of shape \[4, 6, 1\]"),
        ({"goal": to_json(FRAME[None])}, "goal", r"\[height, width, 3\] of uint8, not"),
        ({"tensors": write_npy(POSE)}, "tensors", "a .npy file has no names"),
        ({"tensors": write_safetensors({"stats": POSE})}, "tensors", "no tensor 'stats' here; did you mean"),
        ({"tensors": write_safetensors({"states": POSE}), "states": [1]}, "states", "give it once"),
        ({"tensors": write_safetensors({"goal": FRAME}), "goal": b"image"}, "goal", "give it once"),
    ],
)
def test_what_cannot_be_read_is_told_by_its_field(fields, param, why):
    with pytest.raises(BadRequest, match=why) as error:
        gathered(**fields)
    assert error.value.param == param


def test_exactly_one_of_several_ways_is_needed():
    for fields, param, why in (
        ({}, "frames", "what was seen: it is missing; send one of frames, video, latents"),
        ({"frames": [b"x"], "video": b"x"}, "video", "frames and video are given; send one of"),
    ):
        with pytest.raises(BadRequest, match=why) as error:
            gathered(**fields).require_one("frames", "video", "latents", what="what was seen")
        assert error.value.param == param
