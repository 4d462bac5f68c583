"""What there is to say of a family's options: names, types, defaults, ranges, and what each is.

Nothing of it is written twice. Types and ranges are those by which ``read_options`` checks a request, and the
words are those of the ``Args:`` section of the class that declares the option.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from walkserve_sdk.requests import Options, settable

_ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)*): (?P<text>.*)")
_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class OptionNote:
    """One option of a family.

    Args:
        name: The shortest name by which a client may set it.
        also: Its dotted name where that is another, ``"sampling.temperature"``; else ``""``.
        default: In force where the client leaves it out; None where that means "none".
        about: What it is, in the words of the family's author; may be ``""``.
        schema: JSON Schema of its value, without default and description.
    """

    name: str
    also: str
    default: Any
    about: str
    schema: Mapping[str, Any]

    @property
    def type(self) -> str:
        """What its value is, in words: ``"whole number"``, ``"text"``, ``"one of"`` for an enumeration."""
        if "enum" in self.schema:
            return "one of"
        kind = self.schema.get("type", "")
        return _TYPES.get(kind, kind or "anything")

    @property
    def range(self) -> str:
        """Which values of its type may stand there: ``"above 0, to 1"``; ``""`` where all may."""
        schema = self.schema
        if "enum" in schema:
            return " or ".join(json.dumps(value) for value in schema["enum"])
        if "minLength" in schema or "maxLength" in schema:
            return _counted(_span(schema, "minLength", "maxLength"), "characters")
        if "minItems" in schema or "maxItems" in schema:
            return _counted(_span(schema, "minItems", "maxItems"), "items")
        return _span(schema, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def option_notes(options: type[Options]) -> tuple[OptionNote, ...]:
    """Every option once, a family's own before those that every family has."""
    known = settable(options)
    defaults = options()
    names: dict[tuple[str, ...], list[str]] = {}
    for name, (path, _) in known.items():
        names.setdefault(path, []).append(name)
    everybodys = {item.name for item in dataclasses.fields(Options)}
    paths = sorted(names, key=lambda path: path[0] in everybodys)
    return tuple(_note(options, defaults, path, names[path], known[names[path][0]][1]) for path in paths)


def _note(options: type, defaults: Any, path: tuple[str, ...], names: list[str], kind: Any) -> OptionNote:
    short = min(names, key=len)
    owner, default = options, defaults
    for field in path[:-1]:
        default = getattr(default, field)
        owner = type(default)
    dotted = ".".join(path)
    return OptionNote(
        name=short,
        also=dotted if dotted != short else "",
        default=msgspec.to_builtins(getattr(default, path[-1])),
        about=_about(owner, path[-1]),
        schema=_schema(kind),
    )


def _schema(kind: Any) -> dict[str, Any]:
    """Of the value a client sends: that it may be left out is said by the default."""
    schema = msgspec.json.schema(kind)
    others = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(others) == 1:
        schema = {**others[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
    return {key: value for key, value in schema.items() if key not in ("default", "description", "title")}


# --- what the author says -----------------------------------------------------------------------------


def _about(owner: type, name: str) -> str:
    """From the docstring of the class nearest to ``owner`` that says something of this field."""
    for each in owner.__mro__:
        told = described_args(vars(each).get("__doc__") or "")
        if name in told:
            return told[name]
    return ""


def described_args(docstring: str) -> dict[str, str]:
    """The ``Args:`` section of a docstring: name -> its text, on one line."""
    lines = inspect.cleandoc(docstring).splitlines()
    if "Args:" not in lines:
        return {}
    told: dict[str, str] = {}
    names: tuple[str, ...] = ()
    indent = 0
    for line in lines[lines.index("Args:") + 1 :]:
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if text and not depth:
            break  # the next section
        indent = indent or depth
        entry = _ENTRY.fullmatch(text) if depth == indent else None
        if entry:
            names = tuple(entry["names"].split(", "))
            told |= dict.fromkeys(names, entry["text"])
        elif text:
            told |= {name: f"{told[name]} {text}" for name in names}
    return told


# --- numbers in words ---------------------------------------------------------------------------------


def _span(schema: Mapping[str, Any], low: str, high: str, above: str = "", below: str = "") -> str:
    start = f"above {_number(schema[above])}" if above in schema else ""
    end = f"below {_number(schema[below])}" if below in schema else ""
    if low in schema and schema[low] == schema.get(high):
        return _number(schema[low])
    if low in schema and high in schema:
        return f"{_number(schema[low])} to {_number(schema[high])}"
    start = start or (f"from {_number(schema[low])}" if low in schema else "")
    end = end or (f"to {_number(schema[high])}" if high in schema else "")
    return ", ".join(each for each in (start, end) if each)


def _counted(span: str, what: str) -> str:
    return f"{'up ' if span.startswith('to ') else ''}{span} {what}"


def _number(value: float) -> str:
    """``2**63 - 1`` as 2⁶³ − 1: nobody counts nineteen digits."""
    if isinstance(value, int) and value > 9999 and (value + 1).bit_count() == 1:
        return f"2{str((value + 1).bit_length() - 1).translate(_RAISED)} − 1"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
