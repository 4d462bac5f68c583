"""A family that imagines: several futures from one context, each on a fork of its cache. Small and real.

Text is a context, a character a token; ``plans`` says what is done in each future, a letter a turn. Every
turn gives a latent, and what is left of each future is weighed at the end. ``rounds`` has it all done again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from walkserve_sdk import (
    Budget,
    Component,
    Fan,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Part,
    Request,
    Tensor,
    Text,
    Track,
    Walk,
    WalkGraph,
    track,
)


class Futures(Model):
    """A context in; for each plan, what comes of it."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose.

        Args:
            plans: The futures, each a word with a letter for every turn; ``.`` ends a future, ``!`` raises.
            rounds: How often all of them are imagined, each time with a longer context.
            turn_ms: How long a batch of turns takes.
        """

        plans: tuple[str, ...] = ("abc", "bcd")
        rounds: Annotated[int, Meta(ge=1, le=100)] = 1
        turn_ms: Annotated[int, Meta(ge=0, le=1000)] = 0

    reader = Component("futures_family.parts:Reader", device="cpu")
    world = Component("futures_family.parts:World", kv=PagedKV(page_size=4))
    scales = Component("futures_family.parts:Scales")

    latents = Output(Tensor())
    notes = Output(Text())
    weights = Output(Tensor())

    read = WalkGraph(Node(reader, "read", takes=("text", "plans"), gives=("seen", "actions", "tokens")))
    imagine = WalkGraph(
        Loop(
            Node(world, "see", takes="seen", gives="latent"),
            Fan(
                Loop(
                    Node(
                        world,
                        "step",
                        takes=("latent", "action"),
                        gives=("latent", "note"),
                        to={"latent": latents, "note": notes},
                    ),
                    each={"action": "plan"},
                    carry="latent",
                    collect={"path": "note"},
                ),
                over={"plan": "actions"},
            ),
            Node(scales, "weigh", takes=("latent", "path"), gives="weight", to={"weight": weights}),
            times="rounds",
            collect={"weighed": "weight"},
        )
    )

    def warm_up(self) -> Request:
        return self.request(parts=(Part("text", "warm"),), options={"plans": ("a", "b"), "seed": 0})

    def prepare(self, request: Request) -> Walk:
        return self.read(text=request.one("text"), plans=list(request.options.plans))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        longest = max(map(len, request.options.plans), default=0)
        return {self.world: (prepared["tokens"] * request.options.rounds, 3 * longest)}

    @track
    def imagining(self, request: Request, prepared: Outcome) -> Track:
        told = yield self.imagine(
            seen=prepared["seen"], actions=prepared["actions"], rounds=request.options.rounds
        )
        return told.finish_reason
