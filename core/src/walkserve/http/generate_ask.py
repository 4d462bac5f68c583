"""What a native request asks: the same fields whether they come as JSON, as a form or over a WebSocket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from walkserve.http.bodies import convert_field, read_fields
from walkserve.http.models import find_model
from walkserve.timeouts import check_timeout
from walkserve_sdk import Model, Part, Request
from walkserve_sdk.arrays import from_json, write_npy
from walkserve_sdk.errors import BadRequest, did_you_mean, shown
from walkserve_sdk.media.inline import inline_bytes
from walkserve_sdk.requests import KINDS, option_paths, read_options


class AskFields(Struct, frozen=True):
    """The fields. Options of the family have a place of their own, so that no name can mean two things."""

    model: str
    text: str | None = None
    inputs: list[Any] | None = None
    outputs: list[str] | None = None
    options: dict[str, Any] | None = None
    split: Literal["sentence"] | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, as far as it can be checked before all of its parts have come.

    Args:
        name: Of the model, as it is served.
        outputs: None for all of the model's.
        is_split: Whether its text is spoken sentence by sentence.
        timeout_s: How long it may take; None where nothing is said of it.
    """

    name: str
    model: Model
    parts: tuple[Part, ...]
    outputs: tuple[str, ...] | None
    options: dict[str, Any]
    is_split: bool
    timeout_s: float | None = None

    def request(self, parts: tuple[Part, ...], **options: Any) -> Request:
        """The family's request of these parts, with these options besides its own.

        Raises:
            BadRequest: ``param`` is the field as it is called on the wire.
        """
        try:
            return self.model.request(outputs=self.outputs, parts=parts, options=self.options | options)
        except BadRequest as wrong:
            wrong.param = self.param(wrong.param)
            raise

    def param(self, name: str | None) -> str | None:
        """How a client calls the field that a family calls ``name``."""
        is_option = name in self.options or name in option_paths(type(self.model).Options)
        return f"options.{name}" if is_option and name not in self.model.inputs else name


def read_ask(
    models: Mapping[str, Model],
    given: Mapping[str, Any],
    *,
    also: Sequence[str] = (),
    most_s: float | None = None,
) -> Ask:
    """Check what a client sent, all but what the family says to its parts.

    Args:
        given: Fields as they came; ``inputs`` may hold ``Part``s that have been read already.
        also: Fields that have been read as well, for whoever misspelt one.
        most_s: How long a request may ask to take.

    Raises:
        BadRequest: With the field at fault; nothing that was sent is ignored.
    """
    fields, rest = read_fields(AskFields, dict(given))
    name, model = find_model(models, fields.model)
    for field in rest:
        raise _unknown(field, model, also)
    if fields.text is not None and fields.inputs is not None:
        raise BadRequest(
            'text: it is short for one text among the inputs; put {"type": "text", "text": ...} there',
            param="text",
        )
    if fields.text is not None:
        parts: tuple[Part, ...] = (Part("text", fields.text),)
    else:
        parts = tuple(_parts(fields.inputs or []))
    options = fields.options or {}
    ask = Ask(
        name,
        model,
        parts,
        None if fields.outputs is None else tuple(fields.outputs),
        options,
        fields.split is not None,
        None if fields.timeout_s is None else check_timeout(fields.timeout_s, "timeout_s", most_s),
    )
    try:
        read_options(type(model).Options, options)
    except BadRequest as wrong:
        wrong.param = ask.param(wrong.param)
        raise
    return ask


def _unknown(field: str, model: Model, also: Sequence[str]) -> BadRequest:
    if field in option_paths(type(model).Options):
        cure = f": it is an option of the model, put it into 'options': {{{field!r}: ...}}"
    elif field in KINDS:
        cure = f": put it into 'inputs': [{{'type': {field!r}, 'data': ...}}]"
    else:
        cure = did_you_mean(field, (*AskFields.__struct_fields__, *also))
    return BadRequest(f"unknown field {shown(field)}{cure}", param=field)


def _parts(inputs: list[Any]) -> Iterator[Part]:
    for number, entry in enumerate(inputs):
        yield entry if isinstance(entry, Part) else _part(f"inputs[{number}]", entry)


def _part(place: str, entry: Any) -> Part:
    kind = read_kind(place, entry)
    content = "text" if kind == "text" else "data"
    check_entry(place, entry, ("type", content))
    field = f"{place}.{content}"
    name = read_name(place, entry)
    if kind == "tensor" and not isinstance(entry[content], str):
        return Part(kind, _tensor(field, entry[content], name), name)
    text = convert_field(field, entry[content], str)
    return Part(kind, text if kind == "text" else inline_bytes(text, place=field), name)


def _tensor(field: str, value: Any, name: str) -> bytes:
    """The numbers that stand in the JSON itself, as the file that a family reads."""
    try:
        return write_npy(from_json(value, name))
    except BadRequest as wrong:
        raise BadRequest(f"{field}: {wrong}", param=field) from None


def read_name(place: str, entry: dict[str, Any]) -> str:
    """What an input is called. Raises BadRequest where that is no text."""
    name: str = convert_field(f"{place}.name", entry.get("name", ""), str)
    return name


def read_kind(place: str, entry: Any) -> str:
    """The kind of an input. Raises BadRequest where it has none, or one that nobody knows."""
    if not isinstance(entry, dict):
        raise BadRequest(f"{place}: an input is an object with a 'type', got {shown(entry)}", param=place)
    if "type" not in entry:
        raise BadRequest(
            f"{place}.type is missing; there is {', '.join(KINDS)}",
            param=f"{place}.type",
            code="missing_required_parameter",
        )
    kind = entry["type"]
    if kind not in KINDS:
        cure = did_you_mean(kind, KINDS) if isinstance(kind, str) else f"; known: {', '.join(KINDS)}"
        raise BadRequest(f"{place}.type: there is no kind {shown(kind)}{cure}", param=f"{place}.type")
    return str(kind)


def check_entry(place: str, entry: dict[str, Any], fields: tuple[str, ...]) -> None:
    """Raise BadRequest unless an input has exactly these fields, and perhaps a name."""
    for name in entry:
        if name not in (*fields, "name"):
            raise BadRequest(
                f"{place}: unknown field {shown(name)}{did_you_mean(name, (*fields, 'name'))}",
                param=f"{place}.{name}",
            )
    for name in fields:
        if name not in entry:
            raise BadRequest(
                f"{place}.{name} is missing", param=f"{place}.{name}", code="missing_required_parameter"
            )
