"""Samples as bytes, and the header before them."""

import io
import wave

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from walkserve.media.audio import pcm16, wav_header


def ints(pcm: bytes) -> list[int]:
    return np.frombuffer(pcm, "<i2").tolist()


def test_full_scale_is_the_largest_number_and_what_is_louder_is_clipped():
    assert ints(pcm16(np.array([0, 1, -1, 1.5, -7], np.float32))) == [0, 32767, -32767, 32767, -32767]


def test_samples_are_rounded_to_the_nearest_number():
    assert ints(pcm16(np.array([0.6, 1.4, -0.6, -1.4], np.float32) / 32767)) == [1, 1, -1, -1]


def test_what_is_no_number_is_silence_and_what_is_infinite_is_full_scale():
    assert ints(pcm16(np.array([np.nan, np.inf, -np.inf], np.float32))) == [0, 32767, -32767]


def test_channels_come_out_interleaved():
    left_right = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
    assert ints(pcm16(left_right, channels=2)) == [0, 32767, 32767, 0]


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3), ()])
def test_a_shape_that_is_no_sound_is_refused(shape):
    with pytest.raises(ValueError, match="sound has the shape"):
        pcm16(np.zeros(shape, np.float32))


@given(st.lists(st.integers(-32767, 32767), max_size=50))
def test_16_bit_samples_come_back_as_they_were(values):
    assert ints(pcm16(np.array(values, np.float64) / 32767)) == values


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("frames", [0, 1, 12_345])
def test_a_whole_file_has_exact_sizes(frames, channels):
    pcm = bytes(2 * channels * frames)
    file = wav_header(24_000, channels, frames) + pcm
    assert int.from_bytes(file[4:8], "little") == len(file) - 8
    assert int.from_bytes(file[40:44], "little") == len(pcm)
    with wave.open(io.BytesIO(file)) as read:
        assert (read.getframerate(), read.getnchannels(), read.getnframes()) == (24_000, channels, frames)
    assert soundfile.info(io.BytesIO(file)).frames == frames


def test_a_streamed_file_is_read_to_its_end_by_common_readers():
    samples = np.linspace(-1, 1, 999, dtype=np.float32)
    file = wav_header(24_000, 1, None) + pcm16(samples)
    assert file[4:8] == file[40:44] == b"\xff\xff\xff\xff"
    with wave.open(io.BytesIO(file)) as read:
        assert read.getframerate() == 24_000
        assert read.readframes(read.getnframes()) == pcm16(samples)
    read, rate = soundfile.read(io.BytesIO(file), dtype="float32")
    assert rate == 24_000
    np.testing.assert_allclose(read, samples, atol=1e-4)
