"""What a client asks of a route that a plugin adds: the same fields in JSON and in a form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar import Request
from msgspec import Struct
from msgspec import inspect as types

from walkserve.http.bodies import read_fields, read_object
from walkserve.http.forms import FORM, Entry, is_form, read_entries
from walkserve.http.models import named_model, require_surface
from walkserve.http.settings import HttpSettings
from walkserve_sdk import Model
from walkserve_sdk.errors import BadRequest, did_you_mean, shown
from walkserve_sdk.media.inline import inline_bytes
from walkserve_sdk.requests import option_paths, read_options, unknown_option


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, checked: all but what the family says to it.

    Args:
        name: Of the model, as it is served.
        options: Of the family, as they were sent.
    """

    name: str
    model: Model
    fields: Struct
    options: Mapping[str, Any]


class BodyReader:
    """Reads the bodies of one route.

    Args:
        kind: Of the route's own fields.
        having: The models that have the route's surface.
    """

    def __init__(self, kind: type[Struct], having: Mapping[str, Model], settings: HttpSettings) -> None:
        self._settings = settings
        self._shapes = {field.encode_name: _Shape(field.type) for field in msgspec.structs.fields(kind)}
        options = {name for model in having.values() for name in option_paths(type(model).Options)}
        self._known = ("model", *self._shapes, *sorted(options - self._shapes.keys()))

    async def read(self, request: Request[Any, Any, Any]) -> dict[str, Any]:
        """The fields in a body, not yet checked.

        Raises:
            BadRequest: It is neither JSON nor a form, or too large.
            Cancelled: The client left before it was complete.
        """
        if not is_form(request):
            told = await read_object(request, self._settings.body_bytes, also=FORM)
            return {name: self._inline(name, value) for name, value in told.items()}
        limit = self._settings.media_bytes
        entries = await read_entries(request, self._check, limit_bytes=limit, most_bytes=self._most_bytes)
        given: dict[str, Any] = {}
        for entry in entries:
            shape = self._shape(entry)
            if shape.is_many:
                given.setdefault(entry.name, []).append(shape.read(entry))
            elif entry.name in given:
                raise BadRequest(f"{entry.name}: the form has it twice", param=entry.name)
            else:
                given[entry.name] = shape.read(entry)
        return given

    def _inline(self, name: str, value: Any) -> Any:
        """Files as bytes where they came as data URLs; anything else, base64 too, as it is."""
        if name not in self._shapes or not self._shapes[name].is_media:
            return value
        if isinstance(value, list):
            return [self._file(name, each) for each in value]
        return self._file(name, value)

    def _file(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and value[:5].lower() == "data:":
            return inline_bytes(value, place=name, limit_bytes=self._settings.media_bytes)
        return value

    def _check(self, field: str) -> None:
        if field not in self._known:
            raise BadRequest(f"unknown field {shown(field)}{did_you_mean(field, self._known)}", param=field)

    def _shape(self, entry: Entry) -> _Shape:
        return self._shapes.get(entry.name, _TEXT if entry.name == "model" else _ANY)

    def _most_bytes(self, entry: Entry) -> int:
        is_media = self._shape(entry).is_media
        return self._settings.media_bytes if is_media else self._settings.body_bytes


def read_asked(models: Mapping[str, Model], surface: str, kind: type[Struct], given: dict[str, Any]) -> Asked:
    """Check what a client sent.

    Args:
        surface: The route's, which the model has to have.
        kind: Of the route's own fields; what is none of them is an option of the family.

    Raises:
        BadRequest: With the field at fault; nothing that was sent is ignored.
    """
    name, model = named_model(models, given)
    require_surface(name, model, surface)
    try:
        fields, rest = read_fields(kind, {key: value for key, value in given.items() if key != "model"})
    except ValueError as wrong:  # of its own __post_init__
        raise BadRequest(str(wrong)) from None
    family = type(model).Options
    for field in rest:
        if field not in option_paths(family):
            raise unknown_option(family, field, what="field", also=("model", *_names(kind)))
    read_options(family, rest)
    return Asked(name, model, fields, rest)


def _names(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


class _Shape:
    """How a part of a form is read, by the type of its field.

    A part that came with a file's name is bytes where the type has them. Any other is the text it is where
    the type has that, or else JSON. A field that is a list of bytes or text is as many parts.
    """

    def __init__(self, kind: Any) -> None:
        each = _each(types.type_info(kind))
        inner = [one for info in each for one in _each(getattr(info, "item_type", None))]
        self.is_many = any(isinstance(info, types.BytesType | types.StrType) for info in inner)
        scalars = inner if self.is_many else each
        self.is_media = any(isinstance(info, types.BytesType) for info in scalars)
        self._is_text = any(isinstance(info, types.StrType) for info in scalars)
        self._is_only_media = self.is_media and len(scalars) == 1

    def read(self, entry: Entry) -> Any:
        """Raises BadRequest where text is none."""
        if self.is_media and (entry.is_file or self._is_only_media):
            return bytes(entry.data)
        if self._is_text:
            return entry.text
        try:
            return msgspec.json.decode(entry.data)
        except msgspec.DecodeError:
            return entry.text


def _each(info: types.Type | None) -> list[types.Type]:
    """The alternatives of a type, null apart."""
    match info:
        case None | types.NoneType():
            return []
        case types.UnionType(types=several):
            return [one for each in several for one in _each(each)]
        case types.Metadata(type=inner):
            return _each(inner)
        case _:
            return [info]


_TEXT, _ANY = _Shape(str), _Shape(Any)
