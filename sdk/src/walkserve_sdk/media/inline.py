"""Media inside JSON: base64, alone or in a data URL. Nothing here opens an address or a file."""

from __future__ import annotations

import base64
import binascii
import re

from walkserve_sdk.errors import BadRequest, MediaTooLarge, shown
from walkserve_sdk.media.limits import FILE_BYTES

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def inline_bytes(text: str, *, place: str = "data", limit_bytes: int = FILE_BYTES) -> bytes:
    """The bytes of a file that were written as ``data:image/png;base64,...``, or as base64 alone.

    The type that a data URL claims is not looked at: what the bytes are, they say themselves.

    Args:
        place: The field, for messages.
        limit_bytes: Of the file; its size is known from the text before that is decoded.

    Raises:
        MediaTooLarge: The file would be larger.
        BadRequest: It is no base64, or the address of something that would have to be fetched.
    """
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if scheme[1].lower() != "data":
            raise BadRequest(
                f"{place}: {shown(text, 60)} would have to be fetched, and this server opens no address and"
                " no file; send the bytes, as base64, a data URL or a form's part",
                param=place,
            )
        head, comma, text = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise BadRequest(
                f"{place}: a data URL is data:TYPE;base64,... here, got {shown(head, 60)}", param=place
            )
    size_bytes = len(text) // 4 * 3 - text[-2:].count("=")
    if size_bytes > limit_bytes:
        raise MediaTooLarge(
            f"{place}: {size_bytes:,} bytes, and {limit_bytes:,} are the most it may have", param=place
        )
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):  # of what is not ASCII
        raise BadRequest(
            f"{place}: it is no base64, got {shown(text, 60)}; send the bytes of the file, not where it is",
            param=place,
        ) from None
