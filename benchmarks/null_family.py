"""A family that computes nothing: a loop that gives the next whole number to its client on each turn.

What is left of a request is the control plane. The numbers tell the client whether a token was lost, said
twice, or came out of order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkserve_sdk import (
    Component,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    Request,
    Text,
    Track,
    WalkGraph,
    track,
)


class Null(Model):
    @dataclass(frozen=True)
    class Options(Model.Options):
        max_tokens: int = 1000

    counter = Component("null_family:Counter", device="cpu")
    tokens = Output(Text())

    count = WalkGraph(
        Loop(Node(counter, "next", takes="n", gives="n", to=tokens), carry="n", times="max_tokens")
    )

    @track
    def counting(self, request: Request, prepared: Outcome) -> Track:
        yield self.count(n=0, max_tokens=request.options.max_tokens)
        return None


class Counter:
    """The component, for the server's ordinary engine."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Counter:
        return cls()

    def next(self, batch: Any) -> dict[str, list[int]]:
        return {"n": [n + 1 for n in batch.values("n")]}


class NullEngine:
    """In place of the server's engine: what a worker spends when nobody makes a batch either."""

    def __init__(self, held: Any, *, deterministic: bool) -> None: ...

    def submit(self, key: tuple[str, str], rows: Sequence[Any]) -> Any:
        from walkserve.engine.local import Finished
        from walkserve.engine.rows import RowResult

        return Finished([RowResult({"n": row.values["n"] + 1}) for row in rows])


def install(folder: Path) -> None:
    """Make the family known to whoever has ``folder`` on its path, as pip would with a plugin."""
    info = folder / "walk_plugin_null-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-null\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[walkserve.models]\nnull = null_family:Null\n")
