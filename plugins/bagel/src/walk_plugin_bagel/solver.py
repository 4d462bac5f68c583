"""The solver: the noise that a picture begins as, and its steps from there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from walk_plugin_bagel.guidance import guided
from walk_plugin_bagel.settings import Settings, read_settings
from walkserve_sdk import Batch, Checkpoint, Gives


class Solver:
    """Euler's steps along velocities, and one generator a request, which is its state.

    A seed gives the authors' picture: they draw on the CPU the noise of every input image in order, then what
    the picture begins as.
    """

    dtype = torch.float32  # whatever the model computes in

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self._settings = settings
        self._device = device

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> Solver:
        return cls(read_settings(checkpoint), device)

    def posterior(self, batch: Batch) -> Gives:
        """The next ``noise`` of each row's ``seed``: (channels, rows, columns) of the latent of an image of
        ``size``, (width, height)."""
        vae = self._settings.glue.vae_config
        noises = [
            self._drawn(batch, row, (1, vae.z_channels, height // vae.downsample, width // vae.downsample))[0]
            for row, (width, height) in enumerate(batch.values("size"))
        ]
        return {"noise": noises}

    def noise(self, batch: Batch) -> Gives:
        """What a picture of ``size`` begins as, a grid of ``latents``: the next noise of each row's seed."""
        stride, channels = self._settings.latent_stride, self._settings.latent_channels
        grids = [(height // stride, width // stride) for width, height in batch.values("size")]
        return {
            "latents": [
                self._drawn(batch, row, (rows * columns, channels)).view(rows, columns, channels)
                for row, (rows, columns) in enumerate(grids)
            ]
        }

    def step(self, batch: Batch) -> Gives:
        """``latents`` a ``step`` nearer to the picture, along ``full``, ``no_text`` and ``no_image``.

        Of these velocities the last two are None where nothing guides. ``likely`` is what the picture would
        be if from this time ``t`` they stayed the same. Each picture by itself: its length is that of all of
        it.
        """
        ways = self._ways(batch)
        moments = zip(*(batch.values(name) for name in ("latents", "t", "step")), ways, strict=True)
        rows = [(self._here(latents), t, step, way) for latents, t, step, way in moments]
        return {
            "latents": [latents - way * step for latents, _, step, way in rows],
            "likely": [latents - way * t for latents, t, _, way in rows],
        }

    def _ways(self, batch: Batch) -> list[Tensor]:
        """Each row's velocity, guided."""
        rows = zip(
            *(batch.values(name) for name in ("full", "no_text", "no_image")), batch.options, strict=True
        )
        return [self._way(*row) for row in rows]

    def _way(self, full: Tensor, no_text: Tensor | None, no_image: Tensor | None, options: Any) -> Tensor:
        if no_text is None:
            return self._here(full)
        return guided(
            self._here(full),
            self._here(no_text),
            None if no_image is None else self._here(no_image),
            cfg_text_scale=options.cfg_text_scale,
            cfg_img_scale=options.cfg_img_scale,
            cfg_renorm_type=options.cfg_renorm_type,
            cfg_renorm_min=options.cfg_renorm_min,
        )

    def _here(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, self.dtype)

    def _drawn(self, batch: Batch, row: int, shape: tuple[int, ...]) -> Tensor:
        generator, state = Generator(), batch.state[row]
        if state is None:
            generator.manual_seed(batch.values("seed")[row])
        else:
            generator.set_state(state)
        drawn = torch.randn(shape, generator=generator)
        batch.state[row] = generator.get_state()
        return drawn.to(self._device)
