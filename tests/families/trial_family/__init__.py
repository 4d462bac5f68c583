"""A family for trials: small, real, and able to make any kind of trouble when it is told to.

Text is spelled on the host, a tiny transformer with a cache in pages goes on writing, and what it writes is
told by a second component that keeps a state: as words, as marks beside each of them, and as one sum at the
end. A third track weighs the text meanwhile. ``again`` has a second Walk go on from a fork of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from walkserve_sdk import (
    BadRequest,
    Budget,
    Component,
    Fixed,
    Fork,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Part,
    Request,
    SamplingParams,
    Stream,
    Tensor,
    Text,
    Track,
    Walk,
    WalkGraph,
    track,
)

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Milliseconds = Annotated[int, Meta(ge=0, le=10_000)]


class Trial(Model):
    """Text in; words out that nobody ever said, with marks for each of them and their sum."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose.

        Args:
            max_tokens: The most words of the first Walk.
            again: Words that a second Walk adds, on a fork of the first one's cache.
            width: Numbers in the marks of one word; a million of them are 4 MB.
            fail: Which part of the request raises.
            at: In which turn it does, from 0: of the writer, of the teller, or Walks of the plan.
            prepare_ms: How long spelling takes.
            read_ms: How long a batch takes that reads a piece of the text.
            turn_ms: How long a batch takes that writes a word.
            tell_ms: How long a batch of the teller takes.
        """

        max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 24
        sampling: SamplingParams = SamplingParams(temperature=1.0)
        again: Count = 0
        width: Annotated[int, Meta(ge=1, le=4_000_000)] = 8
        fail: Literal["", "check", "prepare", "budget", "plan", "turn", "teller"] = ""
        at: Count = 0
        prepare_ms: Milliseconds = 0
        read_ms: Milliseconds = 0
        turn_ms: Milliseconds = 0
        tell_ms: Milliseconds = 0

    own_surfaces = ("trials",)
    speller = Component("trial_family.parts:Speller", device="cpu")
    writer = Component("trial_family.parts:Writer", kv=PagedKV(branches=("fork",)))
    teller = Component("trial_family.parts:Teller", state=True)
    scales = Component("trial_family.parts:Scales")

    ids = Stream(Fixed(2, most=8))
    words = Output(Text())
    marks = Output(Tensor(), many=True)
    total = Output(Tensor())
    weight = Output(Tensor())

    spell = WalkGraph(Node(speller, "spell", takes="text", gives=("token", "length")))
    write = WalkGraph(
        Loop(
            Node(writer, "next", takes="token", gives="token", to=ids),
            carry="token",
            times="max_tokens",
        )
    )
    rewrite = WalkGraph(
        Loop(
            Node(writer, "next", takes="token", gives="token", to=ids, branch="fork"),
            carry="token",
            times="max_tokens",
        )
    )
    tell = WalkGraph(
        Loop(
            Node(
                teller,
                "tell",
                takes=ids,
                gives=("words", "marks", "total"),
                to={"words": words, "marks": marks, "total": total},
            )
        )
    )
    weigh = WalkGraph(Node(scales, "weigh", takes="text", gives="weight", to=weight))

    def check(self, request: Request) -> Request:
        if not str(request.one("text")):
            raise BadRequest("the text is empty; there is nothing to go on from", param="text")
        if request.options.fail == "check":
            raise BadRequest("this request is refused, as it asks to be", param="fail")
        return request

    def warm_up(self) -> Request:
        return self.request(parts=(Part("text", "warm"),), options={"max_tokens": 4, "again": 2, "seed": 0})

    def prepare(self, request: Request) -> Walk:
        return self.spell(text=request.one("text"))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        if request.options.fail == "budget":
            raise ValueError("this budget raises, as it is asked to")
        return {self.writer: (prepared["length"], request.options.max_tokens + request.options.again)}

    @track(writes=ids)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        options = request.options
        wrote = yield self.write(token=prepared["token"], max_tokens=options.max_tokens)
        if options.fail == "plan":
            raise ValueError("this plan raises, as it is asked to")
        if options.again and wrote.ended_by == "times":
            yield Fork(self.writer, "main", "fork")
            wrote = yield self.rewrite(token=wrote["token"], max_tokens=options.again)
        return wrote.finish_reason

    @track
    def telling(self, request: Request, prepared: Outcome) -> Track:
        yield self.tell()
        return None

    @track
    def weighing(self, request: Request, prepared: Outcome) -> Track:
        if request.wants(self.weight):
            yield self.weigh(text=request.one("text"))
        return None
