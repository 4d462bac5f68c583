"""The formats in which sound leaves, by the names that OpenAI gives them. No library is imported for this."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

MPEG_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)


@dataclass(frozen=True, slots=True)
class SoundFormat:
    """One of them.

    Args:
        name: As a client asks for it.
        media_type: Without parameters.
        suffixes: Of its files, the usual one first.
        rates: Frames per second that it can hold, ascending; none where it can hold any.
        most_channels: What its encoder takes.
        is_light: Whether encoding is no more than arithmetic on samples; the others are given a thread.
    """

    name: str
    media_type: str
    suffixes: tuple[str, ...]
    rates: tuple[int, ...] = ()
    most_channels: int = 8
    is_light: bool = False

    def rate_for(self, rate: int) -> int:
        """The rate of a file whose sound has ``rate``: the same, or the next higher that there is, else the
        highest."""
        if not self.rates or rate in self.rates:
            return rate
        return next((each for each in self.rates if each > rate), self.rates[-1])

    def content_type(self, rate: int, channels: int) -> str:
        """As HTTP says it of sound with this rate and these channels."""
        match self.name:
            case "pcm":  # nothing else says how to read it
                return f"{self.media_type};rate={rate};channels={channels}"
            case "opus":
                return f"{self.media_type};codecs=opus"
            case _:
                return self.media_type


FORMATS = MappingProxyType(
    {
        each.name: each
        for each in (
            SoundFormat("wav", "audio/wav", (".wav",), is_light=True, most_channels=65_535),
            SoundFormat("pcm", "audio/pcm", (".pcm",), is_light=True, most_channels=65_535),
            SoundFormat("flac", "audio/flac", (".flac",)),
            SoundFormat("mp3", "audio/mpeg", (".mp3",), MPEG_RATES, most_channels=2),
            SoundFormat("opus", "audio/ogg", (".opus", ".ogg"), OPUS_RATES),
        )
    }
)
"""By name."""


def format_of_suffix(suffix: str) -> SoundFormat | None:
    """The format of files that end so, in any case; None where there is none."""
    return next((each for each in FORMATS.values() if suffix.lower() in each.suffixes), None)
