"""What the toy learns to say: texts that ask for digits, and the sound of dialling them.

    frame     0         1 2         3 4       …      three more
              silence   1st digit   2nd digit        silence

A digit is 128 ms of its two tones and 43 ms of silence, which is two frames of 2,048 samples. It always
starts at phase zero and on a frame, so a digit is one waveform wherever it stands.
"""

import numpy as np
from numpy.typing import NDArray

from walk_plugin_orpheus.toy.dtmf import COLUMNS_HZ, KEYS, ROWS_HZ

RATE = 24_000
FRAME_SAMPLES = 2048
LEADING_FRAMES, DIGIT_FRAMES, TRAILING_FRAMES = 1, 2, 3
LONGEST = 4
"""Digits in one text, at most."""

_TONE_SAMPLES = 3072
_LOUDNESS = 0.3  # of each of the two tones

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_OPENINGS = ("call ", "dial ", "please call ", "")


def dialled(digits: str) -> NDArray[np.float32]:
    """The sound of dialling ``digits``: ``(samples,)`` in [-0.6, 0.6], whole frames."""
    leading = np.zeros(LEADING_FRAMES * FRAME_SAMPLES)
    trailing = np.zeros(TRAILING_FRAMES * FRAME_SAMPLES)
    return np.concatenate([leading, *(_key(digit) for digit in digits), trailing]).astype(np.float32)


def _key(digit: str) -> NDArray[np.float64]:
    row = next(row for row, keys in enumerate(KEYS) if digit in keys)
    seconds = np.arange(_TONE_SAMPLES) / RATE
    low, high = (
        np.sin(2 * np.pi * hz * seconds) for hz in (ROWS_HZ[row], COLUMNS_HZ[KEYS[row].index(digit)])
    )
    sound = np.zeros(DIGIT_FRAMES * FRAME_SAMPLES)
    sound[:_TONE_SAMPLES] = _LOUDNESS * (low + high)
    return sound


def some_digits(random: np.random.Generator) -> str:
    """One to four digits."""
    return "".join(str(digit) for digit in random.integers(0, 10, size=random.integers(1, LONGEST + 1)))


def asked_for(digits: str, random: np.random.Generator) -> str:
    """A text that asks for ``digits``, as figures or in English: ``call 5 5 1``, ``dial 042``, ``7``."""
    match random.integers(0, 3):
        case 0:
            said = digits
        case 1:
            said = " ".join(digits)
        case _:
            said = " ".join(_WORDS[int(digit)] for digit in digits)
    return _OPENINGS[random.integers(0, len(_OPENINGS))] + said


def is_held_out(digits: str) -> bool:
    """Whether no training text asks for these digits in this order; of single digits every one is needed."""
    return len(digits) > 1 and int(digits) % 7 == 3
