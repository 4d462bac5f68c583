"""How often the toy dials what it was asked for, decoded as it is served and heard by the telephone's ear."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from walk_plugin_orpheus import Orpheus
from walk_plugin_orpheus.frames import SLOTS, align
from walk_plugin_orpheus.llama import OrpheusLM
from walk_plugin_orpheus.snac_stream import KeyedNoise, StreamingDecoder, load_snac
from walk_plugin_orpheus.text import Tokenizer
from walk_plugin_orpheus.toy.dialled import (
    DIGIT_FRAMES,
    LEADING_FRAMES,
    LONGEST,
    RATE,
    TRAILING_FRAMES,
    asked_for,
    is_held_out,
    some_digits,
)
from walk_plugin_orpheus.toy.dtmf import digits_heard
from walk_plugin_orpheus.toy.tokenizer_files import VOICES
from walk_plugin_orpheus.toy.train_language import TrainingCache
from walkserve_sdk import Checkpoint, SamplingParams

SAMPLINGS = {"greedy": SamplingParams(temperature=0), "family's defaults": Orpheus.Options().sampling}

_SEED = 20_000  # of the texts; training draws from other seeds, and never these digits
_MOST_TOKENS = SLOTS * (LEADING_FRAMES + DIGIT_FRAMES * LONGEST + TRAILING_FRAMES) + 15


@dataclass(frozen=True)
class Asked:
    """One text of the test, and what should be heard."""

    text: str
    voice: str
    digits: str


def held_out_texts(count: int) -> list[Asked]:
    """Texts whose digits no training text asks for in this order."""
    random = np.random.default_rng(_SEED)
    texts: list[Asked] = []
    while len(texts) < count:
        digits = some_digits(random)
        if is_held_out(digits):
            texts.append(Asked(asked_for(digits, random), VOICES[random.integers(0, len(VOICES))], digits))
    return texts


def print_score(folder: Path, *, texts: int) -> None:
    """Print, for each way of sampling, for how many texts the whole string of digits was right."""
    toy = Toy(folder)
    asked = held_out_texts(texts)
    for name, sampling in SAMPLINGS.items():
        heard = toy.say(asked, sampling)
        right = sum(each.digits == digits for each, digits in zip(asked, heard, strict=True))
        print(f"{name} {right}/{texts}", flush=True)
        for each, digits in zip(asked, heard, strict=True):
            if each.digits != digits:
                print(f"    {each.voice}: {each.text!r} was heard as {digits or 'nothing'}", flush=True)


class Toy:
    """The checkpoint of ``folder``, loaded as it is served, but without a server."""

    def __init__(self, folder: Path) -> None:
        checkpoint = Checkpoint({"main": folder, "snac": folder / "snac"}, label=str(folder))
        device = torch.device("cpu")
        self._tokenizer = Tokenizer.load(checkpoint, device=device, dtype=torch.float32)
        self._llama = OrpheusLM.load(checkpoint, device=device, dtype=torch.float32)
        self._decoder = StreamingDecoder(load_snac(checkpoint.folder("snac")))

    def say(self, asked: Sequence[Asked], sampling: SamplingParams) -> list[str]:
        """The digits that are heard for each text."""
        prompts = [self._tokenizer.prompt(each.text, each.voice) for each in asked]
        return [self._heard(tokens) for tokens in self._write(prompts, sampling)]

    @torch.no_grad()
    def _write(self, prompts: list[list[int]], sampling: SamplingParams) -> list[list[int]]:
        """Every row anew for every token: quick enough for a toy, and as it was trained."""
        generator = torch.Generator().manual_seed(0)
        rows = [list(prompt) for prompt in prompts]
        open_rows = list(range(len(rows)))
        for _ in range(_MOST_TOKENS):
            lengths = torch.tensor([len(rows[row]) for row in open_rows])
            read = torch.zeros(len(open_rows), int(lengths.max()), dtype=torch.int64)
            for place, row in enumerate(open_rows):
                read[place, : len(rows[row])] = torch.tensor(rows[row])
            hidden = self._llama.hidden(read.flatten(), TrainingCache(*read.shape)).view(*read.shape, -1)
            logits = self._llama.head.whole(hidden[torch.arange(len(open_rows)), lengths - 1])
            seen = torch.zeros_like(logits, dtype=torch.bool)
            for place, row in enumerate(open_rows):
                seen[place, rows[row]] = True
            for row, token in zip(open_rows, draw(logits, seen, sampling, generator).tolist(), strict=True):
                rows[row].append(token)
            open_rows = [row for row in open_rows if rows[row][-1] != self._llama.ids.end]
            if not open_rows:
                break
        return [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]

    def _heard(self, tokens: list[int]) -> str:
        ids = self._llama.ids
        codes = [token for token in tokens if token != ids.end]
        frames = align(codes, (), first_code=ids.first, codebook_size=ids.codebook_size).frames
        if not frames:
            return ""
        samples, _ = self._decoder.decode(
            torch.tensor(frames), self._decoder.initial(), last=True, noise=KeyedNoise(_noise_seed)
        )
        return digits_heard(samples.numpy(), RATE)


def draw(logits: Tensor, seen: Tensor, sampling: SamplingParams, generator: torch.Generator) -> Tensor:
    """One token per row: penalty, temperature, then the smallest set that holds ``top_p``."""
    penalty = sampling.repetition_penalty
    logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    if sampling.temperature == 0:
        return logits.argmax(dim=1)
    shares, tokens = (logits / sampling.temperature).softmax(dim=1).sort(dim=1, descending=True)
    kept = shares * (shares.cumsum(dim=1) - shares < sampling.top_p)
    return tokens.gather(1, torch.multinomial(kept, 1, generator=generator))[:, 0]


def _noise_seed(layer: int, cell: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{layer} {cell}".encode(), digest_size=7).digest())
