"""What OpenAPI says of ``POST /v1/chat/completions``."""

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

from walkserve.http.chat_answers import ChatAnswer, ChatChunk
from walkserve.http.chat_reading import MOST, MOST_STOP, ChatFields
from walkserve.http.event_answers import SSE
from walkserve.http.examples import Shown
from walkserve.http.extended_docs import JSON, body_schema, events_schema, in_json, schema_of
from walkserve.http.operation_docs import operation
from walkserve.http.option_docs import Written
from walkserve_sdk import Model

DESCRIPTION = f"""\
Answers what was said, as OpenAI's route of that name does. What differs:

* Messages have texts and images. An image is a data URL: no address is opened. `developer` is `system`; there
  are no tools.
* A model that knows no roles reads all that was said in its order, what the system said first.
* With `"image"` among the `modalities`, of a model that paints, images are in `message.images`, each
  `{{"type": "image_url", "image_url": {{"url": "data:image/png;base64,..."}}}}`, or in `delta.images` of a
  stream. An answer can be sent back with them as a message.
* `n` is up to {MOST}. Answer i has the seed plus i, so that it can be had again alone; its choice tells it,
  and `x-seed` the first.
* `stop` is up to {MOST} strings of at most {MOST_STOP} characters. What one of them cuts off is not computed;
  `usage` then counts what was written up to it.
* `logprobs` are those of the model itself, before `temperature` and the like; of a model that does not tell
  them they are a 400.
* Every further field is an option of the model's family (`temperature`, `top_p`, `seed`, ...). One that
  neither the route nor the family knows is a 400.

A failure before the first byte is an error response. Among events it is an event named `error`, whose data is
the body of an error response; no `[DONE]` comes then.
"""
_USAGE = {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 25}
_ANSWER: dict[str, Any] = {
    "id": "chatcmpl-5f",
    "created": 1764460800,
    "model": "a-model:small",
    "choices": [
        {
            "index": 0,
            "message": {"content": "A red chair.", "role": "assistant", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "seed": 7,
        }
    ],
    "usage": _USAGE,
    "object": "chat.completion",
}
_CHUNK: dict[str, Any] = {
    "id": "chatcmpl-5f",
    "created": 1764460800,
    "model": "a-model:small",
    "choices": [{"index": 0, "delta": {"content": "A red"}, "logprobs": None, "finish_reason": None}],
    "object": "chat.completion.chunk",
}
_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
_ASKED: dict[str, Any] = {
    "model": "a-model",
    "messages": [{"role": "user", "content": "What is a chair?"}],
    "seed": 7,
}
_LOOKED: dict[str, Any] = {
    "model": "a-model",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_DOT}"}},
            ],
        }
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
}
_HEADERS = {
    "x-request-id": OpenAPIHeader(
        schema=Schema(type=OpenAPIType.STRING), description="The id of this request."
    ),
    "x-seed": OpenAPIHeader(
        schema=Schema(type=OpenAPIType.INTEGER), description="The random seed of the first answer."
    ),
}


def chat_operation(having: Mapping[str, Model]) -> type[Operation]:
    """Of the route.

    Args:
        having: The models that have it; their options are among its fields.
    """
    own = schema_of(ChatFields)
    own["required"] = [name for name in own["required"] if name != "model"]
    examples: dict[str, Any] = {
        "text": Shown(summary="A question", value=_ASKED),
        "image": Shown(summary="A question about an image, answered in events", value=_LOOKED),
    }
    answer: Any = Shown(summary="An answer", value=_ANSWER)
    return operation(
        {JSON: OpenAPIMediaType(schema=body_schema(in_json(own), having), examples=examples)},
        OpenAPIResponse(
            description="The answers: all of them whole, or as they are written.",
            headers={**_HEADERS},
            content={
                JSON: OpenAPIMediaType(schema=Written(value=schema_of(ChatAnswer)), examples={"one": answer}),
                SSE: events_schema(
                    schema_of(ChatChunk), _CHUNK, "Chunks; the last event's data is `[DONE]`.", last="[DONE]"
                ),
            },
        ),
    )
