"""Sound into bytes of a format, piece by piece: libsndfile writes the files, soxr changes the rate."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from io import BytesIO
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from walkserve.media.audio import SAMPLE_BYTES, int16, pcm16, wav_header, within_range
from walkserve.media.formats import SoundFormat

Sound = NDArray[Any]
"""Samples in [-1, 1]: ``(frames,)``, or ``(frames, channels)``."""


class Encoder(ABC):
    """One file under way. Feed it, finish it, close it; it may be closed while a thread still feeds it.

    Streamed, ``feed`` returns what there is to send of the file so far and nothing in it is changed
    afterwards, so a header cannot say how long it will be. Otherwise all of it comes from ``finish``,
    and its header is exact. Where sound was cut makes no difference to the samples in the file.
    """

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._lock = threading.Lock()
        self._is_closed = False

    def feed(self, sound: Sound) -> bytes:
        """Take the next samples.

        Raises:
            ValueError: Their shape is not that of this many channels.
        """
        with self._lock:
            self._check_open()
            return self._feed(sound)

    def finish(self) -> bytes:
        """What is left to send. There is nothing to feed after it."""
        with self._lock:
            self._check_open()
            return self._finish()

    def close(self) -> None:
        """Let go of what is held; more than once does no harm."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("this encoder is closed")

    @abstractmethod
    def _feed(self, sound: Sound) -> bytes: ...

    @abstractmethod
    def _finish(self) -> bytes: ...

    def _close(self) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_encoder(format: SoundFormat, rate: int, channels: int, *, streamed: bool) -> Encoder:
    """An encoder of sound with this rate and these channels.

    Raises:
        ValueError: The format has not as many channels.
    """
    if channels > format.most_channels:
        raise ValueError(
            f"{format.name} has at most {format.most_channels} channels, this sound has {channels}"
        )
    if format.is_light:
        return _Samples(rate, channels, streamed, has_header=format.name == "wav")
    return _File(format, rate, channels, streamed)


class _Samples(Encoder):
    """16-bit samples as they are, behind a WAV header or not."""

    def __init__(self, rate: int, channels: int, streamed: bool, *, has_header: bool) -> None:
        super().__init__(channels)
        self._rate = rate
        self._is_streamed = streamed
        self._has_header = has_header
        self._kept = bytearray(self._header(None) if streamed else b"")

    def _feed(self, sound: Sound) -> bytes:
        self._kept += pcm16(sound, self._channels)
        return self._take() if self._is_streamed else b""

    def _finish(self) -> bytes:
        frames = len(self._kept) // (SAMPLE_BYTES * self._channels)
        return self._take() if self._is_streamed else self._header(frames) + self._take()

    def _take(self) -> bytes:
        taken = bytes(self._kept)
        self._kept.clear()
        return taken

    def _header(self, frames: int | None) -> bytes:
        return wav_header(self._rate, self._channels, frames) if self._has_header else b""


# --- what libsndfile writes ---------------------------------------------------------------------------

_FLAC: dict[str, Any] = {"format": "FLAC", "subtype": "PCM_16", "compression_level": 0.25}
"""Up to this level a block has 1,152 frames, above it 4,096: sound leaves sooner, at the same size."""
_MP3: dict[str, Any] = {
    "format": "MP3",
    "subtype": "MPEG_LAYER_III",
    # half of the highest bit rate: 80 kbit/s at 24 kHz. Constant, so that the length of a stream without a
    # header can be told from its size.
    "compression_level": 0.5,
    "bitrate_mode": "CONSTANT",
}
_OPUS: dict[str, Any] = {"format": "OGG", "subtype": "OPUS"}
_WRITTEN: dict[str, dict[str, Any]] = {"flac": _FLAC, "mp3": _MP3, "opus": _OPUS}

_SET_OGG_PAGE_LATENCY_MS = 0x1302
_PAGE_MS = 60.0
"""A page is sent when it holds this much; it would be a second otherwise."""


class _File(Encoder):
    """A format that libsndfile writes."""

    def __init__(self, format: SoundFormat, rate: int, channels: int, streamed: bool) -> None:
        import soundfile

        super().__init__(channels)
        self._format = format
        self._is_empty = True
        self._out = _Outflow() if streamed else BytesIO()
        file_rate = format.rate_for(rate)
        self._resampler = None if file_rate == rate else _resampler(rate, file_rate, channels)
        self._file = soundfile.SoundFile(
            self._out, "w", samplerate=file_rate, channels=channels, **_WRITTEN[format.name]
        )
        if format.name == "opus":
            _set_page_latency(self._file)

    def _feed(self, sound: Sound) -> bytes:
        # for the lossy ones 16 bits would be a loss of its own
        self._write(self._at_rate(within_range(sound, self._channels)))
        return self._take()

    def _finish(self) -> bytes:
        if self._resampler is not None:
            self._write(self._at_rate(np.zeros((0, self._channels), np.float32), last=True))
        if self._is_empty:  # these formats cannot be empty: a frame of silence
            self._write(np.zeros((1, self._channels), np.float32))
        self._file.close()
        return self._take() if isinstance(self._out, _Outflow) else self._out.getvalue()

    def _close(self) -> None:
        self._file.close()

    def _at_rate(self, sound: Sound, last: bool = False) -> Sound:
        if self._resampler is None:
            return sound
        resampled: Sound = self._resampler.resample_chunk(sound, last=last)
        return resampled

    def _write(self, sound: Sound) -> None:
        if not len(sound):
            return
        if self._format.name == "flac":  # the same 16 bits as in a WAV file
            sound = int16(sound, self._channels)
        if self._is_empty and self._format.name == "mp3" and isinstance(self._out, _Outflow):
            # With the first sample LAME writes the place of a frame that tells the length, to be filled in
            # at the end. Left as it is it would be heard, as 24 ms of silence.
            self._file.write(sound[:1])
            self._out.take()
            sound = sound[1:]
        self._is_empty = False
        self._file.write(sound)

    def _take(self) -> bytes:
        return self._out.take() if isinstance(self._out, _Outflow) else b""


class _Outflow:
    """A file for libsndfile of which what was written is gone; what it goes back to write is dropped."""

    def __init__(self) -> None:
        self._new = bytearray()
        self._size = self._place = 0

    def take(self) -> bytes:
        """What was written since."""
        taken = bytes(self._new)
        self._new.clear()
        return taken

    def write(self, data: bytes) -> int:
        if self._place == self._size:
            self._new += data
            self._size += len(data)
        self._place += len(data)
        return len(data)

    def read(self, size: int = -1) -> bytes:
        return b""

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def tell(self) -> int:
        return self._place


def _resampler(rate: int, file_rate: int, channels: int) -> Any:
    import soxr

    return soxr.ResampleStream(rate, file_rate, channels, dtype="float32")


def _set_page_latency(file: Any) -> None:
    """A command of libsndfile that soundfile has no name for; that it is heard is held by a test."""
    from soundfile import _ffi, _snd

    _snd.sf_command(
        file._file, _SET_OGG_PAGE_LATENCY_MS, _ffi.new("double *", _PAGE_MS), _ffi.sizeof("double")
    )
