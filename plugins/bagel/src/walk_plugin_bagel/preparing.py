"""What the VAE and the ViT are given of an image: as large as each wants it. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from walk_plugin_bagel.resize import Size, resized
from walk_plugin_bagel.settings import Limits, Preprocessing

Pixels = NDArray[np.uint8]
"""(height, width, 3), RGB."""


@dataclass(frozen=True)
class Prepared:
    """One image, twice. A picture that is made of it is as large as ``for_vae``."""

    for_vae: Pixels
    for_vit: Pixels


def prepare(image: Pixels, limits: Preprocessing) -> Prepared:
    """As the authors do: the ViT is shown what the VAE is, also where nothing is painted."""
    resized_once = _resize(Image.fromarray(image), limits.vae_transform)
    for_vae = _resize(resized_once, limits.vae_transform)
    for_vit = _resize(resized_once, limits.vit_transform)
    return Prepared(np.array(for_vae), np.array(for_vit))


def prepared_sizes(size: Size, limits: Preprocessing) -> tuple[Size, Size]:
    """What ``prepare`` makes of an image's size: for the VAE and for the ViT."""
    once = resized(size, limits.vae_transform)
    return resized(once, limits.vae_transform), resized(once, limits.vit_transform)


def _resize(image: Image.Image, limits: Limits) -> Image.Image:
    return image.resize(resized(image.size, limits), Image.Resampling.BICUBIC)
