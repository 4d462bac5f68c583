"""How often the toy paints what it was asked for, and says what it is shown; loaded as it is served."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walk_plugin_bagel.grids import numbers_of
from walk_plugin_bagel.guidance import guided
from walk_plugin_bagel.mot import BagelLM
from walk_plugin_bagel.pen import Pen
from walk_plugin_bagel.preparing import prepare
from walk_plugin_bagel.schedule import make_schedule
from walk_plugin_bagel.settings import read_settings
from walk_plugin_bagel.text import Tokenizer
from walk_plugin_bagel.toy.drawings import COLOURS, PROMPTS, QUESTIONS, TRAINED, digits, drawn, said
from walk_plugin_bagel.toy.judge import Judge
from walk_plugin_bagel.toy.practice import Practice
from walk_plugin_bagel.vae import ImageVAE
from walk_plugin_bagel.vit import ImageViT
from walkserve_sdk import Checkpoint

PAINTING = {
    "num_timesteps": 24,
    "timestep_shift": 3.0,
    "cfg_text_scale": 4.0,
    "cfg_img_scale": 1.0,
    "cfg_interval": (0.4, 1.0),
    "cfg_renorm_type": "global",
    "cfg_renorm_min": 0.0,
}
"""What the toy is best asked to paint with."""

_SEED = 20_000  # of what is asked and of the noise; training draws from other seeds
_MOST_TOKENS = 12


@dataclass(frozen=True)
class Asked:
    """What a picture should show, and the words that ask for it, or that it should be described with."""

    text: str
    digit: int
    colour: str


def prompts(count: int, seed: int = _SEED) -> list[Asked]:
    """Every digit as often as every other, in random colours and words."""
    random = np.random.default_rng(seed)
    asked: list[Asked] = []
    for each in range(count):
        digit, colour = each % 10, str(random.choice(list(COLOURS)))
        asked.append(Asked(said(str(random.choice(PROMPTS)), digit, colour), digit, colour))
    return asked


def unseen(count: int, seed: int = _SEED) -> list[tuple[NDArray[np.uint8], Asked]]:
    """Pictures of digits that were not trained with, and what they should be described as."""
    random = np.random.default_rng(seed)
    known = digits()
    pictures: list[tuple[NDArray[np.uint8], Asked]] = []
    for place in random.choice(np.arange(TRAINED, len(known.images)), count, replace=False):
        digit, colour = int(known.labels[place]), str(random.choice(list(COLOURS)))
        answer = said(QUESTIONS["Describe the image."], digit, colour)
        pictures.append((drawn(known.images[place], colour), Asked(answer, digit, colour)))
    return pictures


@torch.inference_mode()
def print_score(folder: Path, *, pictures: int, descriptions: int) -> None:
    """Print how many paintings and descriptions are right."""
    toy, judge, asked = Toy(folder), Judge(len(digits().images)), prompts(pictures)
    painted = toy.paint([each.text for each in asked])
    digit = sum(judge.digit(picture) == each.digit for picture, each in zip(painted, asked, strict=True))
    colour = sum(judge.colour(picture) == each.colour for picture, each in zip(painted, asked, strict=True))
    print(f"of {pictures} pictures {digit} show the right digit, {colour} the right colour", flush=True)
    shown = unseen(descriptions)
    told = toy.describe([picture for picture, _ in shown])
    right = sum(text == each.text for text, (_, each) in zip(told, shown, strict=True))
    print(f"of {descriptions} unseen digits {right} are described right", flush=True)


class Toy:
    """The checkpoint of ``folder``, without a server: many rows, each as the model is served."""

    def __init__(self, folder: Path) -> None:
        checkpoint = Checkpoint({"main": folder}, label=str(folder))
        cpu = {"device": torch.device("cpu"), "dtype": torch.float32}
        self._settings = read_settings(checkpoint)
        self._tokenizer = Tokenizer.load(checkpoint, device=None, dtype=None)
        self._pen = Pen.load(checkpoint, device=None, dtype=None)
        self._llm, self._vit, self._vae = (
            part.load(checkpoint, **cpu) for part in (BagelLM, ImageViT, ImageVAE)
        )

    def paint(self, texts: list[str], seed: int = _SEED) -> list[NDArray[np.uint8]]:
        """A picture for each text."""
        side = self._settings.images.vae_transform.max_size // self._settings.latent_stride
        random = torch.Generator().manual_seed(seed)
        latents = torch.randn(len(texts), side, side, self._settings.latent_channels, generator=random)
        full, no_text = Practice(len(texts)), Practice(len(texts))
        self._llm.prefill_text(full.turn(ids=[self._tokenizer.block(text) for text in texts]))
        how = {name: PAINTING[name] for name in PAINTING if "renorm" not in name}
        schedule = make_schedule(**how)
        for t, step, is_guided in zip(schedule.timesteps, schedule.steps, schedule.guided, strict=True):
            velocity = self._velocity(full, latents, t)
            if is_guided:
                without = self._velocity(no_text, latents, t)
                velocity = torch.stack([_guided(*pair) for pair in zip(velocity, without, strict=True)])
            latents = latents - step * velocity
        return [self._vae.picture(each).numpy() for each in latents]

    def describe(self, pictures: list[NDArray[np.uint8]], question: str = "Describe the image.") -> list[str]:
        """What each picture, uint8 (32, 32, 3), shows."""
        seen = [prepare(picture, self._settings.images).for_vit for picture in pictures]
        rows = Practice(len(pictures))
        tokens = self._vit.tokens(torch.stack([numbers_of(torch.from_numpy(each)) for each in seen]))
        self._llm.prefill_vit(rows.turn(seen=tokens))
        block = self._tokenizer.block(question)
        self._llm.prefill_text(rows.turn(ids=[block] * len(pictures)))
        begin, end = block[0], block[-1]
        written = [[begin] for _ in pictures]
        for _ in range(_MOST_TOKENS):
            logits = self._llm.logits(rows.turn(ids=[row[-1:] for row in written]))
            for row, token in zip(written, logits.argmax(1).tolist(), strict=True):
                row.append(token)
        return [self._pen.bytes(_until(row[1:], end)).decode("utf-8", "replace") for row in written]

    def _velocity(self, rows: Practice, latents: Tensor, t: float) -> Tensor:
        turn = rows.turn(latents=latents, t=[t] * rows.rows, keeps=False)
        return torch.stack(self._llm.velocity(turn)["velocity"])


def _guided(full: Tensor, no_text: Tensor) -> Tensor:
    return guided(
        full,
        no_text,
        None,
        cfg_text_scale=PAINTING["cfg_text_scale"],
        cfg_img_scale=PAINTING["cfg_img_scale"],
        cfg_renorm_type="global",
        cfg_renorm_min=PAINTING["cfg_renorm_min"],
    )


def _until(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens
