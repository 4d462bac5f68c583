"""Outputs, what a client may ask for, and the kinds of value that enter and leave a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["text", "image", "audio", "video", "tensor"]


@dataclass(frozen=True)
class Text:
    """Unicode text; streamed in whole characters."""

    kind: Direction = "text"


@dataclass(frozen=True)
class Image:
    """A picture, uint8 of shape (height, width, 3)."""

    kind: Direction = "image"


@dataclass(frozen=True)
class Audio:
    """Sound, float32 in [-1, 1] of shape (samples,), or (samples, channels) where there are several.

    Args:
        rate: Samples per second.
        channels: 1 for mono.
    """

    rate: int
    channels: int = 1
    kind: Direction = "audio"


@dataclass(frozen=True)
class Video:
    """Pictures in time, uint8 of shape (frames, height, width, 3).

    Args:
        fps: Frames per second.
    """

    fps: float
    kind: Direction = "video"


@dataclass(frozen=True)
class Tensor:
    """Numbers with a meaning of the family's own: latents, poses, energies.

    Args:
        dtype: As numpy spells it.
    """

    dtype: str = "float32"
    kind: Direction = "tensor"


Kind = Text | Image | Audio | Video | Tensor


class Output:
    """Something a client may ask for by name: ``speech = Output(Audio(rate=24_000))``."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __repr__(self) -> str:
        return f"Output({self.name or self.kind!r})"
