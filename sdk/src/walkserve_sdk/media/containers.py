"""What kind of video file some bytes are, by how they begin, and whether all of it is there.

A demuxer reads a file that was cut off as if it ended there. What these formats say of their own length tells
the two apart, without a look at the frames.
"""

from __future__ import annotations

import struct

FORMATS = {"mov": "MP4", "matroska": "WebM and Matroska", "avi": "AVI", "gif": "GIF"}
"""The demuxers that are ever used, and what they read. Others follow addresses that they find in a file."""

_BOXES = (b"ftyp", b"moov", b"mdat", b"moof", b"wide", b"free", b"skip", b"styp")


def format_of(data: bytes) -> str | None:
    """Which of ``FORMATS`` the bytes begin like."""
    if data[4:8] in _BOXES:
        return "mov"
    if data.startswith(b"\x1a\x45\xdf\xa3"):
        return "matroska"
    if data.startswith(b"RIFF") and data[8:12] == b"AVI ":
        return "avi"
    return "gif" if data.startswith((b"GIF87a", b"GIF89a")) else None


def is_cut_off(kind: str, data: bytes) -> bool:
    """Whether the file says that it is longer than the bytes. One that was streamed live may not say."""
    try:
        return _ENDS[kind](data) > len(data)
    except (struct.error, IndexError):  # it stops in the middle of saying so
        return True


def _end_of_boxes(data: bytes) -> int:
    """ISO 14496-12: size and type, one after another; 1 stands before a long size, 0 is to the end."""
    at = 0
    while at + 8 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, at + 8)
        if size < 8 or not data[at + 4 : at + 8].isalnum():  # no box: something was put behind the file
            return len(data)
        at += size
    return at


def _end_of_segment(data: bytes) -> int:
    """RFC 8794 and 9559: the EBML header, then the one segment, each with its size."""
    _, at = _element(data, 0)
    start, end = _element(data, at)
    return end if end >= start else len(data)


def _element(data: bytes, at: int) -> tuple[int, int]:
    """Where the content of an element begins and ends; the end is -1 where its size is unknown."""
    at += 9 - data[at].bit_length()
    width = 9 - data[at].bit_length()
    size = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    start = at + width
    return start, -1 if size == (1 << 7 * width) - 1 else start + size


def _end_of_riff(data: bytes) -> int:
    """One chunk, or several in a large file; a size of 0 was never filled in."""
    at = 0
    while at + 8 <= len(data) and data[at : at + 4] == b"RIFF":
        (size,) = struct.unpack_from("<I", data, at + 4)
        if not size:
            return len(data)
        at += 8 + size + size % 2
    return at - 1 if at == len(data) + 1 else at  # the last one's padding may be missing


def _end_of_gif(data: bytes) -> int:
    """GIF89a: a header and a palette, then blocks up to the trailer."""
    at = 13 + palette_bytes(data[10])
    while data[at] != 0x3B:
        if data[at] == 0x2C:  # an image: where it lies, its palette, the width of its codes
            at += 11 + palette_bytes(data[at + 9])
        else:  # an extension
            at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    return at + 1


def gif_screen(data: bytes) -> tuple[int, int]:
    """``(width, height)``. Raises struct.error where it stops before."""
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def palette_bytes(flags: int) -> int:
    """How long the palette is that these flags of a GIF announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


_ENDS = {"mov": _end_of_boxes, "matroska": _end_of_segment, "avi": _end_of_riff, "gif": _end_of_gif}
