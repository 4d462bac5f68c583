"""What OpenAPI says of ``POST /v1/generate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litestar.openapi.spec import (
    Example,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Reference,
    RequestBody,
    Schema,
)

from walkserve.http.event_answers import NDJSON, SSE
from walkserve.http.generate_accept import RAW
from walkserve.http.terms_docs import PARAMETERS
from walkserve_sdk.models import MOST_NAME
from walkserve_sdk.requests import KINDS

DESCRIPTION = """\
Runs a request of any model: its inputs in, in their order, and every output it makes out.

**In.** JSON, or a form (`multipart/form-data`), in which files are sent as they are. In a form every part
named `text`, `image`, `audio`, `video` or `tensor` is an input, and their order is that of the inputs;
`outputs` may come several times; `options` is a JSON object. An input may have a name, which tells the model
what it is for: `"name": "goal"` in JSON, `image[goal]` in a form. An image is PNG, JPEG, WebP or GIF, a video
MP4, WebM, Matroska, AVI or GIF, whatever it is called; what is larger than this server takes is a 413 before
any of it is decoded. Addresses of files are not followed.

**Out**, by `Accept`:

* `application/x-ndjson`, also without an `Accept`: events as they come, one JSON object a line. First
  `started`, then an `output` for every piece, at the end `done`, or `error` if it failed. An array has
  `dtype`, `shape` and `data`: base64 of its numbers, little-endian, the last axis fastest.
* `text/event-stream`: the same events.
* The whole of one output as bytes, when it is complete: `text/plain`, `audio/wav`, ... as the model's output
  is. `application/x-npy` is a NumPy file, `application/octet-stream` the bare numbers, with `x-dtype` and
  `x-shape`.

A failure before the first piece is an error response, one after it an `error` event, which is the last. A
client that leaves cancels its request. `GET /v1/requests/{request_id}` tells later how it went.
"""


def _text(description: str, **more: Any) -> Schema:
    return Schema(type=OpenAPIType.STRING, description=description or None, **more)


def _object(properties: Mapping[str, Any], *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    required = [name for name in properties if name not in optional]
    return Schema(
        type=OpenAPIType.OBJECT,
        properties=dict(properties),
        required=required or None,
        additional_properties=False,
        **more,
    )


def _or_null(description: str) -> Schema:
    return Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL], description=description)


def _list(items: Schema, description: str, **more: Any) -> Schema:
    return Schema(type=OpenAPIType.ARRAY, items=items, description=description, **more)


def _whole(description: str) -> Schema:
    return Schema(type=OpenAPIType.INTEGER, minimum=0, description=description)


def _counts(description: str) -> Schema:
    return Schema(type=OpenAPIType.OBJECT, additional_properties=_whole("How many."), description=description)


# --- in -----------------------------------------------------------------------------------------------

_MODEL = _text("A model's id, or its family's name where one model of that family is served.")
_OUTPUTS = _list(_text("An output's name."), "What is asked for; all outputs of the model if absent.")
_OPTIONS = Schema(
    type=OpenAPIType.OBJECT, description="Options of the model's family, by name.", additional_properties=True
)
_SPLIT = _text("`sentence` has a long text spoken sentence by sentence, as one answer.", enum=["sentence"])
_TIMEOUT = Schema(
    type=OpenAPIType.NUMBER,
    exclusive_minimum=0,
    description="Seconds that it may take; then it is a 504. The shorter of this and `x-timeout-s` holds.",
)
_NAME = _text("What it is for, where the model takes several of a kind.", max_length=MOST_NAME)
_INPUT = Schema(
    one_of=[
        _object(
            {"type": _text("", const="text"), "text": _text("The text."), "name": _NAME}, optional=("name",)
        ),
        _object(
            {
                "type": _text("", enum=[kind for kind in KINDS if kind != "text"]),
                "data": _text("A file's bytes in base64, alone or as `data:TYPE;base64,...`."),
                "name": _NAME,
            },
            optional=("name",),
        ),
    ]
)
_BODY = _object(
    {
        "model": _MODEL,
        "text": _text("Short for one text among the inputs."),
        "inputs": _list(_INPUT, "Text and media, in their order; not beside `text`."),
        "outputs": _OUTPUTS,
        "options": _OPTIONS,
        "split": _SPLIT,
        "timeout_s": _TIMEOUT,
    },
    optional=("text", "inputs", "outputs", "options", "split", "timeout_s"),
)
_FORM = _object(
    {
        "model": _MODEL,
        "text": _text("A text among the inputs."),
        **{kind: _text("A file among the inputs.", format="binary") for kind in KINDS if kind != "text"},
        "outputs": _text("What is asked for; once for each output."),
        "options": _text("Options of the model's family, a JSON object."),
        "split": _SPLIT,
        "timeout_s": _TIMEOUT,
    },
    optional=(*KINDS, "outputs", "options", "split", "timeout_s"),
    pattern_properties={rf"^({'|'.join(KINDS)})\[.*\]$": _text("An input with a name.", format="binary")},
)
_EXAMPLES: dict[str, Example | Reference] = {
    "text": Example(
        summary="A text, and options of the family",
        value={"model": "a-model", "text": "Good morning.", "options": {"seed": 7}},
    ),
    "media": Example(
        summary="Text and media in an order, and one of the outputs",
        value={
            "model": "a-model",
            "inputs": [
                {"type": "text", "text": "What is this?"},
                {
                    "type": "image",
                    "data": "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAkQBADs=",
                },
            ],
            "outputs": ["answer"],
        },
    ),
}

# --- out ----------------------------------------------------------------------------------------------

_SIMPLE = [OpenAPIType.BOOLEAN, OpenAPIType.NUMBER, OpenAPIType.STRING]
_PIECE = {
    "type": _text("", const="output"),
    "output": _text("Its name."),
    "kind": _text("Of the output.", enum=[*KINDS, "record"]),
    "index": _whole("Which piece of this output, from 0."),
    "row": _whole("Of a model that does the same for several candidates: whose piece it is, from 0."),
}
_ARRAY = {
    "dtype": _text("As NumPy spells it."),
    "shape": _list(_whole("Along one axis."), "Audio is (samples,) or (samples, channels)."),
    "data": _text("The numbers, little-endian, in base64.", content_encoding="base64"),
}
_RECORD = Schema(
    type=OpenAPIType.OBJECT,
    description="Values by name: numbers, text, arrays, and lists of them. What JSON cannot write is null.",
    additional_properties=Schema(
        any_of=[
            Schema(type=[*_SIMPLE, OpenAPIType.NULL]),
            _object(_ARRAY),
            _list(Schema(any_of=[Schema(type=_SIMPLE), _object(_ARRAY)]), "Several in an order."),
        ]
    ),
)
EVENTS = Schema(
    one_of=[
        _object(
            {
                "type": _text("", const="started"),
                "request_id": _text("As in `x-request-id`."),
                "model": _text("The model's id."),
                "seed": _whole("The random seed in force."),
                "outputs": Schema(
                    type=OpenAPIType.OBJECT,
                    description="What comes, by name.",
                    additional_properties=_object(
                        {
                            "kind": _text("", enum=[*KINDS, "record"]),
                            "rate": _whole("Of audio, samples per second."),
                            "channels": _whole("Of audio."),
                            "fps": Schema(type=OpenAPIType.NUMBER, description="Of video."),
                            "many": Schema(
                                type=OpenAPIType.BOOLEAN, description="Whether several of them may come."
                            ),
                        },
                        optional=("rate", "channels", "fps", "many"),
                    ),
                ),
            }
        ),
        _object({**_PIECE, "text": _text("A piece of text.")}, optional=("row",)),
        _object({**_PIECE, "record": _RECORD}, optional=("row",)),
        _object(
            {
                **_PIECE,
                "rate": _whole("Of audio, samples per second."),
                "fps": Schema(type=OpenAPIType.NUMBER, description="Of video, frames per second."),
                **_ARRAY,
            },
            optional=("row", "rate", "fps"),
        ),
        _object(
            {
                "type": _text("", const="done"),
                "finish_reason": _text("`stop`, `length`, or another of the family's."),
                "usage": _counts("Tokens."),
                "counts": _counts("What components counted."),
                "emitted": _counts("Pieces of each output."),
            }
        ),
        _object(
            {
                "type": _text("", const="error"),
                "error": _object(
                    {
                        "message": _text("What went wrong, and the cure."),
                        "type": _text("Whose fault it is."),
                        "param": _or_null("The field at fault."),
                        "code": _or_null("For programs to look at."),
                    }
                ),
            }
        ),
    ]
)
_LINES = """\
{"type":"started","request_id":"req-1","model":"a-model","seed":7,"outputs":{"answer":{"kind":"text"}}}
{"type":"output","output":"answer","kind":"text","index":0,"text":"A cat."}
{"type":"done","finish_reason":"stop","usage":{"input_tokens":9,"output_tokens":3},"counts":{},"emitted":{"answer":1}}
"""


_CONTENT = {
    NDJSON: OpenAPIMediaType(
        schema=_text("Events, one a line.", content_media_type="application/json", content_schema=EVENTS),
        examples={"events": Example(value=_LINES)},
    ),
    SSE: OpenAPIMediaType(
        schema=_text("The same events, each behind `data: `."),
        examples={"events": Example(value="".join(f"data: {line}\n\n" for line in _LINES.splitlines()))},
    ),
    **{raw.media_type: OpenAPIMediaType(schema=_text("", format="binary")) for raw in RAW},
}
_HEADERS: dict[str, OpenAPIHeader | Reference] = {
    "x-seed": OpenAPIHeader(schema=_whole("The random seed in force."), required=True),
    "x-finish-reason": OpenAPIHeader(schema=_text("Of raw bytes.")),
    "x-usage-input-tokens": OpenAPIHeader(schema=_whole("Of raw bytes.")),
    "x-usage-output-tokens": OpenAPIHeader(schema=_whole("Of raw bytes.")),
}


@dataclass
class GenerateOperation(Operation):
    """The route reads and writes by itself, so that OpenAPI has to be told what."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            content={
                "application/json": OpenAPIMediaType(schema=_BODY, examples=_EXAMPLES),
                "multipart/form-data": OpenAPIMediaType(schema=_FORM),
            },
            required=True,
        )
        self.parameters = [*(self.parameters or ()), *PARAMETERS]
        assert self.responses is not None
        self.responses["200"] = OpenAPIResponse(description="The answer", content=_CONTENT, headers=_HEADERS)
