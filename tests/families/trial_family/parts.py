"""The components of the family for trials: a few thousand seeded numbers, and whatever sleeps or raises."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from walkserve_sdk import Batch, Gives, KVShape, causal

VOCABULARY = 64
END = 49  # in the middle: often enough what is drawn
DIM, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 32, 4, 2, 8, 2
CONTEXT = 1024
SYLLABLES = ("ba", "de", "gi", "lo", "mu", "na", "re", "ti")


class Trouble(RuntimeError):
    """Raised where a request has asked for it."""


def _numbers(*shape: int, seed: int) -> Tensor:
    """Seeded, of about the size that keeps sums of them at 1."""
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made / shape[-1] ** 0.5


def _wait(milliseconds: list[int]) -> None:
    """Rows wait together, as they compute together."""
    if any(milliseconds):
        time.sleep(max(milliseconds) / 1000)


class Speller:
    """Text to ids, one for each character."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Speller:
        return cls()

    def spell(self, batch: Batch) -> Gives:
        _wait([options.prepare_ms for options in batch.options])
        if any(options.fail == "prepare" for options in batch.options):
            raise Trouble("spelling fails, as it is asked to")
        ids = [[1 + ord(letter) % (VOCABULARY - 1) for letter in text] for text in batch.values("text")]
        return {"token": ids, "length": [len(one) for one in ids]}


class Writer:
    """A transformer of two layers, with grouped heads and positions as waves."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        def weight(*shape: int, seed: int) -> Tensor:
            return _numbers(*shape, seed=seed).to(device, dtype)

        self.kv_shape = KVShape(layers=LAYERS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, context=CONTEXT)
        self._words = weight(VOCABULARY, DIM, seed=1) * DIM**0.5
        self._head = weight(VOCABULARY, DIM, seed=3) * 2  # not the words: it would say the last one again
        wide = (HEADS + 2 * KV_HEADS) * HEAD_DIM
        self._qkv = [weight(wide, DIM, seed=10 + layer) for layer in range(LAYERS)]
        self._out = [weight(DIM, HEADS * HEAD_DIM, seed=20 + layer) for layer in range(LAYERS)]
        self._up = [weight(2 * DIM, DIM, seed=30 + layer) for layer in range(LAYERS)]
        self._down = [weight(DIM, 2 * DIM, seed=40 + layer) for layer in range(LAYERS)]
        self._waves = torch.arange(1, DIM + 1, device=device, dtype=dtype) / DIM

    @classmethod
    def load(cls, checkpoint: Any, *, device: torch.device, dtype: torch.dtype) -> Writer:
        return cls(device, dtype)

    @causal
    def next(self, batch: Batch) -> Gives:
        """Read what came last and write the next id; the end only after a few."""
        rows = list(zip(batch.options, batch.turn, batch.cache.lengths, strict=True))
        # what has no turn behind it reads the text; the second Walk begins with a single id
        _wait([options.turn_ms if turn else options.read_ms for options, turn, _ in rows])
        if any(options.fail == "turn" and turn == options.at for options, turn, _ in rows):
            raise Trouble("a turn fails, as it is asked to")
        logits = functional.linear(batch.last(self._hidden(batch)), self._head).float()
        return {"token": batch.sample(logits, stop={END: "stop"})}

    def _hidden(self, batch: Batch) -> Tensor:
        """(tokens, DIM)"""
        cache = batch.cache
        hidden = self._words[batch.cat("token")]
        at = cache.positions[: len(hidden)].to(hidden.dtype)
        hidden = hidden + torch.sin(at[:, None] * self._waves)
        for layer in range(LAYERS):
            qkv = functional.linear(functional.normalize(hidden, dim=-1), self._qkv[layer])
            q, k, v = qkv.view(len(hidden), -1, HEAD_DIM).split([HEADS, KV_HEADS, KV_HEADS], dim=1)
            seen = cache.attend(layer, q.contiguous(), k.contiguous(), v.contiguous())
            hidden = hidden + functional.linear(seen.reshape(len(hidden), -1), self._out[layer])
            up = functional.relu(functional.linear(hidden, self._up[layer]))
            hidden = hidden + functional.linear(up, self._down[layer])
        return hidden


class Teller:
    """Ids to words, and to marks that depend on all that was told before: it keeps their sum as its state."""

    def __init__(self) -> None:
        self._marks = _numbers(VOCABULARY, 8, seed=2)

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Teller:
        return cls()

    def tell(self, batch: Batch) -> Gives:
        helpings, rows = batch.values("ids"), list(batch.options)
        _wait([options.tell_ms for options in rows])
        words: list[str | None] = []
        marks: list[Tensor | None] = []
        totals: list[Tensor | None] = []
        for row, (helping, options) in enumerate(zip(helpings, rows, strict=True)):
            if options.fail == "teller" and helping.start + len(helping.items) > options.at:
                raise Trouble("telling fails, as it is asked to")
            total = batch.state[row] if batch.state[row] is not None else torch.zeros(8)
            told = []
            for id in helping.new:
                total = total * 0.5 + self._marks[id]  # one by one: how they were cut does not matter
                told.append(total)
            batch.state[row] = total
            words.append("".join(f"{_word(id)} " for id in helping.new) or None)
            wide = -(-options.width // 8)
            marks.append(torch.stack(told).repeat(1, wide)[:, : options.width] if told else None)
            totals.append(total if helping.last else None)
        return {"words": words, "marks": marks, "total": totals}


def _word(id: int) -> str:
    return SYLLABLES[id // 8] + SYLLABLES[id % 8]


class Scales:
    """How heavy a text is."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Scales:
        return cls()

    def weigh(self, batch: Batch) -> Gives:
        return {"weight": [torch.tensor([float(sum(map(ord, text)))]) for text in batch.values("text")]}
