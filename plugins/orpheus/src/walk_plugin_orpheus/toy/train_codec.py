"""How the toy's codec is trained: SNAC's own network, small, on dialled digits, without an adversary.

For the first steps latents pass the quantizers unrounded. Then each codebook is seeded with what its
encoder gives, and for most of the training codes that nobody uses are seeded again: random codebooks stay
unused, and a handful of codes is too few for ten digits.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from snac import SNAC
from snac.vq import ResidualVectorQuantize, VectorQuantize
from torch import Tensor
from torch.nn.functional import avg_pool1d, l1_loss, mse_loss, normalize

from walk_plugin_orpheus.frames import CODEBOOK_SLOTS, SLOTS, Frame
from walk_plugin_orpheus.toy.dialled import (
    DIGIT_FRAMES,
    FRAME_SAMPLES,
    LEADING_FRAMES,
    RATE,
    dialled,
    some_digits,
)
from walk_plugin_orpheus.toy.schedule import Schedule

CONFIG = {
    "sampling_rate": RATE,
    "encoder_dim": 8,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 128,
    "decoder_rates": [8, 8, 4, 2],
    "attn_window_size": None,
    "codebook_size": 64,
    "codebook_dim": 8,
    "vq_strides": [4, 2, 1],
    "noise": True,
    "depthwise": True,
}

STEPS = 2189
_UNROUNDED_STEPS = 250
_ROWS, _CROP_FRAMES = 3, 4
_SEED_ROWS = 64
_RESEED_EVERY, _RESEED_UNTIL = 40, 0.7
_STFT_WINDOWS = (256, 512, 2048)


@dataclass(frozen=True)
class Quantised:
    """What the quantizers made of some latents.

    Attributes:
        latents: ``(rows, channels, positions)``, for the decoder.
        codes: For each codebook ``(rows, positions / stride)``.
        asked: For each codebook ``(vectors, 8)``, what it was to stand for.
        loss: Codebooks towards vectors, and, a quarter as strong, vectors towards codebooks.
    """

    latents: Tensor
    codes: list[Tensor]
    asked: list[Tensor]
    loss: Tensor


def train_codec(seed: int, *, steps: int = STEPS) -> SNAC:
    """Train SNAC from nothing, in ``steps`` steps of three crops each; ready to encode and decode."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    snac = SNAC(**CONFIG)
    unrounded = min(_UNROUNDED_STEPS, steps // 2)
    schedule = Schedule(list(snac.parameters()), steps=steps, rate=3e-3, betas=(0.8, 0.99))
    used = [torch.zeros(snac.codebook_size, dtype=torch.int64) for _ in snac.quantizer.quantizers]
    began = time.perf_counter()
    for step in range(steps):
        if step == unrounded:
            _seed_codebooks(snac, _crops(random, _SEED_ROWS))
        wave = _crops(random, _ROWS)
        quantised = quantise(snac.quantizer, snac.encoder(wave), is_rounded=step >= unrounded)
        heard = snac.decoder(quantised.latents)
        loss = 60 * mse_loss(heard, wave) + 5 * l1_loss(heard, wave) + 0.3 * _spectral_loss(heard, wave)
        schedule.step(loss + quantised.loss if step >= unrounded else loss)
        for count, codes in zip(used, quantised.codes, strict=True):
            count += codes.flatten().bincount(minlength=len(count))
        if step % _RESEED_EVERY == 0:
            if unrounded < step < _RESEED_UNTIL * steps:
                for level, count, asked in zip(snac.quantizer.quantizers, used, quantised.asked, strict=True):
                    _seed(level, asked, rows=(count == 0).nonzero().flatten())
            in_use = [int((count > 0).sum()) for count in used]
            used = [torch.zeros_like(count) for count in used]
        if step % 100 == 0 or step == steps - 1:
            error = mse_loss(heard, wave).item()
            print(
                f"codec {step:5d}/{steps}  mse {error:.5f}  loss {loss.item():.3f}  codes in use {in_use}"
                f"  {time.perf_counter() - began:.0f} s",
                flush=True,
            )
    return snac.eval()


def quantise(quantizer: ResidualVectorQuantize, latents: Tensor, *, is_rounded: bool = True) -> Quantised:
    """The package's residual quantizer, with a loss and without code 0.

    Code 0 is never chosen: the authors' decoder drops it, with the frame it stands in and the next one.
    """
    total = torch.zeros_like(latents)
    loss = latents.new_zeros(())
    all_codes, all_asked = [], []
    for level in quantizer.quantizers:
        asked = level.in_proj(avg_pool1d(latents - total, level.stride, level.stride))
        codes = _nearest(level, asked)
        chosen = level.decode_code(codes)
        loss = loss + mse_loss(chosen, asked.detach()) + 0.25 * mse_loss(asked, chosen.detach())
        rounded = asked + (chosen - asked).detach() if is_rounded else asked  # straight through
        total = total + level.out_proj(rounded).repeat_interleave(level.stride, dim=-1)
        all_codes.append(codes)
        all_asked.append(asked.detach().transpose(1, 2).flatten(0, 1))
    return Quantised(total, all_codes, all_asked, loss)


def _nearest(level: VectorQuantize, asked: Tensor) -> Tensor:
    """By angle, as the package does: (rows, 8, positions) -> (rows, positions)."""
    likeness = normalize(level.codebook.weight[1:]) @ normalize(asked, dim=1)
    return likeness.argmax(dim=1) + 1


@torch.no_grad()
def _seed_codebooks(snac: SNAC, wave: Tensor) -> None:
    """Coarse to fine, for a codebook stands for what the ones before it left over."""
    latents = snac.encoder(wave)
    for index, level in enumerate(snac.quantizer.quantizers):
        asked = quantise(snac.quantizer, latents).asked[index]
        _seed(level, asked, rows=torch.arange(level.codebook_size))


@torch.no_grad()
def _seed(level: VectorQuantize, asked: Tensor, *, rows: Tensor) -> None:
    level.codebook.weight[rows] = asked[torch.randint(len(asked), (len(rows),))]


def _crops(random: np.random.Generator, rows: int) -> Tensor:
    """(rows, 1, samples): four frames each, from anywhere in what was dialled."""
    crops = []
    for _ in range(rows):
        wave = dialled(some_digits(random))
        start = FRAME_SAMPLES * int(random.integers(0, len(wave) // FRAME_SAMPLES - _CROP_FRAMES + 1))
        crops.append(wave[start : start + FRAME_SAMPLES * _CROP_FRAMES])
    return torch.from_numpy(np.stack(crops))[:, None]


def _spectral_loss(heard: Tensor, wave: Tensor) -> Tensor:
    """Distance of magnitudes and of their logarithms, at several resolutions (Yamamoto et al. 2020)."""
    loss = wave.new_zeros(())
    for window in _STFT_WINDOWS:
        shape = torch.hann_window(window)
        ours, theirs = (
            torch.stft(sound[:, 0], window, window // 4, window=shape, return_complex=True)
            .abs()
            .clamp_min(1e-2)
            for sound in (heard, wave)
        )
        loss = loss + l1_loss(ours, theirs) + l1_loss(ours.log(), theirs.log())
    return loss / len(_STFT_WINDOWS)


@torch.no_grad()
def frames_of(snac: SNAC, digits: str) -> list[Frame]:
    """Encode what is dialled: the codes of each frame, in slot order."""
    wave = torch.from_numpy(dialled(digits))[None, None]
    codes = quantise(snac.quantizer, snac.encoder(wave)).codes
    frames = torch.empty(wave.shape[-1] // FRAME_SAMPLES, SLOTS, dtype=torch.int64)
    for slots, codebook in zip(CODEBOOK_SLOTS, codes, strict=True):
        frames[:, list(slots)] = codebook.reshape(len(frames), len(slots))
    return [tuple(frame) for frame in frames.tolist()]


def composed(alone: dict[str, list[Frame]], digits: str) -> list[Frame]:
    """The frames of several digits, from those of each digit dialled alone.

    A digit then has the same codes wherever it stands, which is what so small a language model can learn.
    """
    spoken = slice(LEADING_FRAMES, LEADING_FRAMES + DIGIT_FRAMES)
    middle = [frame for digit in digits for frame in alone[digit][spoken]]
    return [*alone[digits[0]][: spoken.start], *middle, *alone[digits[-1]][spoken.stop :]]


def save_codec(snac: SNAC, folder: Path) -> None:
    """Write ``config.json`` and ``pytorch_model.bin``, as published for the 24 kHz model but with 16 bits."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG) + "\n")
    stored = {name: tensor.half() for name, tensor in snac.state_dict().items()}
    torch.save(stored, folder / "pytorch_model.bin")
