"""What OpenAPI says of ``POST /v1/audio/speech``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from litestar.openapi.spec import (
    Example,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Reference,
    Schema,
)

from walkserve.http.operation_docs import operation
from walkserve.http.option_docs import family_options, same_options
from walkserve.http.sentences import MOST_CHARS
from walkserve.http.speech_reading import DEFAULT_FORMAT, SPEEDS, SPLITS, STREAM_FORMATS
from walkserve.media.formats import FORMATS
from walkserve_sdk import Model


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


DESCRIPTION = f"""\
Speaks a text, as OpenAI's route of that name does. What differs:

* `response_format` is {_names(FORMATS)}.
  Absent, it is `{DEFAULT_FORMAT}`, where OpenAI's default is `mp3`. Others, `aac` among them, are a 400.
* With `stream: true`, or `stream_format: "audio"`, the bytes of the file are sent as they are made.
  `stream: false` wins over the latter.
* With `stream_format: "sse"` they are sent as server-sent events: `speech.audio.delta` with some of the bytes
  in base64, and in the end one `speech.audio.done` with `usage`, `finish_reason`, `seed`, `request_id` and
  `audio_s`. There is no `[DONE]` after it. It cannot be had with `stream: false`.
* With `split: "sentence"` the text is spoken sentence by sentence, each as if it were asked alone with the
  same seed, and joined to the sample; one of more than {MOST_CHARS} characters is cut. So a text may be
  longer than the model's context, and `max_tokens` is of each sentence.
* Every further field is an option of the model's family (`max_tokens`, `temperature`, `seed`, ...). A field
  that neither this route nor the family knows is a 400.

`wav` is 16-bit PCM; `pcm` is the same samples, little-endian, without a header; `flac` holds the same samples
too. `opus` is in an Ogg file. A rate that `mp3` or `opus` cannot hold is changed to the next higher one.
A streamed file has a header without a length: both sizes of a WAV are 0xFFFFFFFF, for "to the end".

The same `seed` gives the same sound again. `temperature: 0` alone does not where a family draws more than
tokens: noise that a codec adds, for instance, which an option such as `codec_noise: false` leaves out.

A failure before the first byte is an error response. One after it closes the connection before the end of
the body: what has come is not all. Among events it is an event named `error`, whose data is the body of an
error response; no `speech.audio.done` comes then.
"""


def _text(description: str, **more: object) -> Schema:
    return Schema(type=OpenAPIType.STRING, description=description, **more)  # type: ignore[arg-type]


def _optional(description: str, kind: OpenAPIType = OpenAPIType.STRING, **more: object) -> Schema:
    """A field that may be absent, or null, which is the same."""
    return Schema(type=[kind, OpenAPIType.NULL], description=description, **more)  # type: ignore[arg-type]


def _body(speaking: Mapping[str, Model]) -> Schema:
    """The fields of this route, and the options of what speaks here: others are refused."""
    fields = {
        "model": _text("A model's id, or its family's name where one model of that family is served."),
        "input": _text("What to say; not blank.", pattern=r"\S"),
        "voice": _voice(speaking.values()),
        "instructions": _optional("How to say it, for families that take instructions.")
        if any(model.takes_instructions for model in speaking.values())
        else Schema(type=OpenAPIType.NULL, description="None of the models served here takes instructions."),
        "response_format": _optional("What file is made.", enum=[*FORMATS, None], default=DEFAULT_FORMAT),
        "speed": _optional(
            "1 is the voice's own; others are for families that can.",
            OpenAPIType.NUMBER,
            minimum=SPEEDS[0],
            maximum=SPEEDS[1],
            default=1,
        )
        if any(model.takes_speed for model in speaking.values())
        else Schema(
            enum=[1, None], description="No model served here has another speed than its own.", default=1
        ),
        "stream": _optional("Send the file's bytes as they are made.", OpenAPIType.BOOLEAN, default=False),
        "stream_format": _optional(
            "Asks for streaming too, as OpenAI's clients do: of bytes, or of events; of events not with"
            " `stream: false`.",
            enum=[*STREAM_FORMATS, None],
        ),
        "split": _optional("Speak the text in pieces; all at once if absent.", enum=[*SPLITS, None]),
    }
    options = {name: schema for name, schema in family_options(speaking).items() if name not in fields}
    return Schema(
        type=OpenAPIType.OBJECT,
        required=["model", "input"],
        properties={**fields, **options},
        additional_properties=False,
        schema_not=Schema(any_of=_exclusive(speaking.values())),
    )


def _exclusive(speaking: Iterable[Model]) -> list[Schema]:
    """What may not stand together: one file and events; two names of one option."""
    whole, events = Schema(const=False), Schema(const="sse")
    return [
        Schema(required=["stream", "stream_format"], properties={"stream": whole, "stream_format": events}),
        *same_options(speaking),
    ]


def _voice(speaking: Iterable[Model]) -> Schema:
    voices = list(dict.fromkeys(voice for model in speaking for voice in model.voices))
    here = f" Here: {_names(voices)}." if voices else ""
    return _optional(f"One of the model's voices, in any case; its first if absent.{here}")


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
    "events": Example(
        summary="A long text as events, spoken sentence by sentence",
        value={
            "model": "a-model",
            "input": "Good morning. It is a fine day, and there is much to say of it.",
            "response_format": "opus",
            "stream_format": "sse",
            "split": "sentence",
        },
    ),
}


_SEED = OpenAPIHeader(
    schema=Schema(type=OpenAPIType.INTEGER), required=True, description="The random seed in force."
)


def _at_the_end(description: str, kind: OpenAPIType) -> OpenAPIHeader:
    return OpenAPIHeader(schema=Schema(type=kind), description=f"{description} Of a whole file only.")


_HEADERS: dict[str, OpenAPIHeader | Reference] = {
    "x-seed": _SEED,
    "x-request-id": OpenAPIHeader(schema=_text("The id of this request."), required=True),
    "x-finish-reason": _at_the_end("Why it ended: `stop`, `length`, ...", OpenAPIType.STRING),
    "x-usage-input-tokens": _at_the_end("Tokens read.", OpenAPIType.INTEGER),
    "x-usage-output-tokens": _at_the_end("Tokens written.", OpenAPIType.INTEGER),
    "x-audio-s": _at_the_end("How long it is.", OpenAPIType.NUMBER),
    "x-audio-content-type": OpenAPIHeader(schema=_text("The sound's own content type, among events.")),
}


def _events() -> Schema:
    delta = Schema(
        type=OpenAPIType.OBJECT,
        required=["type", "audio"],
        properties={"type": Schema(const="speech.audio.delta"), "audio": _text("Bytes, in base64.")},
    )
    whole = Schema(type=OpenAPIType.INTEGER)
    usage = Schema(
        type=OpenAPIType.OBJECT,
        required=["input_tokens", "output_tokens", "total_tokens"],
        properties={"input_tokens": whole, "output_tokens": whole, "total_tokens": whole},
    )
    done = Schema(
        type=OpenAPIType.OBJECT,
        required=["type", "usage", "finish_reason", "seed", "request_id", "audio_s"],
        properties={
            "type": Schema(const="speech.audio.done"),
            "usage": usage,
            "finish_reason": Schema(type=OpenAPIType.STRING),
            "seed": whole,
            "request_id": Schema(type=OpenAPIType.STRING),
            "audio_s": Schema(type=OpenAPIType.NUMBER),
        },
    )
    failed = Schema(
        type=OpenAPIType.OBJECT,
        required=["error"],
        properties={"error": Reference(ref="#/components/schemas/Problem")},
    )
    data = Schema(
        type=OpenAPIType.STRING,
        content_media_type="application/json",
        content_schema=Schema(one_of=[delta, done, failed]),
    )
    return Schema(
        type=OpenAPIType.OBJECT,
        description="One event, named `error` if it failed midway; else without a name, which is `message`.",
        required=["data"],
        properties={"data": data, "event": Schema(enum=["message", "error"])},
    )


def _sounds() -> dict[str, OpenAPIMediaType]:
    """What the body may be."""
    content = {
        each.media_type: OpenAPIMediaType(
            schema=Schema(
                type=OpenAPIType.STRING,
                content_media_type=each.media_type,
                description=f"`{each.name}`: `{each.content_type(24_000, 1)}` for one channel at 24 kHz.",
            )
        )
        for each in FORMATS.values()
    }
    return content | {"text/event-stream": OpenAPIMediaType(schema=_events())}


def speech_operation(speaking: Mapping[str, Model]) -> type[Operation]:
    """The route reads its body and writes its answer itself, so that OpenAPI has to be told of both."""
    content = {"application/json": OpenAPIMediaType(schema=_body(speaking), examples=_EXAMPLES)}
    answer = OpenAPIResponse(
        description="The sound: a whole file, its bytes as they are made, or events with them.",
        headers=_HEADERS,
        content=_sounds(),
    )
    return operation(content, answer)
