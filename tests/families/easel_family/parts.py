"""The components of the family that writes and paints."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from trial_family.parts import END, VOCABULARY, Trouble, Writer, _word

from walkserve_sdk import Batch, Gives, causal
from walkserve_sdk.media.images import read_image
from walkserve_sdk.nn import score_record, scores_of


class Reader:
    """Characters and images to ids: an image is its mean colour."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Reader:
        return cls()

    def read(self, batch: Batch) -> Gives:
        ids = []
        for texts, images in zip(batch.values("texts"), batch.values("images"), strict=True):
            letters = [ord(letter) for text in texts for letter in text]
            colours = [int(each) for image in images for each in read_image(image).mean(axis=(0, 1)) // 4]
            ids.append([1 + code % (VOCABULARY - 1) for code in (*colours, *letters)])
        return {"token": ids, "length": [len(one) for one in ids]}


def _take_time(batch: Batch) -> None:
    options = batch.options
    if any(each.fail == "turn" and turn == each.at for each, turn in zip(options, batch.turn, strict=True)):
        raise Trouble("a turn fails, as it is asked to")
    waits = [each.turn_ms for each in options]
    if any(waits):
        time.sleep(max(waits) / 1000)


class Scribe(Writer):
    """Also says how likely an id was, of rows that ask."""

    @causal
    def next(self, batch: Batch) -> Gives:
        _take_time(batch)
        logits = functional.linear(batch.last(self._hidden(batch)), self._head).float()
        drawn = batch.sample(logits, stop={END: "stop"})
        asked = [options.top_logprobs for options in batch.options]
        scores = [
            None if top is None or token is None else scores_of(logits[row], token, top)
            for row, (token, top) in enumerate(zip(drawn, asked, strict=True))
        ]
        return {"token": drawn, "scores": scores}


class Pen:
    """Ids to words."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Pen:
        return cls()

    def write(self, batch: Batch) -> Gives:
        tokens, scores = batch.values("token"), batch.values("scores")
        told = [None if each is None else score_record(each, _bytes) for each in scores]
        return {"piece": [f"{_word(id)} " for id in tokens], "score": told}


def _bytes(id: int) -> bytes:
    return f"{_word(id)} ".encode()


class Brush:
    """Stripes: what was read decides their colours, and noise of the seed is in them."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Brush:
        return cls()

    def begin(self, batch: Batch) -> Gives:
        canvases, scenes = [], []
        for row, (ids, options) in enumerate(zip(batch.values("token"), batch.options, strict=True)):
            width, height = options.size
            noise = torch.Generator().manual_seed(batch.key(row))
            canvases.append(torch.rand(height, width, 3, generator=noise))
            colours = torch.tensor(ids, dtype=torch.float32) / VOCABULARY
            scene = colours.repeat(-(-width * 3 // len(ids)))[: width * 3].reshape(1, width, 3)
            scenes.append(scene.expand(height, width, 3).contiguous())
        return {"canvas": canvases, "scene": scenes}

    def stroke(self, batch: Batch) -> Gives:
        _take_time(batch)
        rows = zip(batch.values("canvas"), batch.values("scene"), batch.options, batch.turn, strict=True)
        canvases, shown = [], []
        for canvas, scene, options, turn in rows:
            canvases.append(canvas * 0.6 + scene * 0.4)
            shown.append(_pixels(canvases[-1]) if turn < options.partial_images else None)
        return {"canvas": canvases, "shown": shown}

    def frame(self, batch: Batch) -> Gives:
        return {"picture": [_pixels(canvas) for canvas in batch.values("canvas")]}


def _pixels(canvas: Tensor) -> Tensor:
    return (canvas.clamp(0, 1) * 255).to(torch.uint8)
