"""What OpenAPI says of ``POST /v1/images/generations`` and ``POST /v1/images/edits``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar.openapi.spec import (
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Schema,
)

from walkserve.http.event_answers import SSE
from walkserve.http.examples import Shown as Example
from walkserve.http.extended_docs import JSON, body_schema, events_schema, in_form, in_json, schema_of
from walkserve.http.forms import FORM
from walkserve.http.image_answers import ImagesAnswer, Shown
from walkserve.http.image_reading import EDITS, MOST, EditFields, ImageFields
from walkserve.http.operation_docs import operation
from walkserve.http.option_docs import Written
from walkserve_sdk import Model

_BOTH = f"""\
* Pictures are in the answer as base64; `response_format: "url"` is a 400, for none is kept.
* `n` is up to {MOST}. Picture i has the seed plus i, so that it can be had again alone; `data[i].seed` tells
  it, and `x-seed` the first.
* With `stream: true` there are server-sent events as OpenAI has them: `{{prefix}}.partial_image` where
  `partial_images` asks for some and the model shows them, and one `{{prefix}}.completed` for each picture.
  `index` says which it is. There is no `[DONE]`.
* `usage` has no details: a model counts tokens, not of what they are.
* Every further field is an option of the model's family. One that neither the route nor the family knows is a
  400.

A failure before the first byte is an error response. Among events it is an event named `error`, whose data is
the body of an error response, and no picture comes after it.
"""
GENERATE = "Paints what a text says, as OpenAI's route of that name does. What differs:\n\n" + _BOTH.format(
    prefix="image_generation"
)
EDIT = (
    "Paints anew what it is sent, as a text says, as OpenAI's route of that name does. The body is a form,"
    " with a file for each image, all of them named `image` or all `image[]`. What differs:\n\n"
    "* `mask` is a 400: what is to be edited is said in words.\n" + _BOTH.format(prefix="image_edit")
)
_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
_USAGE = {"input_tokens": 9, "output_tokens": 0, "total_tokens": 9}
_ABOUT = {"background": "opaque", "output_format": "png", "quality": "auto", "size": "1024x1024"}
_ANSWER = {
    "created": 1764460800,
    "data": [{"b64_json": _DOT, "seed": 7, "finish_reason": "stop"}],
    **_ABOUT,
    "usage": _USAGE,
}
_HEADERS = {
    "x-request-id": OpenAPIHeader(
        schema=Schema(type=OpenAPIType.STRING), description="The id of this request."
    ),
    "x-seed": OpenAPIHeader(
        schema=Schema(type=OpenAPIType.INTEGER), description="The random seed of the first picture."
    ),
}


def image_operation(surface: str, having: Mapping[str, Model]) -> type[Operation]:
    """Of one of the routes.

    Args:
        having: The models that have it; their options are among its fields.
    """
    is_edit = surface == EDITS
    own = schema_of(EditFields if is_edit else ImageFields)
    if is_edit:
        schema = body_schema(_as_form(in_form(own)), having, is_form=True)
        body = {FORM: OpenAPIMediaType(schema=schema)}
    else:
        asked = {"model": "a-model", "prompt": "a red chair", "size": "1024x1024", "seed": 7}
        example: Any = Example(summary="One picture", value=asked)
        body = {JSON: OpenAPIMediaType(schema=body_schema(in_json(own), having), examples={"one": example})}
    return operation(body, _answer("image_edit" if is_edit else "image_generation"))


def _as_form(own: dict[str, Any]) -> dict[str, Any]:
    """One of two names has the images, and no mask is taken."""
    fields = {name: each for name, each in own["properties"].items() if name not in ("mask", "image[]")}
    image = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
    about = own["properties"]["image"].get("description", "")
    return {
        **own,
        "required": ["prompt", "image"],
        "properties": fields | {"image": image | {"description": about}},
    }


def _answer(prefix: str) -> OpenAPIResponse:
    event = {
        "type": f"{prefix}.completed",
        "b64_json": _DOT,
        "created_at": 1764460800,
        **_ABOUT,
        "index": 0,
        "seed": 7,
        "usage": _USAGE,
        "finish_reason": "stop",
        "request_id": "req-5f",
    }
    answer: Any = Example(summary="One picture", value=_ANSWER)
    return OpenAPIResponse(
        description="The pictures: all of them, or each as an event of its own.",
        headers={**_HEADERS},
        content={
            JSON: OpenAPIMediaType(schema=Written(value=schema_of(ImagesAnswer)), examples={"one": answer}),
            SSE: events_schema(schema_of(Shown), event, "Events, each with a picture."),
        },
    )
