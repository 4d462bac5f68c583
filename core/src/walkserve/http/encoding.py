"""Encoding beside the event loop: whoever sends sound waits for it, and nobody else does."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from walkserve.media.encoders import open_encoder
from walkserve.media.formats import SoundFormat
from walkserve_sdk import Audio

SLICE_S = 1
"""A thread takes as much sound at a time: closing an encoder waits for it, some 20 ms."""


class Encoding:
    """One file under way.

    Args:
        sound: What is encoded.
        streamed: Whether pieces of the file are wanted as they come; else all of it at the end.

    Raises:
        ValueError: The format has not as many channels.
    """

    def __init__(self, format: SoundFormat, sound: Audio, *, streamed: bool) -> None:
        self._encoder = open_encoder(format, sound.rate, sound.channels, streamed=streamed)
        self._is_light = format.is_light
        self._rate = sound.rate
        self._frames = 0

    @property
    def seconds(self) -> float:
        """How much sound has been fed."""
        return self._frames / self._rate

    async def feed(self, sound: NDArray[Any]) -> bytes:
        """Take the next samples; returns what there is to send.

        Raises:
            ValueError: They have not the shape of this sound.
        """
        if self._is_light:
            data = self._encoder.feed(sound)
        else:
            size = SLICE_S * self._rate
            slices = [sound[start : start + size] for start in range(0, len(sound), size)]
            data = b"".join([await asyncio.to_thread(self._encoder.feed, each) for each in slices])
        self._frames += len(sound)
        return data

    async def finish(self) -> bytes:
        """What is left to send."""
        if self._is_light:
            return self._encoder.finish()
        return await asyncio.to_thread(self._encoder.finish)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._encoder.close()
