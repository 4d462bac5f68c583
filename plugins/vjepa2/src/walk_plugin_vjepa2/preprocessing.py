"""From 8-bit pixels to what an encoder was trained on: two ways, which are not each other's.

    V-JEPA 2       transformers' processor: shorter side to 8/7 of the size, antialiased; the middle of it
    V-JEPA 2-AC    the authors' planner: the middle square, to the size, not antialiased

Both end in ``(x - 255 mean) / (255 std)``; a checkpoint's ``video_preprocessor_config.json`` says mean and
standard deviation, ImageNet's where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import torch
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import interpolate, pad

from walkserve_sdk import LoadError

FILE = "video_preprocessor_config.json"
_Three = Annotated[tuple[float, ...], Meta(min_length=3, max_length=3)]


class _Crop(msgspec.Struct):
    height: Annotated[int, Meta(ge=1)]


class _Config(msgspec.Struct):
    """What is read of ``video_preprocessor_config.json``; the rest follows from it, as in transformers."""

    image_mean: _Three = (0.485, 0.456, 0.406)
    image_std: _Three = (0.229, 0.224, 0.225)
    crop_size: int | _Crop | None = None


@dataclass(frozen=True)
class Look:
    """How pictures have to look.

    Args:
        size: Side of the square that the encoder takes.
        mean: Of each colour, of values from 0 to 1.
        std: Likewise.
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normed(self, frames: Tensor) -> Tensor:
        """(frames, 3, size, size) of 0 … 255 to float32."""
        mean, std = (torch.tensor(each).view(3, 1, 1) * 255 for each in (self.mean, self.std))
        return (frames.float() - mean) / std


def read_look(folder: Path, size: int) -> Look:
    """What a checkpoint's file says; ``size`` is what its encoder has patches for.

    Raises:
        LoadError: The file is unreadable, or crops to another size.
    """
    path = folder / FILE
    config = _Config()
    if path.is_file():
        try:
            config = msgspec.json.decode(path.read_bytes(), type=_Config)
        except msgspec.DecodeError as error:
            raise LoadError(f"{path} cannot be read: {error}") from error
    crop = config.crop_size.height if isinstance(config.crop_size, _Crop) else config.crop_size
    if crop is not None and crop != size:
        raise LoadError(f"{path} crops to {crop} pixels, but the encoder takes {size}; take the files of one")
    return Look(size, config.image_mean, config.image_std)


def fitted(frames: Tensor, size: int) -> Tensor:
    """(frames, 3, height, width) to (frames, 3, size, size), both uint8: what transformers keeps of pictures.

    Resized pixels are rounded to 8 bits, as there; torchvision, which does it there, need not be installed.
    """
    height, width = frames.shape[2:]
    side, shorter = int(size * 256 / 224), min(height, width)
    target = (int(side * height / shorter), int(side * width / shorter))
    if target != (height, width):
        resized = interpolate(frames.float(), target, mode="bilinear", antialias=True)
        frames = resized.round().clamp(0, 255).to(torch.uint8)
    return _middle(frames, size)


def as_transformers_does(frames: Tensor, look: Look) -> Tensor:
    """``VJEPA2VideoProcessor``: (frames, 3, height, width) uint8 to (frames, 3, size, size) float32."""
    return look.normed(fitted(frames, look.size))


def squared(frames: Tensor) -> Tensor:
    """The middle square: (frames, 3, height, width) to (frames, 3, side, side)."""
    return _middle(frames, min(frames.shape[2:]))


def as_the_authors_planner_does(frames: Tensor, look: Look) -> Tensor:
    """The transform of the authors' world model: shapes as ``as_transformers_does``. Nothing is rounded."""
    square = squared(frames).float()
    if square.shape[3] != look.size:
        square = interpolate(square, (look.size, look.size), mode="bilinear", align_corners=False)
    return look.normed(square)


def _middle(frames: Tensor, size: int) -> Tensor:
    """The square in the middle; where a side is shorter than it, with black around."""
    missing = [max(0, size - side) for side in frames.shape[2:]]
    if any(missing):
        top, left = (each // 2 for each in missing)
        frames = pad(frames, (left, missing[1] - left, top, missing[0] - top))
    top, left = ((side - size) // 2 for side in frames.shape[2:])
    return frames[:, :, top : top + size, left : left + size]
