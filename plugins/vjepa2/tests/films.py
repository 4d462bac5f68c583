"""Short videos for tests: each frame is grey, and its grey says which it is."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction

import av
import numpy as np

_MS = Fraction(1, 1000)

FIRST = 40
"""The grey of the first frame."""


def film(
    frames: int, *, size: tuple[int, int] = (64, 96), lighter: int = 1, at_ms: Sequence[int] = ()
) -> bytes:
    """An MP4.

    Args:
        size: Height and width.
        lighter: How much each frame's grey is above that of the one before.
        at_ms: When each frame is shown; every 100 ms where left out.
    """
    height, width = size
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10, width=width, height=height, pix_fmt="yuv420p")
        stream.codec_context.time_base = _MS
        container.start_encoding()  # so that there is a file even of no frame
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(
                np.full((height, width, 3), FIRST + lighter * number, np.uint8), "rgb24"
            )
            frame.pts = at_ms[number] if at_ms else 100 * number
            frame.time_base = _MS
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()
