"""The VAE: images to latents that are painted on, and back; diffusers' modules under FLUX's names."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from diffusers import AutoencoderKL
from diffusers.loaders.single_file_utils import convert_ldm_vae_checkpoint
from torch import Tensor

from walk_plugin_bagel.grids import from_grid, numbers_of, pixels_of, to_grid
from walk_plugin_bagel.loading import read_tensors
from walk_plugin_bagel.settings import Autoencoder, read_settings
from walkserve_sdk import Batch, Checkpoint, Gives, LoadError
from walkserve_sdk.nn import load_strictly


class ImageVAE:
    """Images to grids of latent tokens, and such grids to pictures."""

    dtype = torch.float32  # whatever it is loaded in: it is small, and a picture shows every rounding

    def __init__(self, model: AutoencoderKL, said: Autoencoder, patch: int, device: torch.device) -> None:
        self._model = model
        self._scale, self._shift = said.scale_factor, said.shift_factor
        self._patch = patch
        self._device = device

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> ImageVAE:
        """Read ``ae.safetensors``, strictly; float32 whatever ``dtype`` is."""
        glue = read_settings(checkpoint).glue
        with torch.device("meta"):
            model = AutoencoderKL(**config_of(glue.vae_config))
        path = checkpoint.file("ae.safetensors")
        tensors = converted(read_tensors(path), glue.vae_config, str(path))
        load_strictly(model, tensors, device=device, dtype=cls.dtype, place=str(path))
        return cls(model.eval().requires_grad_(False), glue.vae_config, glue.latent_patch_size, device)

    def encode(self, batch: Batch) -> Gives:
        """Draw each row's latent from what its image may mean.

        ``pixels``, uint8 (height, width, 3), and ``noise``, (channels, rows, columns) of the latent, to
        ``latents``, a grid of tokens (rows, columns, numbers).
        """
        pairs = zip(batch.values("pixels"), batch.values("noise"), strict=True)
        return {"latents": [self._encoded(pixels, noise) for pixels, noise in pairs]}

    def decode(self, batch: Batch) -> Gives:
        """Each row's grid of ``latents`` as a picture, ``picture``: uint8 (height, width, 3)."""
        return {"picture": [self.picture(latents) for latents in batch.values("latents")]}

    def preview(self, batch: Batch) -> Gives:
        """The same of what each row's picture is ``likely`` to become: ``preview``."""
        return {"preview": [self.picture(latents) for latents in batch.values("likely")]}

    # Image by image: one fills a device by itself, and is the same whoever is beside it.

    def _encoded(self, pixels: Tensor, noise: Tensor) -> Tensor:
        meant = self._model.encode(numbers_of(pixels.to(self._device))[None]).latent_dist
        latent = (meant.mean + meant.std * noise.to(self._device) - self._shift) * self._scale
        return to_grid(latent[0], self._patch)

    def picture(self, latents: Tensor) -> Tensor:
        """A grid of tokens as a picture: uint8 (height, width, 3)."""
        latent = from_grid(latents.to(self._device, self.dtype), self._patch)
        image = self._model.decode(latent[None] / self._scale + self._shift).sample[0]
        return pixels_of(image)


def config_of(said: Autoencoder) -> dict[str, object]:
    levels = len(said.ch_mult)
    return {
        "down_block_types": ("DownEncoderBlock2D",) * levels,
        "up_block_types": ("UpDecoderBlock2D",) * levels,
        "block_out_channels": tuple(said.ch * times for times in said.ch_mult),
        "layers_per_block": said.num_res_blocks,
        "latent_channels": said.z_channels,
        "use_quant_conv": False,
        "use_post_quant_conv": False,
    }


def converted(stored: Mapping[str, Tensor], said: Autoencoder, place: str) -> dict[str, Tensor]:
    """The tensors by diffusers' names.

    Raises:
        LoadError: Some have names that diffusers does not know; it would leave them out without a word.
    """

    try:
        converted: dict[str, Tensor | None] = convert_ldm_vae_checkpoint(dict(stored), config_of(said))
    except KeyError as missing:
        raise LoadError(f"{place} does not fit this model: missing: {missing.args[0]}") from None
    found = {name: tensor for name, tensor in converted.items() if tensor is not None}
    used = {tensor.data_ptr() for tensor in found.values()}  # renamed or reshaped, it is the same memory
    idle = sorted(name for name, tensor in stored.items() if tensor.data_ptr() not in used)
    if idle:
        raise LoadError(f"{place} does not fit this model: unexpected: {', '.join(idle)}")
    return found
