"""How large an image or a video may be; all of it is known before anything is decoded."""

from __future__ import annotations

from dataclasses import dataclass

FILE_BYTES = 64 * 1024 * 1024
"""Of one file: what a server takes of media in one request, unless it is told another number."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What one image may have.

    Args:
        pixels: Decoded they take three bytes each, and up to four more while they are converted. 64 Mi are
            more than the largest sensors of phones give, 8160 x 6144.
        side: Pixels of the longer side.
        size_bytes: Of the file.
    """

    pixels: int = 64 * 1024 * 1024
    side: int = 32_768
    size_bytes: int = FILE_BYTES


@dataclass(frozen=True, slots=True)
class VideoLimits:
    """What one video may have.

    Args:
        pixels: Of one frame, as it is stored; 8K has 33 million.
        duration_s: How long it is: in the worst case, whoever wants its last second decodes all before it.
        frames: How many it has.
        kept_pixels: Of all frames that are sampled together, after ``resize``; three bytes each.
        size_bytes: Of the file.
    """

    pixels: int = 7680 * 4320
    duration_s: float = 600.0
    frames: int = 65_536
    kept_pixels: int = 256 * 1024 * 1024
    size_bytes: int = FILE_BYTES


IMAGE_LIMITS = ImageLimits()
VIDEO_LIMITS = VideoLimits()
