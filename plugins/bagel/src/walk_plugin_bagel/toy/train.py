"""Make the toy checkpoint from nothing: ``python -m walk_plugin_bagel.toy.train OUT``.

About seven minutes on one CPU core: the VAE first, then the ViT, then all the rest on both. At the end the
checkpoint paints, and describes digits that it was never shown, and a judge that knows no model counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from walk_plugin_bagel.preparing import prepare
from walk_plugin_bagel.text import Tokenizer, delimiters, open_tokenizer
from walk_plugin_bagel.toy.drawings import COLOURS, TRAINED, digits, drawn
from walk_plugin_bagel.toy.saving import save_model, save_vae, toy_settings, write_configs
from walk_plugin_bagel.toy.score import print_score
from walk_plugin_bagel.toy.tokenizer_files import write_tokenizer
from walk_plugin_bagel.toy.train_joint import STEPS as JOINT_STEPS
from walk_plugin_bagel.toy.train_joint import Lessons, begin_language, train_joint
from walk_plugin_bagel.toy.train_vae import STEPS as VAE_STEPS
from walk_plugin_bagel.toy.train_vae import latents_of, train_vae
from walk_plugin_bagel.toy.train_vit import STEPS as VIT_STEPS
from walk_plugin_bagel.toy.train_vit import begin_vit, train_vit
from walkserve_sdk import Checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m walk_plugin_bagel.toy.train", description=__doc__)
    parser.add_argument("out", type=Path, help="the checkpoint's folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few steps: every file, but nothing learned")
    parser.add_argument("--score", action="store_true", help="train nothing, measure what the folder holds")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if not asked.score:
        make(asked.out, seed=asked.seed, is_quick=asked.quick)
    print_score(asked.out, pictures=4 if asked.quick else 120, descriptions=4 if asked.quick else 60)


def make(folder: Path, *, seed: int, is_quick: bool) -> None:
    """Train all parts and write the whole checkpoint, 16 bits, in the published layout."""
    began = time.process_time()
    folder.mkdir(parents=True, exist_ok=True)
    labels, pictures, seen = _pictures(50 if is_quick else TRAINED)
    vae = train_vae(pictures, seed, steps=3 if is_quick else VAE_STEPS)
    means, spreads = latents_of(vae, pictures)
    shift, scale = float(means.mean()), 1 / float(means.std())
    write_tokenizer(folder)
    write_configs(folder, scale=scale, shift=shift)
    save_vae(vae, folder)

    settings = toy_settings()
    tokenizer = open_tokenizer(Checkpoint({"main": folder}, label=str(folder)))
    vit = begin_vit(settings, seed)
    train_vit(vit, settings, seen, labels, seed, steps=3 if is_quick else VIT_STEPS)
    parts = train_joint(
        begin_language(settings, seed),
        vit,
        settings,
        Tokenizer(tokenizer),
        delimiters(tokenizer),
        Lessons(labels, (means - shift) * scale, spreads * scale, seen),
        seed,
        steps=3 if is_quick else JOINT_STEPS,
    )
    save_model(parts, folder)
    print(f"{folder}: made in {time.process_time() - began:.0f} s of CPU", flush=True)


def _pictures(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first digits in every colour: labels (pictures, 2), and what the VAE and the ViT see, of [-1,
    1]."""
    known, limits = digits(), toy_settings().images
    labels, pictures = [], []
    for image, label in zip(known.images[:count], known.labels[:count], strict=True):
        for colour, name in enumerate(COLOURS):
            labels.append([int(label), colour])
            pictures.append(prepare(drawn(image, name), limits))
    for_vae, for_vit = (
        torch.from_numpy(np.stack(each)).permute(0, 3, 1, 2).float() / 127.5 - 1
        for each in ([one.for_vae for one in pictures], [one.for_vit for one in pictures])
    )
    return torch.tensor(labels), for_vae, for_vit


if __name__ == "__main__":
    main()
