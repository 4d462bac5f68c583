"""A family whose requests live for as long as their client writes: what a robot sees, tick by tick.

One track reads the client's stream on the host and writes what it made of each tick to a second stream; a
second track, on the device's worker, takes one of these per Walk and hands a large tensor from each Walk to
the next.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from walkserve_sdk import (
    Component,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    Request,
    Stream,
    Text,
    Track,
    WalkGraph,
    track,
)
from walkserve_sdk.streams import Each

HERE = Path(__file__).parent


class Reader:
    """Says of each tick how large it is."""

    @classmethod
    def load(cls, checkpoint: object, *, device: str, dtype: str) -> Reader:
        return cls()

    def tick(self, batch: Any) -> dict[str, list[object]]:
        return {"seen": [_seen(helping) for helping in batch.values("ticks")]}


def _seen(helping: Any) -> object:
    if not len(helping.new):
        return None  # the client has ended the stream
    (tick,) = helping.new
    if tick == "fall over":
        raise ValueError("the robot fell over, as it was told to")
    if isinstance(tick, list):
        return " ".join(str(_seen_one(one)) for one in tick)
    return _seen_one(tick)


def _seen_one(tick: Any) -> object:
    if isinstance(tick, bytes):
        return f"{len(tick)} bytes"
    return f"sum {float(tick.sum()):g}" if isinstance(tick, torch.Tensor | np.ndarray) else str(tick)


class Pilot:
    """Answers each observation; ``weight`` is large enough to be lent, and counts the Walks."""

    @classmethod
    def load(cls, checkpoint: object, *, device: str, dtype: str) -> Pilot:
        return cls()

    def steer(self, batch: Any) -> dict[str, list[object]]:
        given: dict[str, list[object]] = {"move": [], "weight": [], "ticks": []}
        for helping, weight in zip(batch.values("observations"), batch.values("weight"), strict=True):
            before = int(weight[0]) if isinstance(weight, torch.Tensor) else 0
            ticks = before + len(helping.new)
            given["move"].append(f"{before}: {helping.new[0]}" if len(helping.new) else None)
            given["weight"].append(torch.full((10_000,), float(ticks)))
            given["ticks"].append(ticks)
        return given


class Robot(Model):
    """Ticks in, moves out, until the client ends them."""

    inputs = ("text",)

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose.

        Args:
            task: ``"sleep"`` reads no ticks.
            moves: So many Walks, and the request ends though its client goes on.
        """

        task: str = "drive"
        moves: int | None = None

    reader = Component("robot:Reader", device="cpu")
    pilot = Component("robot:Pilot")
    ticks = Stream(Each(), by="client", limit=4, idle_s=float(os.environ.get("ROBOT_IDLE_S", "60")))
    observations = Stream(Each())
    moves = Output(Text())

    watch = WalkGraph(Loop(Node(reader, "tick", takes=ticks, gives="seen", to=observations)))
    steer = WalkGraph(
        Loop(
            Node(
                pilot,
                "steer",
                takes=(observations, "weight"),
                gives=("move", "weight", "ticks"),
                to={"move": moves},
            ),
            carry=("weight", "ticks"),
            times=1,
        )
    )

    @track(writes=observations)
    def watching(self, request: Request, prepared: Outcome) -> Track:
        if request.options.task != "sleep":
            yield self.watch()
        return None

    @track
    def steering(self, request: Request, prepared: Outcome) -> Track:
        if request.options.task == "sleep":
            return "slept"
        moved: Mapping[str, Any] = {"weight": 0, "ticks": 0}
        while moved["ticks"] != request.options.moves:
            moved = walked = yield self.steer(weight=moved["weight"], ticks=moved["ticks"])
            if walked.ended_by == "stream":
                return f"{walked['ticks']} ticks"
        return "enough"


def install(folder: Path) -> str:
    """Make the family known to whoever has the ``PYTHONPATH`` that is returned."""
    info = folder / "walk_plugin_robot-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-robot\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[walkserve.models]\nrobot = robot:Robot\n")
    return os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])
