"""The images of a request, read before it is admitted: then their sizes are known, and bad ones refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from walk_plugin_bagel.preparing import Pixels, Prepared, prepare
from walk_plugin_bagel.settings import Preprocessing, read_preprocessing
from walkserve_sdk import Batch, Checkpoint, Gives
from walkserve_sdk.media.images import read_image


class PictureReader:
    """Files of images to what the VAE and the ViT are given of them, on the CPU."""

    def __init__(self, limits: Preprocessing) -> None:
        self._limits = limits

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: Any, dtype: Any) -> PictureReader:
        return cls(read_preprocessing(checkpoint))

    def read(self, batch: Batch) -> Gives:
        """Each row's ``images``, the bytes of files, as uint8 tensors of (height, width, 3).

        ``for_vae`` and ``for_vit`` have one for each image; ``vae_sizes`` and ``vit_sizes`` their widths and
        heights.
        """
        rows = [self._prepared(images) for images in batch.values("images")]
        return {
            "for_vae": [[_tensor(image.for_vae) for image in row] for row in rows],
            "for_vit": [[_tensor(image.for_vit) for image in row] for row in rows],
            "vae_sizes": [[_size(image.for_vae) for image in row] for row in rows],
            "vit_sizes": [[_size(image.for_vit) for image in row] for row in rows],
        }

    def _prepared(self, images: Sequence[bytes]) -> list[Prepared]:
        return [
            prepare(read_image(image, place=f"image {number}"), self._limits)
            for number, image in enumerate(images, start=1)
        ]


def _tensor(pixels: Pixels) -> Tensor:
    return torch.from_numpy(pixels)


def _size(pixels: Pixels) -> list[int]:
    height, width, _ = pixels.shape
    return [width, height]
