"""A family for tests: a language model writes, and a judge that trails it says when it was enough.

The judge learns of a turn when the next is under way, so what runs ahead has to be forgotten. A second Walk
goes on from the cache that the first has left.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walk_plugin_orpheus import Orpheus
from walkserve_sdk import (
    Budget,
    Component,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Request,
    SamplingParams,
    Stop,
    Text,
    Track,
    WalkGraph,
    track,
)


class Judged(Model):
    @dataclass(frozen=True)
    class Options(Model.Options):
        enough: int = 12
        max_tokens: int = 40
        constrain: bool = False
        sampling: SamplingParams = SamplingParams(temperature=0.6, top_p=0.8, repetition_penalty=1.3)

    checkpoints = Orpheus.checkpoints
    llama = Component("walk_plugin_orpheus.llama:OrpheusLM", kv=PagedKV())
    judge = Component("judged_family:Judge")
    tokens = Output(Text())

    write = WalkGraph(
        Loop(
            Node(llama, "next", takes="ids", gives="ids"),
            Node(judge, "look", takes="ids", gives="seen", to=tokens),
            carry="ids",
            times="max_tokens",
        )
    )

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.llama: (12, 2 * request.options.max_tokens)}

    @track
    def writing(self, request: Request, prepared: Outcome) -> Track:
        most = request.options.max_tokens
        first = yield self.write(ids=list(range(10, 20)), max_tokens=most)
        second = yield self.write(ids=[20, 21], max_tokens=most)
        return f"{first.turns} {first.ended_by}, {second.turns} {second.ended_by}"


class Judge:
    """Says that it was enough at a turn that the client has chosen; that turn counts no more."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Judge:
        return cls()

    def look(self, batch: Any) -> dict[str, list[int]]:
        for row, (turn, options) in enumerate(zip(batch.turn, batch.options, strict=True)):
            if turn == options.enough:
                batch.stop(row, Stop("enough"))
        return {"seen": batch.values("ids")}


def install(folder: Path) -> None:
    """Make the family known to whoever has ``folder`` on its path, as pip would with a plugin."""
    info = folder / "walk_plugin_judged-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-judged\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[walkserve.models]\njudged = judged_family:Judged\n")
