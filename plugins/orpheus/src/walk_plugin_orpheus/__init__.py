"""Orpheus: text in, speech out. The declaration of the family; it imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from walkserve_sdk import (
    Audio,
    BadRequest,
    Budget,
    Component,
    Fixed,
    Hub,
    LoadError,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Part,
    Request,
    SamplingParams,
    SpeechAsk,
    Stream,
    Track,
    Walk,
    WalkGraph,
    track,
)

VOICES = ("tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe")
TAGS = ("laugh", "chuckle", "sigh", "cough", "sniffle", "groan", "yawn", "gasp")


class _Said(msgspec.Struct):
    """``voices.json``."""

    voices: Annotated[tuple[str, ...], Meta(min_length=1)]
    tags: tuple[str, ...] = ()


class _Config(msgspec.Struct):
    """``config.json``, the part that a request meets."""

    max_position_embeddings: int | None = None


class Orpheus(Model):
    """Text in, 24 kHz speech out, sounding while the rest is still being written."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose.

        Args:
            voice: Who speaks, in any case; the checkpoint's first voice when left out.
            max_tokens: The most speech tokens to write, or what fits the context if that is less; seven are
                85 ms of sound.
            constrain: Draw only tokens that are legal at their place in a frame.
            codec_noise: Add the noise that the codec was trained to add while decoding.
            decoder: "window" decodes four frames at a time as the authors do, for comparison.
        """

        voice: str = "tara"
        max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1200
        sampling: SamplingParams = SamplingParams(temperature=0.6, top_p=0.8, repetition_penalty=1.3)
        constrain: bool = False
        codec_noise: bool = True
        decoder: Literal["exact", "window"] = "exact"

    checkpoints = MappingProxyType(
        {
            "main": Hub("canopylabs/orpheus-3b-0.1-ft"),
            "snac": Hub("hubertsiuzdak/snac_24khz", files=("config.json", "pytorch_model.bin")),
        }
    )
    variants = MappingProxyType({"toy": "toy"})

    tokenizer = Component("walk_plugin_orpheus.text:Tokenizer", device="cpu")
    llama = Component("walk_plugin_orpheus.llama:OrpheusLM", kv=PagedKV())
    snac = Component("walk_plugin_orpheus.codec:SnacDecoder", state=True)

    codes = Stream(Fixed(7, most=56))  # whole frames, as many as have arrived
    speech = Output(Audio(rate=24_000))

    encode = WalkGraph(Node(tokenizer, "encode", takes=("text", "voice"), gives=("ids", "length")))
    write = WalkGraph(
        Loop(Node(llama, "next", takes="ids", gives="ids", to=codes), carry="ids", times="max_tokens")
    )
    vocode = WalkGraph(Loop(Node(snac, "decode", takes=codes, gives="pcm", to=speech)))

    def setup(self) -> None:
        """A checkpoint with voices of its own says so in ``voices.json``; the published one has these."""
        self.voices, self.tags = VOICES, TAGS
        path = self.checkpoint.folders.get("main", Path()) / "voices.json"
        if path.is_file():
            try:
                said = msgspec.json.decode(path.read_bytes(), type=_Said)
            except msgspec.DecodeError as error:
                raise LoadError(f"{path} must name the checkpoint's voices and tags: {error}") from error
            self.voices, self.tags = said.voices, said.tags
        config = self.checkpoint.folders.get("main", Path()) / "config.json"
        if config.is_file():
            try:
                self.context = msgspec.json.decode(config.read_bytes(), type=_Config).max_position_embeddings
            except msgspec.DecodeError as error:
                raise LoadError(f"{config} cannot be read: {error}") from error

    def check(self, request: Request) -> Request:
        text = request.one("text")
        if not str(text).strip():
            raise BadRequest("the text is empty; there is nothing to say", param="text")
        known = {voice.lower(): voice for voice in self.voices}
        asked = request.options.voice if "voice" in request.given else self.voices[0]
        voice = known.get(asked.lower())
        if voice is None:
            raise BadRequest(
                f"there is no voice {request.options.voice!r}; this checkpoint has {', '.join(self.voices)}",
                param="voice",
            )
        return replace(request, options=replace(request.options, voice=voice))

    def speech_request(self, ask: SpeechAsk) -> Request:
        options = dict(ask.options) | ({} if ask.voice is None else {"voice": ask.voice})
        return self.request(outputs=(self.speech,), parts=(Part("text", ask.text),), options=options)

    def warm_up(self) -> Request:
        return self.request(
            parts=(Part("text", "hi"),), options={"max_tokens": 28, "constrain": True, "seed": 0}
        )

    def prepare(self, request: Request) -> Walk:
        return self.encode(text=request.one("text"), voice=request.options.voice)

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.llama: (prepared["length"], request.options.max_tokens)}

    @track(writes=codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        wrote = yield self.write(ids=prepared["ids"], max_tokens=request.options.max_tokens)
        return wrote.finish_reason

    @track
    def sounding(self, request: Request, prepared: Outcome) -> Track:
        yield self.vocode()
        return None
