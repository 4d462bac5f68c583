"""Outputs, what a client may ask for, and the kinds of value that enter and leave a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walkserve_sdk.errors import DeclarationError

Direction = Literal["text", "image", "audio", "video", "tensor", "record"]


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

    A tensor that is given keeps its own dtype; bfloat16, which numpy does not have, becomes float32.

    Args:
        dtype: What plain numbers and lists of them become, as numpy spells it.
    """

    dtype: str = "float32"
    kind: Direction = "tensor"


@dataclass(frozen=True)
class Record:
    """Values by name: numbers, text, tensors, and flat lists of them. A component gives a ``dict``."""

    kind: Direction = "record"


Kind = Text | Image | Audio | Video | Tensor | Record


class Output:
    """Something a client may ask for by name: ``speech = Output(Audio(rate=24_000))``.

    Args:
        many: Whether one request may give several images, videos, tensors or records: a ``Result`` then has
            the list of them, however many have come, and without it the only one. Pieces of text and of
            audio are joined, and have no need of it.
    """

    def __init__(self, kind: Kind, *, many: bool = False) -> None:
        if many and isinstance(kind, Text | Audio):
            raise DeclarationError(
                f"Output({kind!r}, many=True): pieces of {kind.kind} are one whole; leave many out"
            )
        self.kind = kind
        self.many = many
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __repr__(self) -> str:
        return f"Output({self.name or self.kind!r})"
