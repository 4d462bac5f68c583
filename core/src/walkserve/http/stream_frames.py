"""What a client may say over ``WS /v1/stream``: JSON text frames, and the media they announce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from msgspec import Meta, Struct

from walkserve.http.bodies import convert_field, json_object, read_fields
from walkserve.http.generate_ask import Ask, check_entry, read_ask, read_kind, read_name
from walkserve.http.terms import shortest
from walkserve_sdk import Model, Part
from walkserve_sdk.errors import BadRequest, did_you_mean, shown

Label = Annotated[str, Meta(min_length=1, max_length=100)]
"""A client's own name for one of its requests."""


class GenerateFrame(Struct, frozen=True):
    """Begins a request. Its other fields are those of ``POST /v1/generate``, and ``text_open``."""

    id: Label


class OpenText(Struct, frozen=True):
    """Whether the text of a request comes in ``text`` frames, up to an ``end``."""

    text_open: bool | None = None


class TextFrame(Struct, frozen=True):
    """More of the text of a request whose text is open."""

    id: Label
    text: str


class EndFrame(Struct, frozen=True):
    """The text of a request is complete."""

    id: Label


class CancelFrame(Struct, frozen=True):
    """A request is not wanted any more."""

    id: Label


FRAMES: dict[str, type[Struct]] = {
    "generate": GenerateFrame,
    "text": TextFrame,
    "end": EndFrame,
    "cancel": CancelFrame,
}
"""By ``type``."""


def read_frame(text: str) -> tuple[Struct, dict[str, Any]]:
    """A control frame, and the fields of a request that it begins.

    Raises:
        BadRequest: It is none, or has a field nobody knows.
    """
    frame, rest = read_tagged(FRAMES, text)
    if not isinstance(frame, GenerateFrame):
        refuse_unknown(frame, rest)
    return frame, rest


def read_tagged(frames: Mapping[str, type[Struct]], text: str) -> tuple[Struct, dict[str, Any]]:
    """A frame of one of these types, by its ``type``, and what it has besides its fields.

    Raises:
        BadRequest: It is none of them, or a field is missing or of the wrong type.
    """
    given = json_object("the frame", text)
    name = given.pop("type", None)
    if not isinstance(name, str) or name not in frames:
        cure = did_you_mean(name, frames) if isinstance(name, str) else f"; known: {', '.join(frames)}"
        raise BadRequest(f"type: there is no frame {shown(name)}{cure}", param="type")
    return read_fields(frames[name], given)


def refuse_unknown(frame: Struct, rest: Mapping[str, Any]) -> None:
    """Raise BadRequest where there is anything besides a frame's fields."""
    for field in rest:
        raise BadRequest(
            f"unknown field {shown(field)}{did_you_mean(field, frame.__struct_fields__)}", param=field
        )


@dataclass(frozen=True, slots=True)
class Announced:
    """Media that come in a binary frame of their own: their place among the inputs, and their size."""

    place: int
    size_bytes: int


def announced(fields: Mapping[str, Any]) -> list[Announced]:
    """The binary frames that follow a ``generate``, also where something else about it is wrong."""
    inputs = fields.get("inputs")
    entries = enumerate(inputs if isinstance(inputs, list) else [])
    sizes = [(place, entry.get("bytes")) for place, entry in entries if isinstance(entry, dict)]
    return [Announced(place, size) for place, size in sizes if type(size) is int and size >= 0]


def read_generate(
    models: Mapping[str, Model], fields: Mapping[str, Any], most_s: float | None = None
) -> tuple[Ask, bool]:
    """The request of a ``generate``, and whether its text is open. Media are empty parts as yet.

    Raises:
        BadRequest: With the field at fault.
    """
    opening, fields = read_fields(OpenText, dict(fields))
    inputs = fields.get("inputs")
    if isinstance(inputs, list):
        fields = {**fields, "inputs": [_input(f"inputs[{n}]", entry) for n, entry in enumerate(inputs)]}
    ask = read_ask(models, fields, also=("text_open",), most_s=most_s)
    ask = replace(ask, timeout_s=shortest(ask.timeout_s, most_s))
    if opening.text_open and fields.get("text") is None:  # what comes is the last of the inputs
        ask = replace(ask, parts=(*ask.parts, Part("text", "")))
    return ask, bool(opening.text_open)


def _input(place: str, entry: Any) -> Any:
    if read_kind(place, entry) == "text":
        return entry
    check_entry(place, entry, ("type", "bytes"))
    convert_field(f"{place}.bytes", entry["bytes"], Annotated[int, Meta(ge=0)])
    return Part(entry["type"], b"", read_name(place, entry))
