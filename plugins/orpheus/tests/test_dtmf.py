"""The listener hears what was dialled, and nothing that was not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from walk_plugin_orpheus.toy.dtmf import COLUMNS_HZ, KEYS, ROWS_HZ, digits_heard

RATE = 24_000


def dialled(
    keys: str, *, rate: int = RATE, tone_s: float = 0.128, gap_s: float = 0.043
) -> NDArray[np.float64]:
    seconds = np.arange(round(tone_s * rate)) / rate
    gap = np.zeros(round(gap_s * rate))
    pieces = [np.zeros(round(0.085 * rate))]
    for key in keys:
        row = next(row for row, names in enumerate(KEYS) if key in names)
        column = KEYS[row].index(key)
        tone = np.sin(2 * np.pi * ROWS_HZ[row] * seconds) + np.sin(2 * np.pi * COLUMNS_HZ[column] * seconds)
        pieces += [0.3 * tone, gap]
    return np.concatenate(pieces)


def noise(like: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    return scale * np.random.default_rng(0).standard_normal(len(like))


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100])
def test_every_key_is_heard(rate: int):
    keys = "".join(KEYS)
    assert digits_heard(dialled(keys, rate=rate), rate) == keys


def test_a_key_pressed_twice_is_heard_twice():
    assert digits_heard(dialled("5511111"), RATE) == "5511111"


@settings(deadline=None, max_examples=30)
@given(st.text("0123456789", min_size=1, max_size=6))
def test_keys_are_heard_through_noise(keys: str):
    sound = dialled(keys)
    assert digits_heard(sound + noise(sound, 0.1), RATE) == keys


def test_loudness_and_sample_type_do_not_matter():
    sound = dialled("042")
    assert digits_heard(1e-3 * sound, RATE) == "042"
    assert digits_heard(sound.astype(np.float32), RATE) == "042"


def test_a_short_dropout_does_not_make_one_key_two():
    sound = dialled("7")
    middle = len(sound) // 2
    sound[middle : middle + round(0.005 * RATE)] = 0
    assert digits_heard(sound, RATE) == "7"


def test_silence_noise_and_no_sound_are_no_keys():
    silence = np.zeros(RATE)
    assert digits_heard(silence, RATE) == ""
    assert digits_heard(silence[:10], RATE) == ""
    assert digits_heard(silence[:0], RATE) == ""
    assert digits_heard(noise(silence, 0.3), RATE) == ""


def test_one_tone_alone_is_no_key():
    seconds = np.arange(RATE) / RATE
    assert digits_heard(np.sin(2 * np.pi * 770 * seconds), RATE) == ""


def test_a_blip_is_no_key():
    assert digits_heard(dialled("5", tone_s=0.03), RATE) == ""
