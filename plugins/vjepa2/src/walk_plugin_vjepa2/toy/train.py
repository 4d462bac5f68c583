"""Make the toy checkpoint from nothing: ``python -m walk_plugin_vjepa2.toy.train OUT``.

About 100 seconds of one CPU core: the encoder first, then the predictor on its latents. At the end the
checkpoint plans its way to goals it was never shown, and the world says how near it came.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from walk_plugin_vjepa2.toy.saving import save
from walk_plugin_vjepa2.toy.score import print_score
from walk_plugin_vjepa2.toy.train_encoder import STEPS as ENCODER_STEPS
from walk_plugin_vjepa2.toy.train_encoder import train_encoder
from walk_plugin_vjepa2.toy.train_predictor import STEPS as PREDICTOR_STEPS
from walk_plugin_vjepa2.toy.train_predictor import train_predictor


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m walk_plugin_vjepa2.toy.train", description=__doc__)
    parser.add_argument("out", type=Path, help="the checkpoint's folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few steps: every file, but nothing learned")
    parser.add_argument("--score", action="store_true", help="train nothing, measure what the folder holds")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if not asked.score:
        make(asked.out, seed=asked.seed, is_quick=asked.quick)
    print_score(asked.out, goals=1 if asked.quick else 40)


def make(folder: Path, *, seed: int, is_quick: bool) -> None:
    """Train both halves and write the whole checkpoint, 16 bits, in the published layout."""
    began = time.process_time()
    folder.mkdir(parents=True, exist_ok=True)
    encoder = train_encoder(seed, steps=3 if is_quick else ENCODER_STEPS)
    predictor = train_predictor(encoder, seed, steps=3 if is_quick else PREDICTOR_STEPS)
    save(folder, encoder, predictor)
    print(f"{folder}: made in {time.process_time() - began:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
