"""A family that is given files with names and tensors of any dtype, and gives tensors and records back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from walkserve_sdk import (
    Component,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    Record,
    Request,
    Tensor,
    Track,
    WalkGraph,
    track,
)
from walkserve_sdk.arrays import read_tensors

HERE = Path(__file__).parent
LARGE = 40_000
"""Numbers of a tensor that is lent, and not sent."""


class Chain:
    """Reads what came."""

    @classmethod
    def load(cls, checkpoint: object, *, device: str, dtype: str) -> Chain:
        return cls()

    def read(self, batch: Any) -> dict[str, list[Any]]:
        rows = zip(batch.values("kinds"), batch.values("names"), batch.values("media"), strict=True)
        read = [_read(*row) for row in rows]
        return {name: [row[name] for row in read] for name in read[0]}

    def step(self, batch: Any) -> dict[str, list[Any]]:
        steps = [{"sum": float(one.sum()), "numbers": one} for one in batch.values("tensor")]
        return {"step": steps}


def _read(kinds: list[str], names: list[str], media: list[Any]) -> dict[str, Any]:
    tensors: dict[str, torch.Tensor] = {}
    for kind, name, data in zip(kinds, names, media, strict=True):
        if kind == "tensor":
            tensors |= {key: torch.from_numpy(one) for key, one in read_tensors(data, name).items()}
    survey = {
        "parts": [
            f"{kind}[{name}] {len(data)}" for kind, name, data in zip(kinds, names, media, strict=True)
        ],
        "dtypes": [str(one.dtype) for one in tensors.values()],
        "count": len(tensors),
        "nothing": None,
        "field": torch.arange(LARGE),
        "each": list(tensors.values()),
    }
    first = next(iter(tensors.values()), None)
    return {
        "tensors": list(tensors.values()),
        "survey": survey,
        "copy": first,
        "half": None if first is None else first.to(torch.bfloat16),
    }


class Surveyor(Model):
    """Measures whatever it is given."""

    inputs = ("text", "image", "tensor")

    chain = Component("surveyor:Chain", device="cpu")
    copy = Output(Tensor())
    half = Output(Tensor())
    survey = Output(Record())
    steps = Output(Record(), many=True)

    read = WalkGraph(
        Node(
            chain,
            "read",
            takes=("kinds", "names", "media"),
            gives=("tensors", "survey", "copy", "half"),
            to={"survey": survey, "copy": copy, "half": half},
        )
    )
    walk = WalkGraph(
        Loop(Node(chain, "step", takes="tensor", gives="step", to=steps), each={"tensor": "tensors"})
    )

    @track
    def surveying(self, request: Request, prepared: Outcome) -> Track:
        parts = request.parts
        found = yield self.read(
            kinds=[part.kind for part in parts],
            names=[part.name for part in parts],
            media=[part.data for part in parts],
        )
        yield self.walk(tensors=found["tensors"])
        return None


def install(folder: Path) -> str:
    """Make the family known to whoever has the ``PYTHONPATH`` that is returned."""
    info = folder / "walk_plugin_surveyor-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-surveyor\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[walkserve.models]\nsurveyor = surveyor:Surveyor\n")
    return os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])
