"""Requests: parts in, options checked before admission, outputs asked for."""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from walkserve_sdk.errors import BadRequest, did_you_mean, shown

SEED_LIMIT = 2**63
WHOLE_NUMBERS = range(-(2**63), 2**64)
"""Those that can be sent from process to process."""

KINDS = ("text", "image", "audio", "video", "tensor")
"""Of parts."""

_MISFIT = re.compile(r"(?P<expected>.*?)(?:, got `[^`]*`)?(?: - at `\$(?P<path>.*)`)?", re.DOTALL)


@dataclass(frozen=True)
class SamplingParams:
    """How a token is drawn from logits. Applied in this order; the defaults leave the model as it is.

    Args:
        repetition_penalty: Makes tokens of prompt and output less likely again (Keskar et al. 2019); 1 is
            off.
        temperature: How freely a token is drawn; 0 takes the most likely one.
        top_k: Keep the k most likely tokens; 0 is off.
        top_p: Keep the smallest set of tokens with this mass (Holtzman et al. 2019); 1 is off.
        min_p: Drop what is less likely than this share of the most likely; 0 is off.
    """

    temperature: Annotated[float, Meta(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] = 1.0


@dataclass(frozen=True)
class Options:
    """A family's options: subclass it as a frozen dataclass whose every field has a default.

    Fields that are dataclasses themselves (``SamplingParams``) lie flat in a request:
    ``temperature=0.6``; where two of them share a name, ``talker.temperature=0.6``. What a subclass says of
    its fields in an ``Args:`` section is what ``walkserve describe`` and ``/v1/models`` tell users, and the
    ranges of ``Annotated[int, Meta(ge=1)]`` are shown as they are checked.

    Args:
        seed: Decides every random draw of the request; drawn for you when left out, and told in the answer.
    """

    seed: Annotated[int, Meta(ge=0, le=SEED_LIMIT - 1)] | None = None


@dataclass(frozen=True)
class Part:
    """One piece of what a client sent.

    Args:
        kind: ``"text"``, ``"image"``, ``"audio"``, ``"video"`` or ``"tensor"``.
        data: Text as ``str``, media as the bytes that came; a tensor is a ``.safetensors`` or ``.npy`` file.
        name: What it is for, where its kind does not say so: of two images one may be the ``"goal"``.
    """

    kind: str
    data: str | bytes
    name: str = ""


@dataclass(frozen=True)
class Request:
    """What one client asked of one model, checked.

    Args:
        parts: In the order they were sent.
        outputs: Names of the Outputs asked for.
        options: Of the family's own Options class, complete.
        seed: The random seed in force, 0 <= seed < 2**63.
        given: Names of the options the client set itself; the others are defaults.
    """

    parts: tuple[Part, ...]
    outputs: tuple[str, ...]
    options: Any
    seed: int
    given: frozenset[str] = field(default_factory=frozenset)

    def one(self, kind: str, name: str | None = None) -> str | bytes:
        """The only part of this kind, and of this name. Raises BadRequest if there is none or more than one.

        Args:
            name: ``""`` for one without a name; None for one of any name.
        """
        found = self.all(kind, name)
        if len(found) != 1:
            what = f"{kind} named {name!r}" if name else kind
            raise BadRequest(f"exactly one {what} is needed, {len(found)} were given", param=kind)
        return found[0]

    def all(self, kind: str, name: str | None = None) -> tuple[str | bytes, ...]:
        """Every part of this kind, in order; ``name`` as ``one`` has it."""
        return tuple(
            part.data for part in self.parts if part.kind == kind and (name is None or part.name == name)
        )

    def wants(self, output: Any) -> bool:
        """Whether the client asked for this Output."""
        return getattr(output, "name", output) in self.outputs


OptionsT = TypeVar("OptionsT", bound=Options)


def option_paths(options: type[Options]) -> dict[str, tuple[str, ...]]:
    """Every name a client may set, with the path of the field it sets.

    A nested field is known by its dotted name, and by its own name where no other field has it.
    """
    return {name: path for name, (path, _) in settable(options).items()}


_SETTABLE: dict[type, dict[str, tuple[tuple[str, ...], Any]]] = {}  # reading annotations is slow


def settable(options: type[Options]) -> dict[str, tuple[tuple[str, ...], Any]]:
    """By every name a client may use: the path of the field, and the type its value must have."""
    if options in _SETTABLE:
        return _SETTABLE[options]
    hints = get_type_hints(options, include_extras=True)
    found: dict[str, tuple[tuple[str, ...], Any]] = {}
    nested: dict[str, list[str]] = {}
    for item in dataclasses.fields(options):
        kind = hints[item.name]
        if not dataclasses.is_dataclass(kind):
            found[item.name] = ((item.name,), kind)
            continue
        inner_hints = get_type_hints(kind, include_extras=True)
        for inner in dataclasses.fields(kind):
            dotted = f"{item.name}.{inner.name}"
            found[dotted] = ((item.name, inner.name), inner_hints[inner.name])
            nested.setdefault(inner.name, []).append(dotted)
    for name, dotted_names in nested.items():
        if len(dotted_names) == 1:
            found.setdefault(name, found[dotted_names[0]])
    _SETTABLE[options] = found
    return found


def read_options(options: type[OptionsT], given: Mapping[str, Any]) -> OptionsT:
    """Check what a client set and complete it with the family's defaults.

    Raises:
        BadRequest: A name nobody knows, or a value of the wrong type or out of range; ``param`` names it.
    """
    known = settable(options)
    default = options()
    changes: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    set_by: dict[tuple[str, ...], str] = {}
    for name, value in given.items():
        if name not in known:
            raise unknown_option(options, name)
        path, kind = known[name]
        if path in set_by:
            raise BadRequest(f"{set_by[path]} and {name} set the same option; send one of them", param=name)
        set_by[path] = name
        (changes if len(path) == 1 else nested.setdefault(path[0], {}))[path[-1]] = _read(kind, name, value)
    changes |= {
        field: dataclasses.replace(getattr(default, field), **inner) for field, inner in nested.items()
    }
    try:
        return dataclasses.replace(default, **changes)
    except ValueError as wrong:  # of a family's own __post_init__
        raise BadRequest(str(wrong)) from None


def unknown_option(
    options: type[Options], name: str, *, what: str = "option", also: Iterable[str] = ()
) -> BadRequest:
    """What a client is told of a name that nobody knows.

    Args:
        what: What the name was thought to be, in the client's words.
        also: Names that are known besides the options.
    """
    paths = option_paths(options)
    # a nested field once: by its own name, or by the dotted one where another option has that
    listed = {each: path for each, path in paths.items() if "." not in each or paths.get(path[-1]) != path}
    flat = [each for each, path in listed.items() if len(path) == 2 and path[0] == name]
    if flat:
        return BadRequest(f"{name}: send its fields flat: {', '.join(flat)}", param=name)
    near = paths if "." in name else listed
    return BadRequest(f"unknown {what} {shown(name)}{did_you_mean(name, {*near, *also})}", param=name)


def _read(kind: Any, name: str, value: Any) -> Any:
    try:
        read = msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as wrong:
        raise BadRequest(_misfit(kind, name, value, str(wrong)), param=name) from None
    if isinstance(read, int) and read not in WHOLE_NUMBERS:
        raise BadRequest(f"{name}: a whole number has at most 64 bits, got {shown(value)}", param=name)
    return read


def _misfit(kind: Any, name: str, value: Any, told: str) -> str:
    """msgspec's message, with the value in place of its type, and with the words that may stand there."""
    parts = _MISFIT.fullmatch(told)
    assert parts is not None, told
    expected, legal = parts["expected"], _legal(kind)
    if legal and value not in legal:
        expected = f"expected {' or '.join(map(repr, legal))}"
    return f"{name}{parts['path'] or ''}: {expected[:1].lower()}{expected[1:]}, got {shown(value)}"


def _legal(kind: Any) -> tuple[Any, ...]:
    """The values of an enumeration, also of one that may be left out; of any other type none."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    alternatives = [each for each in get_args(kind) if each is not type(None)]
    return (
        _legal(alternatives[0]) if get_origin(kind) in (Union, UnionType, Annotated) and alternatives else ()
    )


def fresh_seed() -> int:
    """A seed for a request that named none."""
    return secrets.randbelow(SEED_LIMIT)
