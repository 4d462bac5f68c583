"""Small requests that pass through every component of a model, before it is ready."""

from __future__ import annotations

from typing import Any

import numpy as np

from walkserve_sdk import Part
from walkserve_sdk.arrays import write_safetensors

_SIDE = 32
"""Of a picture, in pixels: whatever the model takes, it is made to fit."""

SMALL_PLAN: dict[str, Any] = {
    "task": "plan",
    "seed": 0,
    "horizon": 1,
    "samples": 2,
    "topk": 2,
    "iterations": 1,
    "landscape_axes": ["x", "y"],
    "landscape_points": 2,
}
"""The task that passes through every component there is."""


def grey_clip(frames: int) -> Part:
    """Frames of a video."""
    return _tensors(frames=_grey(frames))


def still_scene() -> Part:
    """A robot at rest, which has come where it wants to be."""
    return _tensors(
        frames=_grey(1),
        states=np.zeros((1, 7), np.float32),
        goal_frame=_grey(1)[0],
    )


def _grey(frames: int) -> np.ndarray:
    return np.full((frames, _SIDE, _SIDE, 3), 128, np.uint8)


def _tensors(**tensors: np.ndarray) -> Part:
    return Part("tensor", write_safetensors(tensors))
