"""Pictures as files: PNG, JPEG and WebP. Pillow is imported when the first is made."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PictureFormat:
    """One of them.

    Args:
        name: As a client asks for it, and Pillow calls it.
        suffixes: Of its files.
        is_lossy: Whether its files may be smaller for looking worse.
    """

    name: str
    media_type: str
    suffixes: tuple[str, ...]
    is_lossy: bool = True


FORMATS = MappingProxyType(
    {
        each.name: each
        for each in (
            PictureFormat("png", "image/png", (".png",), is_lossy=False),
            PictureFormat("jpeg", "image/jpeg", (".jpg", ".jpeg")),
            PictureFormat("webp", "image/webp", (".webp",)),
        )
    }
)
"""By name."""

QUALITY = 95
"""Of JPEG and WebP, where nobody says how good; 100 is the best."""


def format_of_suffix(suffix: str) -> PictureFormat | None:
    """The format of files that end so, in any case; None where there is none."""
    return next((each for each in FORMATS.values() if suffix.lower() in each.suffixes), None)


def encode_picture(pixels: NDArray[np.uint8], format: PictureFormat, *, quality: int = QUALITY) -> bytes:
    """A picture as a file.

    Args:
        pixels: uint8 of shape (height, width, 3).
        quality: 0 to 100, where the format is lossy.

    Raises:
        ValueError: It is no such picture, or larger than the format holds.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise ValueError(f"a picture is uint8 (height, width, 3), not {pixels.dtype} {pixels.shape}")
    from PIL import Image

    how = {"quality": quality} if format.is_lossy else {}
    written = BytesIO()
    try:
        Image.fromarray(np.ascontiguousarray(pixels)).save(written, format.name, **how)
    except (OSError, ValueError) as error:  # a side that is too long for it
        raise ValueError(f"{format.name} cannot hold it: {error}") from error
    return written.getvalue()
