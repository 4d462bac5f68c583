"""How a component's own tensors come out of a checkpoint, strictly, and only they.

All of the model but the VAE is in one file of 29 GB. It is mapped, and a component looks at its own tensors
alone, so that each is read once, by the process that holds its component.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from walkserve_sdk import Checkpoint, LoadError
from walkserve_sdk.nn import load_strictly

PAINTER = ("language_model", "time_embedder", "vae2llm", "llm2vae", "latent_pos_embed")
"""What the language model holds: with both its experts, and what turns latents into tokens and back."""
LOOKER = ("vit_model", "connector", "vit_pos_embed")
"""What the ViT holds: with what makes its patches tokens of the language model."""


def load_part(
    module: nn.Module,
    checkpoint: Checkpoint,
    prefixes: Iterable[str],
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Fill ``module``, built on the meta device, with the tensors of ``ema.safetensors`` that are its own.

    Raises:
        LoadError: Tensors that are missing, misshaped, or of no component at all; all of them.
    """
    path = checkpoint.file("ema.safetensors")
    others = {*PAINTER, *LOOKER} - set(prefixes)
    tensors = read_tensors(path, leaving=others)
    load_strictly(module, tensors, device=device, dtype=dtype, place=str(path))
    module.eval().requires_grad_(False)


def read_tensors(path: Path, *, leaving: Iterable[str] = ()) -> dict[str, Tensor]:
    """A file's tensors by name, mapped, without those whose name begins with a word of ``leaving``.

    Raises:
        LoadError: The file is missing or unreadable.
    """
    left = set(leaving)
    try:
        with safe_open(path, framework="pt") as file:
            return {
                name: file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118 - no mapping
                if name.partition(".")[0] not in left
            }
    except (SafetensorError, OSError) as error:
        raise LoadError(f"{path} cannot be read: {error}; download it again") from error
