"""What a client asks of ``POST /v1/audio/speech``, checked before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from msgspec import Struct

from walkserve.http.bodies import read_fields
from walkserve.http.models import named_model, require_surface
from walkserve.http.sentences import each_sentence
from walkserve.media.formats import FORMATS, SoundFormat
from walkserve_sdk import Audio, Model, Request, SpeechAsk
from walkserve_sdk.errors import BadRequest, ComponentError
from walkserve_sdk.requests import option_paths, unknown_option

SURFACE = "audio.speech"
DEFAULT_FORMAT = "wav"
SPEEDS = (0.25, 4)
STREAM_FORMATS = ("audio", "sse")
SPLITS = ("sentence",)

Manner = Literal["whole", "stream", "events"]


class SpeechBody(Struct, frozen=True):
    """The fields that OpenAI defines, ``stream`` and ``split``. Whatever else is sent is an option of the
    family."""

    model: str
    input: str
    voice: str | None = None
    instructions: str | None = None
    response_format: str | None = None
    speed: float | None = None
    stream: bool | None = None
    stream_format: str | None = None
    split: str | None = None


@dataclass(frozen=True, slots=True)
class Speech:
    """One speech request, checked: what to say to which model, and how the sound leaves.

    Args:
        request: To the model, with all of the text or its first piece.
        later: The other pieces.
        ask: Makes a later piece a request to the model; with the same seed.
        output: The name of the output that is the sound.
        manner: One file when all is there, its bytes as they come, or events with bytes in them.
    """

    model: str
    request: Request
    later: Iterator[str]
    ask: Callable[[str], Request]
    output: str
    sound: Audio
    format: SoundFormat
    manner: Manner

    @property
    def content_type(self) -> str:
        """Of the sound."""
        return self.format.content_type(self.sound.rate, self.sound.channels)


def read_speech(models: Mapping[str, Model], given: dict[str, Any]) -> Speech:
    """Check what a client sent and make it the family's own request.

    Raises:
        BadRequest: With the field at fault; nothing that was sent is ignored.
    """
    name, model = named_model(models, given)
    require_surface(name, model, SURFACE)
    body, rest = read_fields(SpeechBody, given)
    options = option_paths(type(model).Options)
    _check(body, type(model))
    for field in rest:
        if field not in options:
            raise unknown_option(type(model).Options, field, what="field", also=SpeechBody.__struct_fields__)
    pieces = iter((body.input,)) if body.split is None else map(str.strip, each_sentence(body.input))
    ask = SpeechAsk(
        text=next(pieces),  # there is one: the text is not blank
        voice=body.voice,
        instructions=body.instructions,
        speed=1.0 if body.speed is None else body.speed,
        options=rest,
    )
    request = _ask(model, ask)
    seeded = {**rest, "seed": request.seed}
    output, sound = _sound(name, model, request)
    format = FORMATS[body.response_format or DEFAULT_FORMAT]
    if sound.channels > format.most_channels:
        raise BadRequest(
            f"response_format: {format.name} has at most {format.most_channels} channels, the sound of"
            f" {name} has {sound.channels}",
            param="response_format",
        )
    return Speech(
        model=name,
        request=request,
        later=pieces,
        ask=lambda text: _ask(model, replace(ask, text=text, options=seeded)),
        output=output,
        sound=sound,
        format=format,
        manner=_manner(body),
    )


def _ask(model: Model, ask: SpeechAsk) -> Request:
    try:
        return model.speech_request(ask)
    except BadRequest as wrong:
        wrong.param = "input" if wrong.param == "text" else wrong.param  # as it is called on the wire
        raise


def _check(body: SpeechBody, family: type[Model]) -> None:
    if not body.input.strip():
        raise BadRequest("input: there is nothing to say", param="input")
    _check_one_of("response_format", body.response_format, tuple(FORMATS))
    _check_one_of("stream_format", body.stream_format, STREAM_FORMATS)
    _check_one_of("split", body.split, SPLITS)
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
    if body.stream is False and body.stream_format == "sse":
        raise BadRequest(
            "stream: false asks for one file, and stream_format 'sse' for events; send one of them",
            param="stream",
        )


def _check_one_of(field: str, value: str | None, offered: tuple[str, ...]) -> None:
    if value is not None and value not in offered:
        raise BadRequest(f"{field}: {value!r:.60} is not offered; there is {', '.join(offered)}", param=field)


def _manner(body: SpeechBody) -> Manner:
    if body.stream_format == "sse":
        return "events"
    is_streamed = body.stream if body.stream is not None else body.stream_format is not None
    return "stream" if is_streamed else "whole"


def _sound(name: str, model: Model, request: Request) -> tuple[str, Audio]:
    for output in request.outputs:
        kind = model.spec.outputs[output].kind
        if isinstance(kind, Audio):
            return output, kind
    raise ComponentError(f"{name}: its speech_request asks for no output that is sound")
