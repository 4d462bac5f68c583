"""Have the toy paint all ten digits at once, and then say what it painted.

    walkserve serve bagel:toy
    python examples/paint.py http://127.0.0.1:8000

Toy weights, real architecture: the model was shown handwritten digits in four colours.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
from PIL import Image

from walkserve_sdk import Part
from walkserve_sdk.client import Client

MODEL = "bagel"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COLOURS = ("red", "green", "blue", "white")
PAINTING = {"num_timesteps": 24, "cfg_text_scale": 4, "cfg_img_scale": 1}


def paint(client: Client, text: str, seed: int):
    """A picture: uint8 (32, 32, 3)."""
    return client.generate(MODEL, text=text, outputs=["image"], seed=seed, **PAINTING).image


def describe(client: Client, picture) -> str:
    """What it shows, in words. The picture comes first, then the question."""
    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    parts = [Part("image", file.getvalue()), Part("text", "Describe the image.")]
    return client.generate(MODEL, inputs=parts, outputs=["text"], max_tokens=12).text


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    asked = [f"a {COLOURS[digit % 4]} drawing of the digit {word}" for digit, word in enumerate(WORDS)]
    with Client(url) as client, ThreadPoolExecutor(len(asked)) as pool:
        painted = list(pool.map(lambda text, seed: paint(client, text, seed), asked, range(len(asked))))
        told = list(pool.map(lambda picture: describe(client, picture), painted))
    for text, answer in zip(asked, told, strict=True):
        print(f"{text:40} {answer}")
    sheet = Image.fromarray(np.concatenate(painted, axis=1))
    sheet.resize((sheet.width * 3, sheet.height * 3), Image.Resampling.NEAREST).save("paint.png")


if __name__ == "__main__":
    main()
