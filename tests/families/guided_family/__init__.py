"""A family that paints under guidance, as BAGEL does: three branches of one cache, in some turns only one.

Text is a prompt, a character a token. ``no_text`` goes on without its last character; ``no_image`` goes on
with all of it, and comes by it in one of three ways: ``ways``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta

from walkserve_sdk import (
    Budget,
    Component,
    Fork,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
    Part,
    Request,
    Tensor,
    Track,
    Walk,
    WalkGraph,
    track,
)


class Guided(Model):
    """A text in, a few numbers out."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose.

        Args:
            turns: Steps, and of these the first ``guided`` have guidance.
            way: How no_image comes by the prompt: forked from main when all of it was read, or read by
                itself, as it is or with its last character another.
            sizes: Say what each branch holds of its own, or only what the longest does.
        """

        turns: Annotated[int, Meta(ge=1, le=100)] = 49
        guided: Annotated[int, Meta(ge=0, le=100)] = 41
        way: Literal["forked", "read", "changed"] = "forked"
        sizes: bool = True

    reader = Component("guided_family.parts:Reader", device="cpu")
    lm = Component("guided_family.parts:LM", kv=PagedKV(page_size=4, branches=("no_text", "no_image")))
    solver = Component("guided_family.parts:Solver")
    picture = Output(Tensor())

    encode = WalkGraph(Node(reader, "encode", takes="text", gives=("ids", "length")))
    read = WalkGraph(Node(lm, "read", takes="ids"))
    read_apart = WalkGraph(Node(lm, "read", takes="ids", branch="no_image"))
    _velocity = partial(Node, lm, "velocity", takes=("latents", "t"), keeps=False)
    paint = WalkGraph(
        Node(solver, "noise", takes="seed", gives="latents"),
        Loop(
            Parallel(
                _velocity(gives="full"),
                _velocity(gives="no_text", branch="no_text", when="is_guided"),
                _velocity(gives="no_image", branch="no_image", when="is_guided"),
            ),
            Node(solver, "step", takes=("latents", "full", "no_text", "no_image"), gives="latents"),
            each={"t": "times", "is_guided": "guidance"},
            carry="latents",
        ),
        Node(solver, "finish", takes="latents", gives="picture", to=picture),
    )

    def warm_up(self) -> Request:
        return self.request(parts=(Part("text", "warm"),), options={"turns": 1, "seed": 0})

    def prepare(self, request: Request) -> Walk:
        return self.encode(text=request.one("text"))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        whole = {self.lm: (prepared["length"], 0)}
        if not request.options.sizes:
            return whole
        again = 0 if request.options.way == "forked" else prepared["length"]
        return {**whole, self.lm.on("no_text"): (0, 0), self.lm.on("no_image"): (again, 0)}

    @track
    def painting(self, request: Request, prepared: Outcome) -> Track:
        asked, ids = request.options, list(prepared["ids"])
        yield self.read(ids=ids[:-1])
        yield Fork(self.lm, "main", to="no_text")
        yield self.read(ids=ids[-1:])
        if asked.way == "forked":
            yield Fork(self.lm, "main", to="no_image")
        else:
            yield self.read_apart(ids=ids[:-1])
            yield self.read_apart(ids=[ids[-1] ^ (asked.way == "changed")])
        yield self.paint(
            seed=request.seed,
            times=[1 - turn / asked.turns for turn in range(asked.turns)],
            guidance=[turn < asked.guided for turn in range(asked.turns)],
        )
        return None
