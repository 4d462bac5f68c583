"""Images and videos that a client sends, checked by their headers before its request goes on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from walkserve.http.settings import HttpSettings
from walkserve_sdk import Part
from walkserve_sdk.media.limits import ImageLimits, VideoLimits


def _among_inputs(number: int, part: Part) -> str:
    return f"inputs[{number}]"


def by_name(number: int, part: Part) -> str:
    """Where parts come in fields of their own."""
    return part.name or part.kind


async def check_media(
    parts: Sequence[Part], settings: HttpSettings, place: Callable[[int, Part], str] = _among_inputs
) -> None:
    """Refuse what no component would take; nothing is decoded, and the event loop does not wait.

    Args:
        place: What the client calls a part, of which there are so many before it.

    Raises:
        MediaTooLarge: An image or a video is beyond a limit.
        BadRequest: It is none, broken so early, or cut off; ``param`` is its place.
    """
    for number, part in enumerate(parts):
        check = _CHECKS.get(part.kind)
        if check is not None and isinstance(part.data, bytes):
            await asyncio.to_thread(check, part.data, settings, place(number, part))


def _check_image(data: bytes, settings: HttpSettings, place: str) -> None:
    from walkserve_sdk.media.images import image_size

    image_size(data, ImageLimits(pixels=settings.image_pixels, size_bytes=settings.media_bytes), place=place)


def _check_video(data: bytes, settings: HttpSettings, place: str) -> None:
    from walkserve_sdk.media.video import video_info

    limits = VideoLimits(
        pixels=settings.frame_pixels, duration_s=settings.video_s, size_bytes=settings.media_bytes
    )
    video_info(data, limits, place=place)


_CHECKS: dict[str, Callable[[bytes, HttpSettings, str], None]] = {
    "image": _check_image,
    "video": _check_video,
}
