"""How the toy learns to paint and to describe, together: the served language model and ViT, on the VAE's
latents.

A step has two halves. Pictures to paint: a prompt, then latents between the picture and noise, and the model
says which way the noise lies (rectified flow, as published); one prompt in eight is missing, which is what
guidance by text is measured against. Pictures to describe: a picture, a question, and the answer token by
token.
"""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from walk_plugin_bagel.grids import to_grid
from walk_plugin_bagel.mot import BagelLM, Weights
from walk_plugin_bagel.settings import Settings
from walk_plugin_bagel.text import Tokenizer
from walk_plugin_bagel.toy.drawings import COLOURS, PROMPTS, QUESTIONS, said
from walk_plugin_bagel.toy.practice import Practice
from walk_plugin_bagel.toy.schedule import Schedule
from walk_plugin_bagel.toy.tables import fill_table
from walk_plugin_bagel.toy.train_vit import moved
from walk_plugin_bagel.vit import ImageViT
from walk_plugin_bagel.vit import Weights as ViTWeights

STEPS = 1450
_PROMPTED, _UNPROMPTED, _DESCRIBED = 42, 6, 24
_MEMORY = 0.995  # of the average of the weights, which is what is kept
_NAMES = list(COLOURS)


@dataclass(frozen=True)
class Lessons:
    """Every training picture, as each part of the model needs it.

    Args:
        labels: (pictures, 2): the digit and the colour.
        means: (pictures, channels, rows, columns) of the latent, as the language model sees latents.
        spreads: How uncertain each of these is.
        seen: (pictures, 3, 56, 56) of [-1, 1]: for the ViT.
    """

    labels: Tensor
    means: Tensor
    spreads: Tensor
    seen: Tensor


def begin_language(settings: Settings, seed: int) -> Weights:
    """A language model that knows nothing."""
    torch.manual_seed(seed)
    weights = Weights(settings)
    nn.init.normal_(weights.language_model.model.embed_tokens.weight, std=0.02)
    fill_table(weights.latent_pos_embed)
    return weights


def train_joint(
    weights: Weights,
    vit_weights: ViTWeights,
    settings: Settings,
    tokenizer: Tokenizer,
    ids: dict[str, int],
    lessons: Lessons,
    seed: int,
    *,
    steps: int = STEPS,
) -> dict[str, nn.Module]:
    """Train both; returns the average of each, by name."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    llm = BagelLM(weights, settings.language, ids)
    vit = ImageViT(vit_weights, settings.vision.patch_size)
    parts: dict[str, nn.Module] = {"llm": weights, "vit": vit_weights}
    averages = {name: deepcopy(part).eval().requires_grad_(False) for name, part in parts.items()}
    learned = [each for part in parts.values() for each in part.parameters() if each.requires_grad]
    schedule = Schedule(learned, steps=steps, rate=2e-3, betas=(0.9, 0.95))
    began = time.process_time()
    for step in range(steps):
        off = _painting(llm, settings, tokenizer, lessons, random)
        wrong = _describing(llm, vit, tokenizer, lessons, random)
        schedule.step(off + wrong)
        with torch.no_grad():
            for name, part in parts.items():
                for mean, new in zip(averages[name].parameters(), part.parameters(), strict=True):
                    mean.lerp_(new, 1 - min(_MEMORY, (1 + step) / (10 + step)))
        if step % 100 == 0 or step == steps - 1:
            print(
                f"joint {step:5d}/{steps}  velocity {off.item():.4f}  words {wrong.item():.4f}"
                f"  {time.process_time() - began:.0f} s of CPU",
                flush=True,
            )
    return averages


def _painting(
    llm: BagelLM, settings: Settings, tokenizer: Tokenizer, lessons: Lessons, random: np.random.Generator
) -> Tensor:
    """How far off the velocities are."""
    chosen = torch.randint(len(lessons.labels), (_PROMPTED + _UNPROMPTED,))
    latents = lessons.means[chosen] + lessons.spreads[chosen] * torch.randn_like(lessons.means[chosen])
    clean = torch.stack([to_grid(each, settings.glue.latent_patch_size) for each in latents])
    noise, t = torch.randn_like(clean), torch.randn(len(clean)).sigmoid()
    at = t[:, None, None, None]
    noisy, times = (1 - at) * clean + at * noise, t.tolist()
    prompts = [_about(random.choice(PROMPTS), label) for label in lessons.labels[chosen[:_PROMPTED]]]
    prompted, unprompted = Practice(_PROMPTED), Practice(_UNPROMPTED)
    llm.prefill_text(prompted.turn(ids=[tokenizer.block(prompt) for prompt in prompts]))
    velocities = [
        velocity
        for rows, some in ((prompted, slice(_PROMPTED)), (unprompted, slice(_PROMPTED, None)))
        for velocity in llm.velocity(rows.turn(latents=noisy[some], t=times[some], keeps=False))["velocity"]
    ]
    return mse_loss(torch.stack(velocities), noise - clean)


def _describing(
    llm: BagelLM, vit: ImageViT, tokenizer: Tokenizer, lessons: Lessons, random: np.random.Generator
) -> Tensor:
    """How surprised it is at the answers."""
    chosen = torch.randint(len(lessons.labels), (_DESCRIBED,))
    questions = random.choice(list(QUESTIONS), _DESCRIBED)
    answers = [
        tokenizer.block(_about(QUESTIONS[question], label))
        for question, label in zip(questions, lessons.labels[chosen], strict=True)
    ]
    rows = Practice(_DESCRIBED)
    llm.prefill_vit(rows.turn(seen=vit.tokens(moved(lessons.seen[chosen]))))
    llm.prefill_text(rows.turn(ids=[tokenizer.block(question) for question in questions]))
    logits = llm.logits(rows.turn(ids=[answer[:-1] for answer in answers]))
    return cross_entropy(logits, torch.tensor([token for answer in answers for token in answer[1:]]))


def _about(template: str, label: Tensor) -> str:
    digit, colour = label.tolist()
    return said(template, digit, _NAMES[colour])
