"""``POST /v1/audio/speech``: text in, sound out, whole or as it comes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.handlers import BaseRouteHandler
from msgspec import Struct
from msgspec.structs import replace

from walkserve.delivery import Done, Failed
from walkserve.http.answers import Answer, Client
from walkserve.http.bodies import read_fields, read_object
from walkserve.http.callers import Caller
from walkserve.http.calls import Call, Item, Items
from walkserve.http.ids import request_id
from walkserve.http.models import find_model, require_surface
from walkserve.http.problems import Faulted, documented
from walkserve.http.settings import HttpSettings
from walkserve.http.speech_docs import DESCRIPTION, SpeechOperation
from walkserve.media.audio import SAMPLE_BYTES, pcm16, wav_header
from walkserve.messages import RequestEnded
from walkserve_sdk import Audio, Model, Request, SpeechAsk
from walkserve_sdk.errors import BadRequest, ComponentError
from walkserve_sdk.requests import option_paths, unknown_option

log = logging.getLogger(__name__)

SURFACE = "audio.speech"
FORMATS = ("wav", "pcm")
SPEEDS = (0.25, 4)


class SpeechBody(Struct, frozen=True):
    """The fields that OpenAI defines, and ``stream``. Whatever else is sent is an option of the family."""

    model: str
    input: str
    voice: str | None = None
    instructions: str | None = None
    response_format: str | None = None
    speed: float | None = None
    stream: bool | None = None
    stream_format: str | None = None


class _ModelField(Struct, frozen=True):
    model: str


@dataclass(frozen=True, slots=True)
class Speech:
    """One speech request, checked: what to say to which model, and how the sound leaves."""

    model: str
    request: Request
    output: str
    sound: Audio
    format: str
    is_streamed: bool

    @property
    def headers(self) -> dict[str, str]:
        """What is known before the first sample."""
        parameters = f";rate={self.sound.rate};channels={self.sound.channels}"
        kind = "audio/wav" if self.format == "wav" else f"audio/pcm{parameters}"
        return {"content-type": kind, "x-seed": str(self.request.seed)}

    def file_header(self, frames: int | None) -> bytes:
        """What comes before the samples."""
        return wav_header(self.sound.rate, self.sound.channels, frames) if self.format == "wav" else b""

    def pcm(self, items: Items) -> bytes:
        """The samples among what has arrived."""
        if items.output != self.output:
            return b""
        return b"".join(self._samples(item) for item in items.items)

    def _samples(self, item: Item) -> bytes:
        output = f"{self.model}: its output {self.output!r}"
        if not isinstance(item, np.ndarray):
            raise ComponentError(f"{output} is a {type(item).__name__}, not sound")
        try:
            return pcm16(item, self.sound.channels)
        except ValueError as error:
            raise ComponentError(f"{output}: {error}") from error


def speech_route(caller: Caller, models: Mapping[str, Model], settings: HttpSettings) -> BaseRouteHandler:
    """The route."""

    @post(
        "/v1/audio/speech",
        status_code=200,
        summary="Speak a text",
        description=DESCRIPTION,
        tags=["audio"],
        media_type="audio/wav",
        operation_class=SpeechOperation,
        responses=documented(400, 404, 413, 415, 500, 503),
    )
    async def speak(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        speech = read_speech(models, await read_object(request, settings.body_bytes))

        async def write(client: Client) -> None:
            with caller.submit(
                speech.model, speech.request, on_cut=client.abort, id=request_id(request.scope)
            ) as call:
                if speech.is_streamed:
                    await write_stream(speech, call, client)
                else:
                    await write_whole(speech, call, client)

        return Answer(write)

    return speak


# --- reading ------------------------------------------------------------------------------------------


def read_speech(models: Mapping[str, Model], given: dict[str, Any]) -> Speech:
    """Check what a client sent and make it the family's own request.

    Raises:
        BadRequest: With the field at fault; nothing that was sent is ignored.
    """
    name, model = find_model(models, read_fields(_ModelField, given)[0].model)
    require_surface(name, model, SURFACE)
    body, rest = read_fields(SpeechBody, given)
    options = option_paths(type(model).Options)
    _check(body, type(model))
    for field in rest:
        if field not in options:
            raise unknown_option(type(model).Options, field, what="field", also=SpeechBody.__struct_fields__)
    ask = SpeechAsk(
        text=body.input,
        voice=body.voice,
        instructions=body.instructions,
        speed=1.0 if body.speed is None else body.speed,
        options=rest,
    )
    try:
        request = model.speech_request(ask)
    except BadRequest as wrong:
        wrong.param = "input" if wrong.param == "text" else wrong.param  # as it is called on the wire
        raise
    output, sound = _sound(name, model, request)
    return Speech(name, request, output, sound, body.response_format or "wav", _is_streamed(body))


def _check(body: SpeechBody, family: type[Model]) -> None:
    if not body.input.strip():
        raise BadRequest("input: there is nothing to say", param="input")
    if body.response_format is not None and body.response_format not in FORMATS:
        raise BadRequest(
            f"response_format: {body.response_format!r} is not offered; there is {' and '.join(FORMATS)}",
            param="response_format",
        )
    if body.instructions is not None and not family.takes_instructions:
        raise BadRequest(
            "instructions: this model takes no instructions; leave them out", param="instructions"
        )
    if body.speed is not None and body.speed != 1.0:
        if not family.takes_speed:
            raise BadRequest("speed: only 1 is offered, the voice's own; leave it out", param="speed")
        if not SPEEDS[0] <= body.speed <= SPEEDS[1]:
            raise BadRequest(
                f"speed: it is from {SPEEDS[0]} to {SPEEDS[1]}, got {body.speed:g}", param="speed"
            )
    if body.stream_format is not None and body.stream_format != "audio":
        raise BadRequest(
            f"stream_format: {body.stream_format!r} is not offered; there is 'audio'", param="stream_format"
        )


def _is_streamed(body: SpeechBody) -> bool:
    return body.stream if body.stream is not None else body.stream_format is not None


def _sound(name: str, model: Model, request: Request) -> tuple[str, Audio]:
    for output in request.outputs:
        kind = model.spec.outputs[output].kind
        if isinstance(kind, Audio):
            return output, kind
    raise ComponentError(f"{name}: its speech_request asks for no output that is sound")


# --- writing -------------------------------------------------------------------------------------------


async def write_whole(speech: Speech, call: Call, client: Client) -> None:
    """Wait for all of it; sizes are exact and the headers say how it went."""
    pcm = bytearray()
    while True:
        for event in await call.take():
            match event:
                case Items():
                    pcm += speech.pcm(event)
                case Failed():
                    raise _refused(event)
                case Done():
                    header = speech.file_header(len(pcm) // (SAMPLE_BYTES * speech.sound.channels))
                    size = {"content-length": str(len(header) + len(pcm))}
                    await client.start(200, speech.headers | _told_at_the_end(event.ended) | size)
                    await client.send(header + bytes(pcm), more=False)
                    return


async def write_stream(speech: Speech, call: Call, client: Client) -> None:
    """Send samples as they come. The status goes out with the first, so that a failure before has its own."""
    call.record.is_streamed = True
    header = speech.file_header(None)
    is_started = is_done = False
    while not is_done:
        pcm = b""
        for event in await call.take():
            match event:
                case Items():
                    pcm += speech.pcm(event)
                case Failed() if is_started:
                    log.warning("%s: a stream is cut: %s", speech.model, event.fault.message)
                    return  # without a last piece: the client sees that something is missing
                case Failed():
                    raise _refused(event)
                case Done():
                    is_done = True
        if (pcm or is_done) and not is_started:
            is_started = True
            await client.start(200, speech.headers)
            pcm = header + pcm
        if pcm or is_done:
            await client.send(pcm, more=not is_done)


def _refused(failed: Failed) -> Faulted:
    fault = failed.fault
    return Faulted(replace(fault, param="input") if fault.param == "text" else fault)


def _told_at_the_end(ended: RequestEnded) -> dict[str, str]:
    return {
        "x-finish-reason": ended.finish_reason,
        "x-usage-input-tokens": str(ended.usage.get("input_tokens", 0)),
        "x-usage-output-tokens": str(ended.usage.get("output_tokens", 0)),
    }
