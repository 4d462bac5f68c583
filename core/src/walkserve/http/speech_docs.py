"""What OpenAPI says of ``POST /v1/audio/speech``."""

from __future__ import annotations

from dataclasses import dataclass

from litestar.openapi.spec import (
    Example,
    OpenAPIFormat,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Reference,
    RequestBody,
    Schema,
)

DESCRIPTION = """\
Speaks a text, as OpenAI's route of that name does. What differs:

* `response_format` is `wav` (16-bit PCM in a WAV file; also what you get when you name none, where OpenAI's
  default is `mp3`) or `pcm` (the same samples, little-endian, without a header). Others are a 400.
* With `stream: true`, or a `stream_format` (`audio`), samples are sent as they are made. A streamed WAV has
  one header whose two sizes are 0xFFFFFFFF, for "to the end"; an unstreamed one has exact sizes.
* Every further field is an option of the model's family (`max_tokens`, `temperature`, `seed`, ...). A field
  that neither this route nor the family knows is a 400.

The same `seed` gives the same sound again. `temperature: 0` alone does not where a family draws more than
tokens: noise that a codec adds, for instance, which an option such as `codec_noise: false` leaves out.

The content type is `audio/wav`, or `audio/pcm;rate=24000;channels=1` with the true rate and channels.
`x-seed` is the random seed in force. An unstreamed response also has `x-finish-reason`,
`x-usage-input-tokens` and `x-usage-output-tokens`. Every response has an `x-request-id`.

A failure before the first sample is an error response. One after it closes the connection before the end of
the body: what has come is not all.
"""


def _text(description: str, **more: object) -> Schema:
    return Schema(type=OpenAPIType.STRING, description=description, **more)  # type: ignore[arg-type]


_BODY = Schema(
    type=OpenAPIType.OBJECT,
    required=["model", "input"],
    properties={
        "model": _text("A model's id, or its family's name where one model of that family is served."),
        "input": _text("What to say.", min_length=1),
        "voice": _text("One of the model's voices; its default if absent."),
        "instructions": _text("How to say it, for families that take instructions."),
        "response_format": _text("How samples are sent.", enum=["wav", "pcm"], default="wav"),
        "speed": Schema(
            type=OpenAPIType.NUMBER,
            description="1 is the voice's own; others are for families that can.",
            minimum=0.25,
            maximum=4,
            default=1,
        ),
        "stream": Schema(
            type=OpenAPIType.BOOLEAN, description="Send samples as they are made.", default=False
        ),
        "stream_format": _text("Asks for streaming too, as OpenAI's clients do.", enum=["audio"]),
    },
    additional_properties=Schema(description="An option of the model's family."),
)

_EXAMPLES: dict[str, Example | Reference] = {
    "whole": Example(summary="A WAV file", value={"model": "a-model", "input": "Good morning."}),
    "streamed": Example(
        summary="Raw samples as they are made, with options of the family",
        value={
            "model": "a-model",
            "input": "Good morning.",
            "response_format": "pcm",
            "stream": True,
            "temperature": 0.6,
            "seed": 7,
        },
    ),
}


@dataclass
class SpeechOperation(Operation):
    """The route reads its body itself, so that OpenAPI has to be told what is in it."""

    def __post_init__(self) -> None:
        content = {"application/json": OpenAPIMediaType(schema=_BODY, examples=_EXAMPLES)}
        self.request_body = RequestBody(content=content, required=True)
        sound = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY))
        self.responses = dict(self.responses or {})
        self.responses["200"] = OpenAPIResponse(
            description="The sound", content={"audio/wav": sound, "audio/pcm": sound}
        )
