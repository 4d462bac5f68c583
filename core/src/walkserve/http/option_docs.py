"""What OpenAPI says of a family's options, where they lie among a route's own fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from litestar.openapi.spec import Schema

from walkserve.descriptions import notes_of
from walkserve_sdk import Model
from walkserve_sdk.option_notes import OptionNote


@dataclass
class Written(Schema):
    """A schema that stands in JSON already: one that msgspec has made of the type by which it is checked."""

    value: dict[str, Any] = field(default_factory=dict)

    def to_schema(self) -> dict[str, Any]:
        return self.value


def family_options(models: Mapping[str, Model]) -> dict[str, Schema]:
    """Options by each of their names; where models differ in one, any of theirs."""
    found: dict[str, dict[str, OptionNote]] = {}
    for name, model in models.items():
        for note in notes_of(model):
            for spelled in (note.name, note.also):
                if spelled:
                    found.setdefault(spelled, {})[name] = note
    return {spelled: Written(value=_option(notes)) for spelled, notes in found.items()}


def _option(notes: Mapping[str, OptionNote]) -> dict[str, Any]:
    first, *others = notes.values()
    if all(note == first for note in others):
        default = {} if first.default is None else {"default": first.default}
        return {"description": first.about, **first.schema, **default}
    told = [{"description": f"Of {name}: {note.about}", **note.schema} for name, note in notes.items()]
    return {"anyOf": told}


def same_options(models: Iterable[Model]) -> list[Schema]:
    """What may not stand together: two names of one option."""
    pairs = {(note.name, note.also) for model in models for note in notes_of(model) if note.also}
    return [Schema(required=list(pair)) for pair in sorted(pairs)]
