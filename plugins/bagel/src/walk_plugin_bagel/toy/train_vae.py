"""How the toy's VAE is trained: the served module, on every training digit in every colour."""

from __future__ import annotations

import time

import torch
from diffusers import AutoencoderKL
from torch import Tensor
from torch.nn.functional import l1_loss, mse_loss

from walk_plugin_bagel.toy.saving import toy_settings
from walk_plugin_bagel.toy.schedule import Schedule
from walk_plugin_bagel.vae import config_of

STEPS = 600
_ROWS = 16
_UNCERTAINTY = 1e-3  # what a latent's distance from pure noise weighs, against a pixel's


def train_vae(pictures: Tensor, seed: int, *, steps: int = STEPS) -> AutoencoderKL:
    """Train from nothing.

    Args:
        pictures: (pictures, 3, 32, 32) of [-1, 1].
        seed: Of weights, choices and noise.
        steps: Of sixteen pictures each.
    """
    torch.manual_seed(seed)
    vae = AutoencoderKL(**config_of(toy_settings().glue.vae_config))
    schedule = Schedule(list(vae.parameters()), steps=steps, rate=2e-3, betas=(0.9, 0.99))
    began = time.process_time()
    for step in range(steps):
        seen = pictures[torch.randint(len(pictures), (_ROWS,))]
        meant = vae.encode(seen).latent_dist
        rebuilt = vae.decode(meant.sample()).sample
        off, uncertain = l1_loss(rebuilt, seen), meant.kl().mean() / meant.mean[0].numel()
        schedule.step(off + mse_loss(rebuilt, seen) + _UNCERTAINTY * uncertain)
        if step % 100 == 0 or step == steps - 1:
            print(
                f"vae {step:5d}/{steps}  pixels {off.item():.4f}  uncertainty {uncertain.item():.3f}"
                f"  {time.process_time() - began:.0f} s of CPU",
                flush=True,
            )
    return vae.eval().requires_grad_(False)


@torch.no_grad()
def latents_of(vae: AutoencoderKL, pictures: Tensor) -> tuple[Tensor, Tensor]:
    """What pictures mean, and how uncertain that is: twice (pictures, 4, 8, 8)."""
    meant = [vae.encode(some).latent_dist for some in pictures.split(100)]
    return torch.cat([each.mean for each in meant]), torch.cat([each.std for each in meant])
