"""Every format, whole and streamed, read back by a library that has no part in writing it."""

from __future__ import annotations

import io
import threading
from itertools import pairwise

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from walkserve.media.encoders import open_encoder
from walkserve.media.formats import FORMATS, MPEG_RATES, OPUS_RATES, format_of_suffix

FILES = [name for name in FORMATS if name != "pcm"]
MAGIC = {"wav": b"RIFF", "flac": b"fLaC", "mp3": b"\xff", "opus": b"OggS"}
MP3_AHEAD = 1105
"""Frames before the first sample where nothing in the file tells a reader to leave them out."""


def chirp(rate: int, seconds: float = 1.0, channels: int = 1) -> np.ndarray:
    """A sound that is like itself at no other time: (frames, channels), the later channels softer."""
    at = np.arange(round(rate * seconds)) / rate
    tone = 0.5 * np.sin(2 * np.pi * (300 * at + 400 * at**2))
    return np.stack([tone / (channel + 1) for channel in range(channels)], 1).astype(np.float32)


def encoded(name: str, sound: np.ndarray, rate: int, *, streamed: bool, piece: int = 2048) -> bytes:
    """All that leaves, joined."""
    pieces = []
    with open_encoder(FORMATS[name], rate, sound.shape[1], streamed=streamed) as encoder:
        for start in range(0, len(sound), piece):
            pieces.append(encoder.feed(sound[start : start + piece]))
        pieces.append(encoder.finish())
    if not streamed:
        assert not any(pieces[:-1])
    return b"".join(pieces)


def decoded(data: bytes) -> tuple[np.ndarray, int]:
    """What PyAV hears: (frames, channels) and the rate."""
    with av.open(io.BytesIO(data)) as file:
        (stream,) = file.streams.audio
        blocks = []
        for frame in file.decode(stream):
            block = frame.to_ndarray()
            if not frame.format.is_planar:
                block = block.reshape(-1, stream.channels).T
            blocks.append(block / 32768 if block.dtype == np.int16 else block)
        return np.concatenate([np.zeros((stream.channels, 0)), *blocks], axis=1).T, stream.rate


def lag(heard: np.ndarray, sound: np.ndarray) -> int:
    """How many frames later than in ``sound`` the same is heard."""
    window = sound[4000:8000]
    return int(np.correlate(heard, window, "valid").argmax()) - 4000


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [24_000, 44_100, 22_050])
@pytest.mark.parametrize("name", FILES)
def test_another_library_hears_the_sound_at_its_rate_and_in_its_place(name, rate, channels, streamed):
    sound = chirp(rate, channels=channels)
    data = encoded(name, sound, rate, streamed=streamed)
    assert data.startswith(MAGIC[name])
    heard, heard_rate = decoded(data)
    # a reader of Opus plays at 48 kHz whatever went in
    assert heard_rate == (48_000 if name == "opus" else rate)
    assert heard.shape[1] == channels
    ahead = MP3_AHEAD if name == "mp3" and streamed else 0
    longer = len(heard) - len(sound) * heard_rate / rate
    assert ahead <= longer < ahead + 1152 if ahead else abs(longer) <= 1
    source = sound
    if name == "opus":
        import soxr

        source = soxr.resample(sound, rate, 48_000)
    for channel in range(channels):
        assert abs(lag(heard[:, channel], source[:, channel]) - ahead) <= 1
        loudness = np.std(heard[ahead:, channel]) / np.std(sound[:, channel])
        assert 0.9 < loudness < 1.1


@pytest.mark.parametrize("streamed", [False, True])
def test_flac_holds_the_same_16_bits_as_wav(streamed):
    sound = chirp(24_000)
    wav, flac = (decoded(encoded(name, sound, 24_000, streamed=streamed))[0] for name in ("wav", "flac"))
    assert np.array_equal(wav, flac)


@pytest.mark.parametrize("name", FILES)
def test_a_whole_file_tells_its_length_in_its_header(name):
    data = encoded(name, chirp(24_000, 0.7), 24_000, streamed=False)
    info = soundfile.info(io.BytesIO(data))
    assert (info.frames / info.samplerate, info.channels) == (0.7, 1)


@pytest.mark.parametrize("name", ["wav", "mp3", "opus"])
def test_a_streamed_file_is_read_by_libsndfile_too(name):
    data = encoded(name, chirp(24_000, 0.7), 24_000, streamed=True)
    read, rate = soundfile.read(io.BytesIO(data))
    assert rate == 24_000
    assert 0.7 <= len(read) / rate < 0.7 + (2304 / 24_000 if name == "mp3" else 0.001)


def test_a_streamed_flac_says_that_its_length_is_unknown():
    data = encoded("flac", chirp(24_000), 24_000, streamed=True)
    total = int.from_bytes(data[8 + 10 : 8 + 18], "big") & ((1 << 36) - 1)  # of STREAMINFO
    assert data[4] & 0x7F == 0
    assert total == 0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=8), st.sampled_from([8_000, 22_050, 24_000]))
@pytest.mark.parametrize("name", FILES)
def test_where_sound_is_cut_changes_nothing_in_the_file(name, cuts, rate):
    sound = chirp(rate, sum(cuts) / rate)
    at_once = encoded(name, sound, rate, streamed=True, piece=10**9)
    with open_encoder(FORMATS[name], rate, 1, streamed=True) as encoder:
        starts = np.cumsum([0, *cuts])
        pieces = [encoder.feed(sound[a:b]) for a, b in pairwise(starts)]
        data = b"".join([*pieces, encoder.finish()])
    assert np.array_equal(decoded(data)[0], decoded(at_once)[0])
    if name != "opus":  # whose files have a random number each, by which players tell them apart
        assert data == at_once


EARLY_MS = {"wav": (1, 1), "flac": (1, 49), "mp3": (34, 58), "opus": (1, 61)}
"""At 24 kHz: by how much sound the first bytes have left, and the first with sound in them (the second frame
of mp3, whose first is the encoder's start)."""


@pytest.mark.parametrize("name", FILES)
def test_the_first_bytes_leave_as_early_as_the_reference_says(name):
    sound = chirp(24_000)
    left = []
    with open_encoder(FORMATS[name], 24_000, 1, streamed=True) as encoder:
        for ms in range(1, 400):
            if encoder.feed(sound[(ms - 1) * 24 : ms * 24]):
                left.append(ms)
    first, sounding = EARLY_MS[name]
    assert left[0] <= first
    assert (left[0] if name == "wav" else left[1]) <= sounding
    assert max(np.diff(left)) <= 61  # and it goes on so


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_no_sound_at_all_is_a_file_that_can_be_read(name, streamed):
    data = encoded(name, np.zeros((0, 1), np.float32), 24_000, streamed=streamed)
    if name == "wav":
        assert len(data) == 44
        return
    heard, rate = decoded(data)
    assert len(heard) / rate < 0.1
    assert np.abs(heard).max() < 0.001


@pytest.mark.parametrize("name", FORMATS)
def test_a_rate_that_a_format_cannot_hold_becomes_the_next_higher(name):
    assert FORMATS[name].rate_for(24_000) == 24_000
    assert FORMATS[name].rate_for(22_050) == (24_000 if name == "opus" else 22_050)
    assert FORMATS[name].rate_for(96_000) == (48_000 if name in ("mp3", "opus") else 96_000)
    assert list(MPEG_RATES) == sorted(MPEG_RATES) and list(OPUS_RATES) == sorted(OPUS_RATES)


@pytest.mark.parametrize("name", FORMATS)
def test_sound_of_another_shape_is_refused(name):
    refused = pytest.raises(ValueError, match=r"sound has the shape \(5,\), not \(samples, 2\)")
    with open_encoder(FORMATS[name], 24_000, 2, streamed=True) as encoder, refused:
        encoder.feed(np.zeros(5, np.float32))


def test_more_channels_than_a_format_has_are_refused():
    with pytest.raises(ValueError, match="mp3 has at most 2 channels, this sound has 6"):
        open_encoder(FORMATS["mp3"], 48_000, 6, streamed=True)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_louder_than_full_scale_or_no_number_does_no_harm(name):
    sound = np.array([2.0, -3.0, np.nan, np.inf] * 1000, np.float32)[:, None]
    assert encoded(name, sound, 24_000, streamed=True)


@pytest.mark.parametrize("name", FORMATS)
def test_an_encoder_is_closed_while_a_thread_feeds_it(name):
    encoder = open_encoder(FORMATS[name], 22_050, 1, streamed=True)
    is_feeding = threading.Event()
    told: list[str] = []

    def feed() -> None:
        try:
            while True:
                encoder.feed(chirp(22_050, 0.2))
                is_feeding.set()
        except ValueError as error:
            told.append(str(error))

    thread = threading.Thread(target=feed)
    thread.start()
    assert is_feeding.wait(10)
    encoder.close()
    encoder.close()
    thread.join(10)
    assert told == ["this encoder is closed"]


def test_a_format_is_known_by_how_its_files_end():
    found = {suffix: format_of_suffix(suffix) for suffix in (".WAV", ".opus", ".ogg", ".mp3", ".aac", "")}
    assert {suffix: each and each.name for suffix, each in found.items()} == {
        ".WAV": "wav",
        ".opus": "opus",
        ".ogg": "opus",
        ".mp3": "mp3",
        ".aac": None,
        "": None,
    }
