"""BAGEL: one model that reads, looks, writes, paints and edits. The declaration; it imports no torch."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from walk_plugin_bagel.prompts import THINK_THEN_PAINT, THINK_THEN_WRITE
from walk_plugin_bagel.resize import Canvas
from walk_plugin_bagel.schedule import make_schedule, previewing
from walk_plugin_bagel.settings import read_settings
from walkserve_sdk import (
    BadRequest,
    Budget,
    ChatAsk,
    Component,
    Fork,
    Hub,
    Image,
    ImageAsk,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
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
from walkserve_sdk.tracks import Step

Reading = Generator[Step, Outcome, None]
_DOT = b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""


class Bagel(Model):
    """Text and images in any order in, text or a picture out: it reads, looks, writes, paints and edits."""

    inputs = ("text", "image")

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose, under the authors' names; the defaults are those of their application.

        Args:
            think: Write down a plan first, and answer or paint by it.
            max_tokens: The most tokens to write, or what fits the context if that is less.
            size: Of the picture, as WIDTHxHEIGHT; the checkpoint's usual one when left out. A picture that is
                made from images is as large as the last of them.
            num_timesteps: From noise to the picture; they are one step fewer.
            timestep_shift: Above 1, more of the steps are at the noisy end.
            cfg_text_scale: How far the last text guides the picture; to 1 it does not.
            cfg_img_scale: How far the images do, or, without images, the text once more; 1.5 when left out,
                2.0 for a picture that is made from images.
            cfg_interval: Between which times, of 1 for noise and 0 for the picture, there is guidance; 0.4
                and 1 when left out, 0 and 1 for a picture that is made from images.
            cfg_renorm_type: Of what guidance may not raise the strength: of the picture, of each token, or of
                each token before images guide it; "global" when left out, "text_channel" for a picture that
                is made from images.
            cfg_renorm_min: The least share that this cuts it to; 1 cuts nothing.
            partial_images: How often to show, as ``previews``, what the picture will look like as things are.
            top_logprobs: How many likely tokens are told of with each that is written, as ``token_scores``;
                nothing is told when left out.
        """

        think: bool = False
        max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1000
        size: str | None = None
        num_timesteps: Annotated[int, Meta(ge=2, le=1000)] = 50
        timestep_shift: Annotated[float, Meta(gt=0, le=100)] = 3.0
        cfg_text_scale: Annotated[float, Meta(ge=0, le=100)] = 4.0
        cfg_img_scale: Annotated[float, Meta(ge=0, le=100)] | None = None
        cfg_interval: tuple[Annotated[float, Meta(ge=0, le=1)], Annotated[float, Meta(ge=0, le=1)]] | None = (
            None
        )
        cfg_renorm_type: Literal["global", "channel", "text_channel"] | None = None
        cfg_renorm_min: Annotated[float, Meta(ge=0, le=1)] = 0.0
        partial_images: Annotated[int, Meta(ge=0, le=3)] = 0
        top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
        sampling: SamplingParams = SamplingParams(temperature=0.0)

    checkpoints = MappingProxyType(
        {"main": Hub("ByteDance-Seed/BAGEL-7B-MoT", files=("*.json", "ema.safetensors", "ae.safetensors"))}
    )
    variants = MappingProxyType({"toy": "toy"})

    tokenizer = Component("walk_plugin_bagel.text:Tokenizer", device="cpu")
    pictures = Component("walk_plugin_bagel.pictures:PictureReader", device="cpu")
    vit = Component("walk_plugin_bagel.vit:ImageViT")
    vae = Component("walk_plugin_bagel.vae:ImageVAE")
    llm = Component(
        "walk_plugin_bagel.mot:BagelLM", kv=PagedKV(branches=("no_text", "no_image", "scratch")), state=True
    )
    pen = Component("walk_plugin_bagel.pen:Pen", state=True)
    solver = Component("walk_plugin_bagel.solver:Solver", state=True)

    text = Output(Text())
    token_scores = Output(Record(), many=True)
    image = Output(Image())
    previews = Output(Image(), many=True)

    encode = WalkGraph(
        Node(tokenizer, "encode_all", takes="texts", gives="blocks"),
        Node(pictures, "read", takes="images", gives=("for_vae", "for_vit", "vae_sizes", "vit_sizes")),
    )
    encode_thought = WalkGraph(Node(tokenizer, "encode", takes="text", gives="ids"))
    prefill_text = WalkGraph(
        Parallel(
            Node(llm, "prefill_text", takes="ids"),
            Node(llm, "prefill_text", takes="ids", branch="no_image", when="apart"),
        )
    )
    prefill_vit = WalkGraph(
        Node(vit, "look", takes="pixels", gives="seen"),
        Node(llm, "prefill_vit", takes="seen"),
        gives=(),
    )
    prefill_vae = WalkGraph(
        Node(solver, "posterior", takes=("seed", "size"), gives="noise"),
        Node(vae, "encode", takes=("pixels", "noise"), gives="latents"),
        Node(llm, "prefill_vae", takes="latents"),
        gives=(),
    )
    decode = WalkGraph(
        Node(pen, "begin", gives="ids"),
        Loop(
            Node(llm, "next", takes="ids", gives=("ids", "scores"), branch="scratch"),
            Node(
                pen,
                "write",
                takes=("ids", "scores"),
                gives=("piece", "score"),
                to={"piece": text, "score": token_scores},
            ),
            carry="ids",
            times="max_tokens",
        ),
        Node(pen, "finish", gives=("rest", "text"), to={"rest": text}),
        gives="text",
    )
    _velocity = partial(Node, llm, "velocity", takes=("latents", "t"), keeps=False)
    denoise = WalkGraph(
        Node(solver, "noise", takes=("seed", "size"), gives="latents"),
        Loop(
            Parallel(
                _velocity(gives="full"),
                _velocity(gives="no_text", branch="no_text", when="guided"),
                _velocity(gives="no_image", branch="no_image", when="guided_by_images"),
            ),
            Node(
                solver,
                "step",
                takes=("latents", "t", "step", "full", "no_text", "no_image"),
                gives=("latents", "likely"),
            ),
            Node(vae, "preview", takes="likely", gives="preview", to=previews, when="shown"),
            each={
                "t": "timesteps",
                "step": "steps",
                "guided": "guidance",
                "guided_by_images": "image_guidance",
                "shown": "previewing",
            },
            carry="latents",
        ),
        Node(vae, "decode", takes="latents", gives="picture", to=image),
        gives=(),
    )

    def setup(self) -> None:
        """How large images are made and may be is the checkpoint's; without one, the published one's."""
        self.canvas, self.usual = Canvas(16, 1024), "1024x1024"
        if "main" in self.checkpoint.folders:
            self.settings = settings = read_settings(self.checkpoint)
            self.context = settings.language.max_position_embeddings
            self.canvas = Canvas(settings.latent_stride, settings.largest_side)
            side = settings.images.vae_transform.max_size
            self.usual = f"{side}x{side}"

    def warm_up(self) -> Request:
        return self.request(
            parts=(Part("image", _DOT), Part("text", "hi")),
            options={"think": True, "max_tokens": 4, "num_timesteps": 3, "seed": 0},
        )

    def image_request(self, ask: ImageAsk) -> Request:
        options = {**ask.options, "partial_images": ask.partial_images}
        if ask.size is not None:
            options["size"] = "{}x{}".format(*ask.size)
        return self.request(outputs=(self.image, self.previews), parts=ask.parts, options=options)

    edit_request = image_request

    def chat_request(self, ask: ChatAsk) -> Request:
        """It has no template for conversations: what was said is read in its order, the system first. Of a
        picture the text is what was thought before, where ``think`` asks for it."""
        outputs = [*ask.modalities, self.token_scores] if "text" in ask.modalities else ask.modalities
        options = {**ask.options, "top_logprobs": ask.top_logprobs}
        return self.request(outputs=outputs, parts=ask.parts, options=options)

    # --- before admission -------------------------------------------------------------------------

    def check(self, request: Request) -> Request:
        if not request.parts:
            raise BadRequest("there is nothing to read and nothing to look at; send a text or an image")
        if any(part.kind == "text" and not str(part.data).strip() for part in request.parts):
            raise BadRequest("the text is empty", param="text")
        options, has_images = request.options, bool(request.all("image"))
        if options.size is not None and has_images:
            raise BadRequest(
                "size: a picture that is made from images is as large as the last of them; leave it out",
                param="size",
            )
        interval = options.cfg_interval or ((0.0, 1.0) if has_images else (0.4, 1.0))
        if interval[0] > interval[1]:
            raise BadRequest(f"cfg_interval: {list(interval)} ends before it begins", param="cfg_interval")
        size = self.canvas.read(options.size or self.usual)
        scale, renorm = (2.0, "text_channel") if has_images else (1.5, "global")
        options = replace(
            options,
            size="{}x{}".format(*size),
            cfg_img_scale=scale if options.cfg_img_scale is None else options.cfg_img_scale,
            cfg_interval=interval,
            cfg_renorm_type=options.cfg_renorm_type or renorm,
        )
        return replace(request, options=options)

    def prepare(self, request: Request) -> Walk:
        texts = [str(text) for text in request.all("text")]
        if request.options.think:
            texts.insert(0, THINK_THEN_PAINT if self._paints(request) else THINK_THEN_WRITE)
        return self.encode(texts=texts, images=list(request.all("image")))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        paints, most = self._paints(request), request.options.max_tokens
        texts = sum(map(len, prepared["blocks"]))
        start = texts + _tokens(prepared["vit_sizes"], self.settings.vision.patch_size)
        # what a branch shares with ``main`` is counted there
        alone = {self.llm.on("no_text"): (0, 0), self.llm.on("no_image"): (0, 0)}
        if not paints:
            return {self.llm: (start, most), self.llm.on("scratch"): (0, most), **alone}
        start += _tokens(prepared["vae_sizes"], self.canvas.stride)
        if prepared["vae_sizes"]:  # else all that it reads is what ``main`` reads
            alone[self.llm.on("no_image")] = (texts, 0)
        if not request.options.think:
            return {self.llm: (start, 0), self.llm.on("scratch"): (0, 0), **alone}
        # what was thought is read as a text, and a token that is no whole character may be three of these
        return {self.llm: (start, 3 * most + 2), self.llm.on("scratch"): (0, most), **alone}

    # --- the request ------------------------------------------------------------------------------

    @track
    def answering(self, request: Request, prepared: Outcome) -> Track:
        paints, options = self._paints(request), request.options
        yield from self._read(request, prepared, paints=paints)
        if options.think or not paints:
            yield Fork(self.llm, "main", to="scratch")
            wrote = yield self.decode(max_tokens=options.max_tokens)
            if not paints:
                return wrote.finish_reason
            thought = yield self.encode_thought(text=wrote["text"])
            yield self.prefill_text(ids=thought["ids"], apart=False)
        yield self._painted(request, prepared)
        return "stop"

    def _read(self, request: Request, prepared: Outcome, *, paints: bool) -> Reading:
        """All parts in order, and for a picture the branches that go on without some of them.

        ``no_text`` is without the text at the end, ``no_image`` without all images. Until the first image
        comes the latter is no other than ``main``, and is forked from it: so a prompt is read once.
        """
        blocks, images = iter(prepared["blocks"]), iter(range(len(prepared["for_vit"])))
        is_apart = False
        if request.options.think:
            yield self.prefill_text(ids=next(blocks), apart=False)
        for number, part in enumerate(request.parts, start=1):
            is_last = number == len(request.parts)
            if part.kind == "text":
                if paints and is_last:
                    yield Fork(self.llm, "main", to="no_text")
                yield self.prefill_text(ids=next(blocks), apart=is_apart)
                continue
            if paints and not is_apart:
                yield Fork(self.llm, "main", to="no_image")
                is_apart = True
            yield from self._look(request, prepared, next(images), paints=paints)
            if paints and is_last:
                yield Fork(self.llm, "main", to="no_text")
        if paints and not is_apart:
            yield Fork(self.llm, "main", to="no_image")

    def _look(self, request: Request, prepared: Outcome, image: int, *, paints: bool) -> Reading:
        if paints:
            yield self.prefill_vae(
                pixels=prepared["for_vae"][image],
                size=prepared["vae_sizes"][image],
                seed=request.seed,
            )
        yield self.prefill_vit(pixels=prepared["for_vit"][image])

    def _paints(self, request: Request) -> bool:
        return request.wants(self.image) or request.wants(self.previews)

    def _painted(self, request: Request, prepared: Outcome) -> Walk:
        options = request.options
        schedule = make_schedule(
            num_timesteps=options.num_timesteps,
            timestep_shift=options.timestep_shift,
            cfg_text_scale=options.cfg_text_scale,
            cfg_img_scale=options.cfg_img_scale,
            cfg_interval=options.cfg_interval,
        )
        return self.denoise(
            seed=request.seed,
            size=(prepared["vae_sizes"] or [self.canvas.read(options.size)])[-1],
            timesteps=schedule.timesteps,
            steps=schedule.steps,
            guidance=schedule.guided,
            image_guidance=schedule.guided_by_images,
            previewing=previewing(len(schedule.steps), options.partial_images),
        )


def _tokens(sizes: list[list[int]], square: int) -> int:
    """Of images, between their delimiters."""
    return sum((width // square) * (height // square) + 2 for width, height in sizes)
