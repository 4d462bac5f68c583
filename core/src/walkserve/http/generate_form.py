"""A native request as a form: every part of it is a field or an input, and inputs stay in their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from litestar import Request

from walkserve.http.bodies import json_object
from walkserve.http.forms import Entry, read_entries
from walkserve.http.terms import read_seconds
from walkserve_sdk import Part
from walkserve_sdk.errors import BadRequest, did_you_mean, shown
from walkserve_sdk.requests import KINDS

FIELDS = ("model", "outputs", "options", "split", "timeout_s")
"""What a form has besides inputs; ``outputs`` may come several times, once for each."""


async def read_form(request: Request[Any, Any, Any], *, limit_bytes: int, field_bytes: int) -> dict[str, Any]:
    """The fields of a form as ``read_ask`` takes them, with its inputs as ``Part``s.

    Args:
        limit_bytes: What the whole body may be; the rest is not read.
        field_bytes: What a field may be that is text: all but media.

    Raises:
        BadRequest: It is no form, too large, or has a part nobody knows.
        Cancelled: The client left before it was complete.
    """
    return _fields(
        await read_entries(
            request,
            _check,
            limit_bytes=limit_bytes,
            most_bytes=lambda entry: field_bytes if _kind(entry) in (*FIELDS, "text") else limit_bytes,
        )
    )


def _check(field: str) -> None:
    kind, bracket, label = field.partition("[")
    if bracket and kind in KINDS and label.endswith("]"):
        return
    known = (*FIELDS, *KINDS)
    if field not in known:
        cure = "; an input has a name as in image[goal]" if bracket else did_you_mean(field, known)
        raise BadRequest(f"unknown field {shown(field)}{cure}", param=field)


def _kind(entry: Entry) -> str:
    """``image`` of ``image[goal]``."""
    return entry.name.partition("[")[0]


def _fields(entries: list[Entry]) -> dict[str, Any]:
    given: dict[str, Any] = {"inputs": list(_inputs(entries))}
    for entry in entries:
        if _kind(entry) in KINDS:
            continue
        if entry.name == "outputs":
            given.setdefault("outputs", []).append(entry.text)
        elif entry.name in given:
            raise BadRequest(f"{entry.name}: the form has it twice", param=entry.name)
        elif entry.name == "options":
            try:
                given["options"] = json_object("options: it", bytes(entry.data))
            except BadRequest as wrong:
                wrong.param = "options"
                raise
        elif entry.name == "timeout_s":
            given["timeout_s"] = read_seconds(entry.text, "timeout_s")
        else:
            given[entry.name] = entry.text
    return given


def _inputs(entries: list[Entry]) -> Iterator[Part]:
    """Those that are inputs, each by the name it was given: ``image[goal]``."""
    for entry in entries:
        kind, _, label = entry.name.partition("[")
        if kind in KINDS:
            data = entry.text if kind == "text" else bytes(entry.data)
            yield Part(kind, data, label.removesuffix("]"))
