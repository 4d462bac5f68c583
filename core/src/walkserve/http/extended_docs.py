"""What OpenAPI says of a route that a plugin adds: all of it from the route's declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.openapi.spec import (
    Example,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Schema,
)

from walkserve.http.event_answers import NDJSON, SSE
from walkserve.http.examples import Shown
from walkserve.http.forms import FORM
from walkserve.http.operation_docs import operation
from walkserve.http.option_docs import Written, family_options, same_options
from walkserve_sdk import Model
from walkserve_sdk.serving import Route

JSON = "application/json"

_MODEL = Schema(
    type=OpenAPIType.STRING,
    description="A model's id, or its family's name where one model of that family is served.",
)
_BASE64 = (
    r"^(data:[a-z]{1,20}/[a-z0-9.+-]{1,40};base64,)?"
    r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
)
_FAILED = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {"type": {"const": "error"}, "error": {"$ref": "#/components/schemas/Problem"}},
}


def extended_operation(route: Route[Any], having: Mapping[str, Model]) -> type[Operation]:
    """The route reads its body and writes its answer itself, so that OpenAPI has to be told of both.

    Args:
        having: The models served here that have the route's surface.
    """
    example: Example = Shown(summary=route.summary, value={"model": "a-model", **route.example})
    own = schema_of(route.fields)
    body = {
        JSON: OpenAPIMediaType(schema=body_schema(in_json(own), having), examples={"one": example}),
        FORM: OpenAPIMediaType(schema=body_schema(in_form(own), having, is_form=True)),
    }
    answer = OpenAPIResponse(description=route.summary, headers={**_HEADERS}, content=_answers(route))
    return operation(body, answer)


def schema_of(kind: Any) -> dict[str, Any]:
    """JSON Schema of what msgspec reads and writes, with nothing outside of itself.

    OpenAPI would have named parts in one place, where two plugins may both have a ``Body``.
    """
    (schema,), parts = msgspec.json.schema_components((kind,), ref_template="{name}")
    whole = _inlined(schema, parts, ())
    assert isinstance(whole, dict)
    return whole


def _inlined(schema: Any, parts: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    match schema:
        case {"$ref": str(name)} if name in within:
            return {}  # it holds itself, and no schema without names says that
        case {"$ref": str(name)}:
            return _inlined(parts[name], parts, (*within, name))
        case {"discriminator": _, **rest}:
            return _inlined(rest, parts, within)  # its mapping is by names
        case dict():
            told = {key: value for key, value in schema.items() if key != "title" or isinstance(value, dict)}
            return {key: _inlined(value, parts, within) for key, value in told.items()}
        case list():
            return [_inlined(value, parts, within) for value in schema]
        case _:
            return schema


def body_schema(own: Mapping[str, Any], having: Mapping[str, Model], *, is_form: bool = False) -> Schema:
    """The route's fields, and the options of what has the surface here: others are refused.

    Those of a form have one name each: beside files, tools that read this cannot say what may not stand
    together.
    """
    fields = own.get("properties", {})
    options = {name: each for name, each in family_options(having).items() if name not in fields}
    twice = [each for each in same_options(having.values()) if options.keys() >= set(each.required or ())]
    if is_form:
        second = {(each.required or [])[-1] for each in twice}
        options, twice = {name: each for name, each in options.items() if name not in second}, []
    return Schema(
        type=OpenAPIType.OBJECT,
        required=["model", *own.get("required", ())],
        properties={
            "model": _MODEL,
            **{name: Written(value=each) for name, each in fields.items()},
            **options,
        },
        additional_properties=False,
        schema_not=Schema(any_of=twice) if twice else None,
    )


def in_json(schema: Any) -> Any:
    """As it comes in JSON: bytes are base64 or a data URL, to which no validator holds them by itself."""
    match schema:
        case {"contentEncoding": "base64"}:
            return {**schema, "pattern": _BASE64}
        case dict():
            return {key: in_json(value) for key, value in schema.items()}
        case list():
            return [in_json(value) for value in schema]
        case _:
            return schema


def in_form(schema: Any) -> Any:
    """As it comes in a form: bytes are files there."""
    match schema:
        case {"contentEncoding": "base64", **rest}:
            return in_form(rest) | {"format": "binary"}
        case dict():
            return {key: in_form(value) for key, value in schema.items()}
        case list():
            return [in_form(value) for value in schema]
        case _:
            return schema


def _answers(route: Route[Any]) -> dict[str, OpenAPIMediaType]:
    example: Example = Shown(summary=route.summary, value=route.example_answer)
    answer = Written(value=schema_of(route.answer))
    content = {JSON: OpenAPIMediaType(schema=answer, examples={"one": example})}
    for media_type, what in route.media.items():
        bytes_ = {"type": "string", "contentMediaType": media_type, "description": what}
        content[media_type] = OpenAPIMediaType(schema=Written(value=bytes_))
    if route.events is not None:
        event = {"oneOf": [schema_of(route.events), _FAILED]}
        data = {"type": "string", "contentMediaType": JSON, "contentSchema": event}
        told: dict[str, tuple[dict[str, Any], str, Any]] = {
            NDJSON: (event, "One event a line; `error` is the last where it failed.", route.example_event),
            SSE: (
                {"type": "object", "required": ["data"], "properties": {"data": data}},
                "The same events.",
                {"data": msgspec.json.encode(route.example_event).decode()},
            ),
        }
        for media_type, (schema, about, value) in told.items():
            shown: Example = Shown(summary=about, value=value)
            written = Written(value=schema | {"description": about})
            content[media_type] = OpenAPIMediaType(schema=written, examples={"one": shown})
    return content


def _header(description: str, kind: OpenAPIType) -> OpenAPIHeader:
    return OpenAPIHeader(schema=Schema(type=kind), description=description)


def events_schema(event: dict[str, Any], example: Any, about: str, *, last: str = "") -> OpenAPIMediaType:
    """Server-sent events with OpenAI's data; one named `error` has the body of an error response.

    Args:
        last: The data of the last event, where that is no JSON.
    """
    failed = {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"$ref": "#/components/schemas/Problem"}},
    }
    data: dict[str, Any] = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": {"oneOf": [event, failed]},
    }
    if last:
        data = {"oneOf": [{"const": last}, {**data, "not": {"const": last}}]}
    whole = {"type": "object", "required": ["data"], "properties": {"data": data}, "description": about}
    shown: Example = Shown(summary=about, value={"data": msgspec.json.encode(example).decode()})
    return OpenAPIMediaType(schema=Written(value=whole), examples={"one": shown})


_HEADERS = {
    "x-request-id": _header("The id of this request.", OpenAPIType.STRING),
    "x-seed": _header("The random seed in force.", OpenAPIType.INTEGER),
    "x-finish-reason": _header("Why it ended. Not of events.", OpenAPIType.STRING),
    "x-usage-input-tokens": _header("Tokens read. Not of events.", OpenAPIType.INTEGER),
    "x-usage-output-tokens": _header("Tokens written. Not of events.", OpenAPIType.INTEGER),
}
