"""A native request as a form: every part of it is a field or an input, and inputs stay in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from litestar import Request
from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser

from walkserve.http.bodies import body_pieces, json_object
from walkserve.http.problems import BodyTooLarge
from walkserve.http.terms import read_seconds
from walkserve_sdk import Part
from walkserve_sdk.errors import BadRequest, did_you_mean, shown
from walkserve_sdk.requests import KINDS

FIELDS = ("model", "outputs", "options", "split", "timeout_s")
"""What a form has besides inputs; ``outputs`` may come several times, once for each."""
MOST_PARTS = 1024


@dataclass(slots=True)
class _Entry:
    """One part of a form, as its bytes come; ``label`` is what an input is called: ``image[label]``."""

    name: str
    data: bytearray
    label: str = ""


async def read_form(request: Request[Any, Any, Any], *, limit_bytes: int, field_bytes: int) -> dict[str, Any]:
    """The fields of a form as ``read_ask`` takes them, with its inputs as ``Part``s.

    Args:
        limit_bytes: What the whole body may be; the rest is not read.
        field_bytes: What a field may be that is text: all but media.

    Raises:
        BadRequest: It is no form, too large, or has a part nobody knows.
        Cancelled: The client left before it was complete.
    """
    boundary = request.content_type[1].get("boundary", "")
    entries: list[_Entry] = []
    try:
        parser = PushMultipartParser(boundary, max_segment_count=MOST_PARTS)
        async for piece in body_pieces(request, limit_bytes):
            for event in parser.parse(piece) if piece else ():  # it takes an empty one for the end
                _hear(event, entries, field_bytes)
        parser.close()
    except ParserLimitReached as error:
        raise BodyTooLarge(f"the form is beyond its limits, {MOST_PARTS:,} parts for one: {error}") from None
    except MultipartError as error:
        raise BadRequest(f"the body is no valid form: {error}", code="invalid_form") from None
    return _fields(entries)


def _hear(
    event: MultipartSegment | bytearray | bytes | None, entries: list[_Entry], field_bytes: int
) -> None:
    """A part begins, goes on, or (None) has ended."""
    if isinstance(event, MultipartSegment):
        entries.append(_opened(event.name or ""))
    elif event:
        entry = entries[-1]
        entry.data += event
        if entry.name in (*FIELDS, "text") and len(entry.data) > field_bytes:
            raise BodyTooLarge(
                f"{entry.name}: it is longer than {field_bytes:,} bytes, the most a field may be"
            )


def _opened(field: str) -> _Entry:
    name, bracket, label = field.partition("[")
    if bracket and name in KINDS and label.endswith("]"):
        return _Entry(name, bytearray(), label.removesuffix("]"))
    known = (*FIELDS, *KINDS)
    if field not in known:
        cure = "; an input has a name as in image[goal]" if bracket else did_you_mean(field, known)
        raise BadRequest(f"unknown field {shown(field)}{cure}", param=field)
    return _Entry(field, bytearray())


def _fields(entries: list[_Entry]) -> dict[str, Any]:
    given: dict[str, Any] = {"inputs": list(_inputs(entries))}
    for entry in entries:
        if entry.name in KINDS:
            continue
        if entry.name == "outputs":
            given.setdefault("outputs", []).append(_text(entry))
        elif entry.name in given:
            raise BadRequest(f"{entry.name}: the form has it twice", param=entry.name)
        elif entry.name == "options":
            try:
                given["options"] = json_object("options: it", bytes(entry.data))
            except BadRequest as wrong:
                wrong.param = "options"
                raise
        elif entry.name == "timeout_s":
            given["timeout_s"] = read_seconds(_text(entry), "timeout_s")
        else:
            given[entry.name] = _text(entry)
    return given


def _inputs(entries: list[_Entry]) -> Iterator[Part]:
    for entry in entries:
        if entry.name in KINDS:
            data = _text(entry) if entry.name == "text" else bytes(entry.data)
            yield Part(entry.name, data, entry.label)


def _text(entry: _Entry) -> str:
    try:
        return entry.data.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{entry.name}: it is not UTF-8", param=entry.name) from None
