"""What the bodies of all routes here have: what was seen, as frames, as a video, or as arrays."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class InlineTensor(Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor in JSON."""

    dtype: Annotated[str, Meta(description='As numpy calls it: "float32", "uint8", ...; also "bfloat16".')]
    data: Annotated[
        str | list[Any],
        Meta(description="Its numbers little-endian in C order as base64; or numbers in lists of lists."),
    ]
    shape: Annotated[list[int] | None, Meta(description="Needed beside base64.")] = None


SentTensor = bytes | InlineTensor | list[Any]
"""A ``.npy`` or ``.safetensors`` file, or a tensor in JSON, or numbers in lists of lists alone."""

_HOW = "a .npy file, a .safetensors file of one tensor, a tensor in JSON, or numbers in lists"
EXAMPLE_FRAME = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFUlEQVR42mNsaGhgwAaYGHCAwSkBADAXAZDU"
    "exXGAAAAAElFTkSuQmCC"
)
Wanted = Literal["base64", "lists"]


class Seen(Struct, frozen=True, kw_only=True):
    """What was seen, in one of several ways, and how tensors are to be written in JSON."""

    frames: Annotated[
        bytes | list[bytes] | InlineTensor | None,
        Meta(
            description="Images, one each; or an array [frames, height, width, 3] of uint8, as a .npy or "
            ".safetensors file, or in JSON."
        ),
    ] = None
    video: Annotated[
        bytes | None,
        Meta(
            description="MP4, WebM, Matroska, AVI or GIF; num_frames, sampling, fps, step, start_s and end_s "
            "say which frames of it are taken."
        ),
    ] = None
    tensors: Annotated[
        bytes | None,
        Meta(description="A .safetensors file with any of the fields that are tensors, under their names."),
    ] = None
    encoding_format: Annotated[
        Wanted,
        Meta(description="How tensors in JSON are written: base64, or numbers in lists."),
    ] = "base64"


class Scene(Seen, frozen=True, kw_only=True):
    """What a robot has seen and done, and where it is to arrive."""

    latents: Annotated[
        SentTensor | None,
        Meta(description=f"In place of frames: [frames, tokens, width], encoded already; {_HOW}."),
    ] = None
    states: Annotated[
        SentTensor | None,
        Meta(
            description="The robot's pose at each frame, [frames, 7]: x, y, z, three Euler angles, how far "
            f"the gripper is closed; of one frame [7] will do; {_HOW}."
        ),
    ] = None
    past_actions: Annotated[
        SentTensor | None,
        Meta(description=f"What was done between the frames, [frames - 1, 7]; {_HOW}."),
    ] = None
    goal: Annotated[
        bytes | InlineTensor | None,
        Meta(description="The frame to arrive at: an image, or an array [height, width, 3] of uint8."),
    ] = None
    goal_latents: Annotated[
        SentTensor | None,
        Meta(description=f"In place of goal: [tokens, width], encoded already; {_HOW}."),
    ] = None
