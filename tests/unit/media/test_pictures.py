"""Pictures as files."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from walkserve.media.pictures import FORMATS, encode_picture, format_of_suffix

PIXELS = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)


def test_a_png_has_every_pixel():
    with Image.open(io.BytesIO(encode_picture(PIXELS, FORMATS["png"]))) as image:
        assert image.format == "PNG" and np.array_equal(np.asarray(image), PIXELS)


@pytest.mark.parametrize("name", ["jpeg", "webp"])
def test_the_others_look_alike_and_may_be_worse(name):
    smooth = np.linspace(0, 255, 64 * 64 * 3).reshape(64, 64, 3).astype(np.uint8)
    good, bad = (encode_picture(smooth, FORMATS[name], quality=quality) for quality in (95, 1))
    assert len(bad) < len(good)
    with Image.open(io.BytesIO(good)) as image:
        assert image.size == (64, 64)
        assert np.abs(np.asarray(image).astype(int) - smooth).mean() < 5


@pytest.mark.parametrize(
    "pixels",
    [PIXELS.astype(np.float32), PIXELS[..., :1], PIXELS[0], np.zeros((0, 4, 3), np.uint8)],
    ids=["floats", "grey", "flat", "empty"],
)
def test_what_is_no_picture_is_refused(pixels):
    with pytest.raises(ValueError, match="uint8"):
        encode_picture(pixels, FORMATS["png"])


def test_a_side_that_a_format_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="webp cannot hold it"):
        encode_picture(np.zeros((1, 20_000, 3), np.uint8), FORMATS["webp"])


def test_a_file_says_by_its_name_what_it_is():
    names = {suffix: format_of_suffix(suffix) for suffix in (".JPG", ".jpeg", ".png", ".webp", ".gif")}
    assert [each.name if each else None for each in names.values()] == ["jpeg", "jpeg", "png", "webp", None]
