"""Make the toy checkpoint from nothing: ``python -m walk_plugin_orpheus.toy.train OUT``.

About ten minutes on one CPU core: the codec first, then the codes of each digit alone, then the language
model. At the end the checkpoint dials numbers it was never trained on, and a listener that knows only the
DTMF standard says how many it got right.
"""

import argparse
import time
from pathlib import Path

import torch

from walk_plugin_orpheus.ids import read_speech_ids
from walk_plugin_orpheus.text import Tokenizer
from walk_plugin_orpheus.toy.score import print_score
from walk_plugin_orpheus.toy.tokenizer_files import write_tokenizer
from walk_plugin_orpheus.toy.train_codec import STEPS as CODEC_STEPS
from walk_plugin_orpheus.toy.train_codec import frames_of, save_codec, train_codec
from walk_plugin_orpheus.toy.train_language import STEPS as LANGUAGE_STEPS
from walk_plugin_orpheus.toy.train_language import save_language, toy_config, train_language
from walkserve_sdk import Checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m walk_plugin_orpheus.toy.train", description=__doc__)
    parser.add_argument("out", type=Path, help="the checkpoint's folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few steps: every file, but nothing learned")
    parser.add_argument("--score", action="store_true", help="train nothing, measure what the folder holds")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if not asked.score:
        make(asked.out, seed=asked.seed, is_quick=asked.quick)
    print_score(asked.out, texts=2 if asked.quick else 40)


def make(folder: Path, *, seed: int, is_quick: bool) -> None:
    """Train both halves and write the whole checkpoint, 16 bits, in the published layout."""
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    snac = train_codec(seed, steps=6 if is_quick else CODEC_STEPS)
    save_codec(snac, folder / "snac")
    alone = {digit: frames_of(snac, digit) for digit in "0123456789"}

    checkpoint = Checkpoint({"main": folder, "snac": folder / "snac"}, label=str(folder))
    tokenizer = Tokenizer.load(checkpoint, device=None, dtype=None)
    ids = read_speech_ids(checkpoint)
    config = toy_config(ids)
    weights = train_language(config, tokenizer, ids, alone, seed, steps=3 if is_quick else LANGUAGE_STEPS)
    save_language(weights, config, folder)
    print(f"{folder}: made in {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
