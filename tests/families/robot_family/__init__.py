"""A family whose requests live for as long as their client writes: what a robot sees, tick by tick.

One track reads the client's stream on the host and writes what it made of each tick to a second stream; a
second track, on the device's worker, takes one of these per Walk and hands a large tensor from each Walk to
the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


class Robot(Model):
    """Ticks in, moves out, until the client ends them."""

    inputs = ("text",)
    own_surfaces = ("robots",)

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose.

        Args:
            task: ``"sleep"`` reads no ticks.
            moves: So many Walks, and the request ends though its client goes on.
        """

        task: str = "drive"
        moves: int | None = None

    reader = Component("robot_family.parts:Reader", device="cpu")
    pilot = Component("robot_family.parts:Pilot")
    ticks = Stream(Each(), by="client", limit=4)
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
