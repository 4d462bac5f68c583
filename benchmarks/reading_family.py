"""A family for measuring: a language model reads a prompt of so many tokens, and its client gets every word.

The model is Orpheus' (``orpheus_checkpoint.py``), its words are the ids it draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from walk_plugin_orpheus import Orpheus
from walkserve_sdk import (
    Batch,
    Budget,
    Checkpoint,
    Component,
    Gives,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Request,
    SamplingParams,
    Text,
    Track,
    WalkGraph,
    causal,
    track,
)

TEXT_IDS = 128_000


class Reading(Model):
    @dataclass(frozen=True)
    class Options(Model.Options):
        prompt_tokens: Annotated[int, Meta(ge=1)] = 32
        max_tokens: Annotated[int, Meta(ge=1)] = 100
        constrain: bool = False
        sampling: SamplingParams = SamplingParams(temperature=0.6, top_p=0.8, repetition_penalty=1.0)

    checkpoints = Orpheus.checkpoints
    llama = Component("reading_family:Reader", kv=PagedKV())
    words = Output(Text())

    read = WalkGraph(
        Loop(
            Node(llama, "next", takes="ids", gives=("ids", "word"), to={"word": words}),
            carry="ids",
            times="max_tokens",
        )
    )

    def warm_up(self) -> Request:
        return self.request(options={"prompt_tokens": 64, "max_tokens": 8, "seed": 0})

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.llama: (request.options.prompt_tokens, request.options.max_tokens)}

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        prompt = [(7919 * n + request.seed) % TEXT_IDS for n in range(request.options.prompt_tokens)]
        read = yield self.read(ids=prompt, max_tokens=request.options.max_tokens)
        return read.finish_reason


class Reader:
    """The language model; what it draws is told as text, too."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.kv_shape = model.kv_shape

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: Any, dtype: Any) -> Reader:
        from walk_plugin_orpheus.llama import OrpheusLM

        return cls(OrpheusLM.load(checkpoint, device=device, dtype=dtype))

    @causal
    def next(self, batch: Batch) -> Gives:
        ids = self._model.next(batch)["ids"]
        return {"ids": ids, "word": [f"{one} " for one in ids]}


def install(folder: Path) -> None:
    """Make the family known to whoever has ``folder`` on its path, as pip would with a plugin."""
    info = folder / "walk_plugin_reading-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-reading\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[walkserve.models]\nreading = reading_family:Reading\n")
