"""A family for the routes of images and of chat: it writes words nobody ever said, and paints stripes.

Texts and images become tokens on the host; the tiny transformer of the family for trials goes on from them,
and each token is written as it comes, with how likely it was where that is asked. A picture begins as noise
of the request's seed, and every step brings it nearer to what the prompt and the images say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from walkserve_sdk import (
    BadRequest,
    Budget,
    ChatAsk,
    Component,
    Image,
    ImageAsk,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Part,
    Record,
    Request,
    SamplingParams,
    Text,
    Track,
    Walk,
    WalkGraph,
    track,
)

Side = Annotated[int, Meta(ge=1, le=512)]
Count = Annotated[int, Meta(ge=0, le=1000)]


class Easel(Model):
    """Texts and images in; words out, and pictures."""

    inputs = ("text", "image")

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose.

        Args:
            max_tokens: The most words.
            top_logprobs: How many likely words are told with each; nothing is told when left out.
            size: Of the picture: width and height.
            steps: From noise to the picture.
            partial_images: How often to show it before.
            turn_ms: How long a word takes, or a step.
            fail: Where the request raises.
            at: In which turn, from 0.
        """

        max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 24
        sampling: SamplingParams = SamplingParams(temperature=1.0)
        top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
        size: tuple[Side, Side] = (32, 24)
        steps: Annotated[int, Meta(ge=1, le=100)] = 4
        partial_images: Annotated[int, Meta(ge=0, le=3)] = 0
        turn_ms: Annotated[int, Meta(ge=0, le=10_000)] = 0
        fail: Literal["", "turn"] = ""
        at: Count = 0

    reader = Component("easel_family.parts:Reader", device="cpu")
    scribe = Component("easel_family.parts:Scribe", kv=PagedKV())
    pen = Component("easel_family.parts:Pen")
    brush = Component("easel_family.parts:Brush")

    text = Output(Text())
    token_scores = Output(Record(), many=True)
    picture = Output(Image())
    previews = Output(Image(), many=True)

    read = WalkGraph(Node(reader, "read", takes=("texts", "images"), gives=("token", "length")))
    write = WalkGraph(
        Loop(
            Node(scribe, "next", takes="token", gives=("token", "scores")),
            Node(
                pen,
                "write",
                takes=("token", "scores"),
                gives=("score", "piece"),
                to={"score": token_scores, "piece": text},
            ),
            carry="token",
            times="max_tokens",
        )
    )
    paint = WalkGraph(
        Node(brush, "begin", takes="token", gives=("canvas", "scene")),
        Loop(
            Node(
                brush,
                "stroke",
                takes=("canvas", "scene"),
                gives=("canvas", "shown"),
                to={"shown": previews},
            ),
            carry="canvas",
            times="steps",
        ),
        Node(brush, "frame", takes="canvas", gives="picture", to=picture),
    )

    def warm_up(self) -> Request:
        return self.request(parts=(Part("text", "warm"),), options={"max_tokens": 2, "steps": 1, "seed": 0})

    def check(self, request: Request) -> Request:
        width, height = request.options.size
        if width % 8 or height % 8:
            near = "x".join(str(max(8, round(side / 8) * 8)) for side in (width, height))
            raise BadRequest(f"size: sides are multiples of 8; {near} is near", param="size")
        if not any(part.data.strip() for part in request.parts):
            raise BadRequest("there is nothing to read", param="text")
        return request

    def image_request(self, ask: ImageAsk) -> Request:
        size = {} if ask.size is None else {"size": ask.size}
        return self.request(
            outputs=(self.picture, self.previews),
            parts=ask.parts,
            options={**ask.options, **size, "partial_images": ask.partial_images},
        )

    edit_request = image_request

    def chat_request(self, ask: ChatAsk) -> Request:
        wanted = {"text": (self.text, self.token_scores), "image": (self.picture,)}
        return self.request(
            outputs=[output for kind in ask.modalities for output in wanted[kind]],
            parts=ask.parts,
            options={**ask.options, "top_logprobs": ask.top_logprobs},
        )

    def prepare(self, request: Request) -> Walk:
        return self.read(texts=list(request.all("text")), images=list(request.all("image")))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.scribe: (prepared["length"], request.options.max_tokens)}

    @track
    def working(self, request: Request, prepared: Outcome) -> Track:
        reason = "stop"
        if request.wants(self.text):
            wrote = yield self.write(token=prepared["token"], max_tokens=request.options.max_tokens)
            reason = wrote.finish_reason
        if request.wants(self.picture) or request.wants(self.previews):
            yield self.paint(token=prepared["token"], steps=request.options.steps)
        return reason
