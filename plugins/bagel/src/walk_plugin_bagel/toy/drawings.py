"""What the toy learns: a digit that somebody wrote, drawn in one of four colours on black, and words for it.

    "a red drawing of the digit seven"  ->  picture
    picture, "Describe the image."      ->  "a red seven"

The digits are the 1,797 of UCI's *Optical Recognition of Handwritten Digits* (Alpaydin and Kaynak 1998, CC BY
4.0) that scikit-learn brings, 8 x 8 pixels of 0 to 16, in their order there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 32
"""Pixels, of a picture."""
TRAINED = 1500
"""Digits before this are for training, those from it on for tests: other people wrote them."""

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1)}
"""Their channels are on or off: a VAE this small has no feeling for what is between."""

PROMPTS = (
    "a {colour} drawing of the digit {word}",
    "draw the digit {digit} in {colour}",
    "a {colour} {word}",
    "a handwritten {word} in {colour}",
    "{colour} digit {digit}",
)
QUESTIONS = {
    "What digit is this?": "{word}",
    "What color is it?": "{colour}",
    "Describe the image.": "a {colour} {word}",
}


@dataclass(frozen=True)
class Digits:
    """Who wrote what.

    Args:
        images: uint8 (digits, 8, 8), of 0 to 16.
        labels: uint8 (digits,).
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]


@cache
def digits() -> Digits:
    with np.load(Path(__file__).parent / "digits.npz") as file:
        return Digits(file["images"], file["labels"])


def strokes(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A digit of 8 x 8 as large as a picture, and with sharper edges: uint8 (32, 32)."""
    small = Image.fromarray((image.astype(np.float32) * (255 / 16)).astype(np.uint8))
    large = np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32) / 255
    return (255 * np.clip((large - 0.25) / 0.5, 0, 1)).astype(np.uint8)


def drawn(image: NDArray[np.uint8], colour: str) -> NDArray[np.uint8]:
    """A digit of 8 x 8 in a colour: uint8 (32, 32, 3)."""
    return strokes(image)[..., None] * np.array(COLOURS[colour], np.uint8)


def said(template: str, digit: int, colour: str) -> str:
    """A prompt, or an answer, that is about this."""
    return template.format(word=WORDS[digit], digit=digit, colour=colour)


def all_texts() -> list[str]:
    """Every text that the toy ever reads or writes."""
    templates = (*PROMPTS, *QUESTIONS, *QUESTIONS.values())
    return [
        said(template, digit, colour) for template in templates for digit in range(10) for colour in COLOURS
    ]
