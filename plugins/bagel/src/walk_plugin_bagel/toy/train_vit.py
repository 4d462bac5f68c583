"""How the toy's ViT begins: it is taught to tell digits and colours apart, before anybody asks it in words.

A language model this small, with a ViT that knows nothing, learns the colours and never the digits.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from walk_plugin_bagel.settings import Settings
from walk_plugin_bagel.toy.drawings import COLOURS
from walk_plugin_bagel.toy.schedule import Schedule
from walk_plugin_bagel.toy.tables import fill_table
from walk_plugin_bagel.vit import ImageViT, Weights

STEPS = 2500
_ROWS = 64
_FURTHEST = 4


def begin_vit(settings: Settings, seed: int) -> Weights:
    """A ViT that knows nothing; its connector is loud, so that the language model hears it."""
    torch.manual_seed(seed)
    weights = Weights(settings)
    nn.init.normal_(weights.vit_model.vision_model.embeddings.position_embedding.weight, std=0.5)
    nn.init.normal_(weights.connector.fc1.weight, std=0.125)
    nn.init.normal_(weights.connector.fc2.weight, std=0.25)
    fill_table(weights.vit_pos_embed)
    return weights


def train_vit(
    weights: Weights, settings: Settings, pictures: Tensor, labels: Tensor, seed: int, *, steps: int = STEPS
) -> None:
    """Train with a linear head on the mean of all tokens, which is thrown away.

    Args:
        weights: From ``begin_vit``.
        settings: Theirs.
        pictures: (pictures, 3, 56, 56) of [-1, 1].
        labels: (pictures, 2): the digit and the colour.
        seed: Of the choice of pictures.
        steps: Of 64 pictures each.
    """
    torch.manual_seed(seed)
    vit = ImageViT(weights, settings.vision.patch_size)
    kinds = (10, len(COLOURS))
    head = nn.Linear(settings.vision.hidden_size, sum(kinds))
    learned = [*weights.vit_model.parameters(), *head.parameters()]
    schedule = Schedule(learned, steps=steps, rate=2e-3, betas=(0.9, 0.95))
    began = time.process_time()
    for step in range(steps):
        chosen = torch.randint(len(pictures), (_ROWS,))
        digit, colour = head(vit.features(moved(pictures[chosen])).mean(1)).split(kinds, dim=1)
        schedule.step(cross_entropy(digit, labels[chosen, 0]) + cross_entropy(colour, labels[chosen, 1]))
        if step % 100 == 0 or step == steps - 1:
            right = float((digit.argmax(1) == labels[chosen, 0]).float().mean())
            took = time.process_time() - began
            print(f"vit {step:5d}/{steps}  digits right {right:.3f}  {took:.0f} s of CPU", flush=True)


def moved(pictures: Tensor) -> Tensor:
    """Each a few pixels aside, so that the toy knows digits and not these pictures."""
    padded = pad(pictures, [_FURTHEST] * 4, value=-1.0)
    height, width = pictures.shape[2:]
    corners = torch.randint(2 * _FURTHEST + 1, (len(pictures), 2)).tolist()
    pairs = zip(padded, corners, strict=True)
    return torch.stack([each[:, top : top + height, left : left + width] for each, (top, left) in pairs])
