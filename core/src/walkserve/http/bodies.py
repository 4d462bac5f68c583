"""JSON bodies: read up to a limit, and taken apart field by field so that a mistake is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from litestar import Request
from msgspec import NODEFAULT, Struct

from walkserve.http.problems import BodyTooLarge, UnsupportedMediaType
from walkserve_sdk.errors import BadRequest, Cancelled

StructT = TypeVar("StructT", bound=Struct)


async def read_object(
    request: Request[Any, Any, Any], limit_bytes: int, *, also: str = "", media_bytes: int = 0
) -> dict[str, Any]:
    """The JSON object in a request's body.

    Args:
        also: Another content type that the route reads, for who sends a third.
        media_bytes: What files that are data URLs may have together, besides the limit.

    Raises:
        BadRequest: It is no JSON object, too large, or of another content type.
        Cancelled: The client left before it was complete.
    """
    _check_type(request, also)
    most_bytes = limit_bytes + media_bytes // 3 * 4  # base64 takes four bytes for three
    body = b"".join([piece async for piece in body_pieces(request, most_bytes)])
    if len(body) > limit_bytes and len(body) - _data_urls(body) > limit_bytes:
        raise BodyTooLarge(
            f"the body has more than {limit_bytes:,} bytes besides files in data URLs, which is the most this"
            " route reads"
        )
    return json_object("the body", body)


MOST_FILES = 1024
"""Data URLs in a body."""


def _data_urls(body: bytes) -> int:
    """Bytes of the strings in JSON that are data URLs: however many they are, they make few objects."""
    size_bytes = at = 0
    for _ in range(MOST_FILES):
        begin = body.find(b'"data:', at)
        at = body.find(b'"', begin + 1)
        if begin < 0 or at < 0:
            break
        size_bytes += at - begin
    return size_bytes


def _number(text: str) -> int | float:
    """JSON has one kind of number: 7.0 is a whole one, as JSON Schema says and some languages write it."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


_EXACT = 2.0**53
"""Beyond it a float no longer tells whole numbers apart."""
_JSON = msgspec.json.Decoder(float_hook=_number)


def json_object(what: str, text: bytes | str) -> dict[str, Any]:
    """Decode a JSON object. Raises BadRequest, in which ``what`` says what was to be one."""
    try:
        value = _JSON.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"{what} is no valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is not a JSON object", code="invalid_json")
    return value


def _check_type(request: Request[Any, Any, Any], also: str) -> None:
    kind, parameters = request.content_type
    if kind.lower() != "application/json":
        got = f"not {kind[:100]}" if kind else "and say so in content-type"
        reads = f"application/json, or {also}" if also else "application/json"
        raise UnsupportedMediaType(f"this route reads {reads}: send that, {got}")
    if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType("this route reads JSON in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("this route reads bodies that are not compressed")


async def body_pieces(request: Request[Any, Any, Any], limit_bytes: int) -> AsyncIterator[bytes]:
    """A request's body as it comes.

    Raises:
        BodyTooLarge: It is announced to be larger than the limit, or is; the rest is not read.
        Cancelled: The client left before it was complete.
    """
    too_large = f"the body is larger than {limit_bytes:,} bytes, which is the most this route reads"
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise BodyTooLarge(too_large)
    size_bytes = 0
    while True:
        event = await request.receive()
        if event["type"] != "http.request":
            raise Cancelled("the client left before its request was complete")
        piece: bytes = event.get("body", b"")
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            raise BodyTooLarge(too_large)
        yield piece
        if not event.get("more_body", False):
            return


def read_fields(kind: type[StructT], given: dict[str, Any]) -> tuple[StructT, dict[str, Any]]:
    """The fields of ``kind`` among those given, checked, and the rest.

    Raises:
        BadRequest: A field is missing or of the wrong type; ``param`` names it.
    """
    rest = dict(given)
    values: dict[str, Any] = {}
    for item in msgspec.structs.fields(kind):
        name = item.encode_name
        if name in rest:
            values[item.name] = convert_field(name, rest.pop(name), item.type)
        elif item.default is NODEFAULT and item.default_factory is NODEFAULT:
            raise BadRequest(f"{name!r} is missing", param=name, code="missing_required_parameter")
    return kind(**values), rest


def convert_field(name: str, value: Any, kind: Any) -> Any:
    """A value as ``kind``. Raises BadRequest with ``name`` where it is of another type."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as wrong:
        text = str(wrong)
        raise BadRequest(f"{name}: {text[:1].lower()}{text[1:]}", param=name) from None
