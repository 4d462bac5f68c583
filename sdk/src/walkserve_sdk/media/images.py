"""Images: PNG, JPEG, WebP and GIF, told apart by their first bytes, as upright RGB on white."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from walkserve_sdk.errors import BadRequest, MediaTooLarge, WalkserveError
from walkserve_sdk.media.containers import gif_screen, palette_bytes
from walkserve_sdk.media.limits import IMAGE_LIMITS, ImageLimits

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

FORMATS = ("PNG", "JPEG", "WebP", "GIF")

Pixels = NDArray[np.uint8]


def image_size(data: bytes, limits: ImageLimits = IMAGE_LIMITS, *, place: str = "image") -> tuple[int, int]:
    """``(width, height)`` of an image as it is seen, from its header; nothing is decoded.

    Args:
        place: What it is called in messages.

    Raises:
        MediaTooLarge: Beyond a limit.
        BadRequest: It is none of ``FORMATS``, or broken so early.
    """
    with _opened(data, limits, place) as image:
        width, height = image.size
        return (height, width) if _orientation(image) >= 5 else (width, height)


def read_image(data: bytes, limits: ImageLimits = IMAGE_LIMITS, *, place: str = "image") -> Pixels:
    """An image as uint8 ``(height, width, 3)``, RGB.

    It is turned as its EXIF data say, where they stand before the pixels. What is transparent lets white
    through; 16 bits are scaled to 8; of a GIF it is the first frame. Colour profiles are not applied, as the
    models' own loaders do not.

    Args:
        place: What it is called in messages.

    Raises:
        MediaTooLarge: Beyond a limit; then nothing has been decoded.
        BadRequest: It is none of ``FORMATS``, or broken.
    """
    with _opened(data, limits, place) as image:
        return _upright(_rgb(image), _orientation(image))


# --- opening ------------------------------------------------------------------------------------------


@contextmanager
def _opened(data: bytes, limits: ImageLimits, place: str) -> Iterator[ImageFile]:
    """The image, its header read and within the limits; whatever goes wrong with it is its sender's fault."""
    if len(data) > limits.size_bytes:
        raise MediaTooLarge(
            f"{place}: the file has {len(data):,} bytes, and {limits.size_bytes:,} are the most it may have",
            param=place,
        )
    kind = format_of(data)
    if kind is None:
        what = "nothing" if not data else "none of them"
        raise BadRequest(f"{place}: an image is {', '.join(FORMATS)}; this is {what}", param=place)
    try:
        if kind in _SIZES:
            _check(_SIZES[kind](data), limits, place)
        with _plugin(kind)(BytesIO(data)) as image:
            _check(image.size, limits, place)
            yield image
    except WalkserveError:
        raise
    except Exception as error:  # Pillow raises eight kinds and more for broken files
        raise BadRequest(
            f"{place}: the {kind} file is broken or cut off ({type(error).__name__}); send it anew, whole",
            param=place,
        ) from error


def format_of(data: bytes) -> str | None:
    """Which of ``FORMATS`` the bytes begin like."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WebP"
    return "GIF" if data.startswith((b"GIF87a", b"GIF89a")) else None


def _plugin(kind: str) -> Any:
    """The class that reads the format. ``Image.open`` would ask further ones, and has a limit of its own."""
    match kind:
        case "PNG":
            from PIL.PngImagePlugin import PngImageFile

            return PngImageFile
        case "JPEG":
            from PIL.JpegImagePlugin import JpegImageFile

            return JpegImageFile
        case "WebP":
            from PIL.WebPImagePlugin import WebPImageFile

            return WebPImageFile
        case _:
            from PIL.GifImagePlugin import GifImageFile

            return GifImageFile


def _check(size: tuple[int, int], limits: ImageLimits, place: str) -> None:
    width, height = size
    if max(size) > limits.side:
        raise MediaTooLarge(
            f"{place}: {width} x {height}, and {limits.side:,} pixels are the most a side may have; make it"
            " smaller",
            param=place,
        )
    if width * height > limits.pixels:
        raise MediaTooLarge(
            f"{place}: {width} x {height} are {width * height:,} pixels, and {limits.pixels:,} are the most"
            " it may have; make it smaller",
            param=place,
        )


def _webp_size(data: bytes) -> tuple[int, int]:
    """From the first chunk of a WebP file, of which there are three kinds."""
    kind, body = data[12:16], data[20:30]
    if kind == b"VP8X":  # flags, three bytes reserved, then each side less 1 in three bytes
        return int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
    if kind == b"VP8L":  # a signature byte, then each side less 1 in 14 bits
        bits = int.from_bytes(body[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", body, 6)  # a frame tag, a start code, then 14 bits each
    return width & 0x3FFF, height & 0x3FFF


def _gif_size(data: bytes) -> tuple[int, int]:
    """That of the screen, or of the first frame where that reaches further."""
    at = 13 + palette_bytes(data[10])
    while data[at] == 0x21:  # what comes before the first frame: a label, then blocks with their sizes
        at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    left, top, width, height = struct.unpack_from("<HHHH", data, at + 1)
    across, down = gif_screen(data)
    return max(across, left + width), max(down, top + height)


_SIZES = {"WebP": _webp_size, "GIF": _gif_size}
"""Of the formats for whose pixels Pillow makes room when it opens a file."""


# --- pixels -------------------------------------------------------------------------------------------


def _rgb(image: ImageFile) -> Pixels:
    image.load()
    if image.mode.startswith("I"):
        return _from_16_bits(image)
    if image.has_transparency_data:
        return _on_white(image)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _from_16_bits(image: ImageFile) -> Pixels:
    """Grey, 0 to 65535. Pillow would clip it at 255."""
    deep = np.asarray(image).astype(np.uint32)
    grey = ((deep + 128) // 257).astype(np.uint8)
    clear = image.info.get("transparency")  # one value is
    if isinstance(clear, int):
        grey[deep == clear] = 255
    return np.repeat(grey[:, :, None], 3, axis=2)


def _on_white(image: ImageFile) -> Pixels:
    from PIL import Image

    layer = image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(layer, mask=layer.getchannel("A"))
    return np.asarray(white)


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Turn pixels as the EXIF value asks.

    Where the picture's top left corner lies in the file, and which way its rows run:

        1 top left      2 top right     3 bottom right     4 bottom left      rows run along rows
        5 top left      6 top right     7 bottom right     8 bottom left      rows run along columns
    """
    match orientation:
        case 2:
            pixels = pixels[:, ::-1]
        case 3:
            pixels = pixels[::-1, ::-1]
        case 4:
            pixels = pixels[::-1]
        case 5:
            pixels = pixels.swapaxes(0, 1)
        case 6:
            pixels = pixels[::-1].swapaxes(0, 1)
        case 7:
            pixels = pixels[::-1, ::-1].swapaxes(0, 1)
        case 8:
            pixels = pixels[:, ::-1].swapaxes(0, 1)
    return np.ascontiguousarray(pixels)


_ORIENTATION = 0x0112
_SHORT = 3


def _orientation(image: ImageFile) -> int:
    """1 to 8, as EXIF has it; 1 where it says nothing, or nothing that can be read."""
    exif = bytes(image.info.get("exif", b"")).removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, directory)
        for entry in range(directory + 2, directory + 2 + 12 * count, 12):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, entry)
            if tag == _ORIENTATION and kind == _SHORT:
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1
