"""Sound as clients receive it: 16-bit PCM, alone or behind a WAV header."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE_BYTES = 2
UNKNOWN_SIZE = 0xFFFFFFFF
"""In a header sent before the end is known: readers take 0 for an empty file, and this for "to the end"."""


def within_range(samples: NDArray[Any], channels: int = 1) -> NDArray[np.float32]:
    """Samples as float32 in [-1, 1]: what lies outside is clipped, NaN is silence.

    Args:
        samples: ``(frames,)``, or ``(frames, channels)``.

    Returns:
        ``(frames, channels)``.

    Raises:
        ValueError: If the shape is another.
    """
    wanted = f"(samples, {channels})" if channels > 1 else "(samples,) or (samples, 1)"
    if samples.ndim not in (1, 2) or (1 if samples.ndim == 1 else samples.shape[1]) != channels:
        raise ValueError(f"sound has the shape {samples.shape}, not {wanted}")
    finite = np.nan_to_num(samples.astype(np.float32, copy=False), nan=0.0, posinf=1.0, neginf=-1.0)
    clipped: NDArray[np.float32] = np.clip(finite, -1.0, 1.0)
    return clipped.reshape(-1, channels)


def int16(samples: NDArray[Any], channels: int = 1) -> NDArray[np.int16]:
    """Samples as little-endian int16 ``(frames, channels)``, rounded, else as ``within_range`` has them."""
    rounded: NDArray[np.int16] = np.rint(within_range(samples, channels) * 32767.0).astype("<i2")
    return rounded


def pcm16(samples: NDArray[Any], channels: int = 1) -> bytes:
    """The same as bytes; channels are interleaved."""
    return int16(samples, channels).tobytes()


def wav_header(rate: int, channels: int, frames: int | None) -> bytes:
    """The 44 bytes before 16-bit PCM in a WAV file.

    Args:
        rate: Frames per second.
        frames: Samples per channel; None where the end is not known yet: both sizes are 0xFFFFFFFF then.
    """
    frame_bytes = channels * SAMPLE_BYTES
    data_bytes = None if frames is None else frames * frame_bytes
    if data_bytes is None or data_bytes + 36 > UNKNOWN_SIZE:  # 4 GiB is what the format can say
        riff_size = data_size = UNKNOWN_SIZE
    else:
        riff_size, data_size = data_bytes + 36, data_bytes
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", riff_size, b"WAVE"),
        *(b"fmt ", 16, 1, channels, rate, rate * frame_bytes, frame_bytes, 8 * SAMPLE_BYTES),
        *(b"data", data_size),
    )
