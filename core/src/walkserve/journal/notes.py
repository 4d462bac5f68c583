"""Values as a journal has them: numbers and text as they are, tensors and bytes described; and back again.

A track may look at numbers and text, so they are kept whole, however many there are. It only passes on
tensors and bytes, so a description is enough: what they are, how large, and a hash where the bytes are at
hand. A tensor that is lent is known by its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msgspec import Struct

from walkserve.messages import Array, Blob, Named, TensorRef, Value
from walkserve_sdk.errors import WalkserveError

REMEMBERED_BYTES = 4096
"""Bytes of at least this size are hashed once, when they are seen several times in a row."""
REMEMBERED = 32
"""How many of them are remembered: a request may live for hours."""

_AS_THEY_ARE = {bool, int, str}


class NumberNote(Struct, frozen=True, tag_field="is", tag="number"):
    """A number that JSON cannot write: ``"nan"``, ``"inf"`` or ``"-inf"``."""

    value: str


class BytesNote(Struct, frozen=True, tag_field="is", tag="bytes"):
    """Bytes as they came: a file that a component decodes."""

    size_bytes: int
    sha256: str


class TensorNote(Struct, frozen=True, tag_field="is", tag="tensor", omit_defaults=True):
    """A tensor: one that rode inline has a hash, one that was lent has its owner's name for it."""

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    sha256: str = ""
    owner: str = ""
    key: int = 0


Flat = bool | int | float | str | NumberNote | BytesNote | TensorNote | None
if TYPE_CHECKING:
    FieldNote: TypeAlias = "Note"
else:
    FieldNote = Flat | list[Flat]


class RecordNote(Struct, frozen=True, tag_field="is", tag="record"):
    """A record: what there is of each of its values."""

    fields: dict[str, FieldNote]


Single = Flat | RecordNote
if TYPE_CHECKING:
    Note: TypeAlias = "Single | list[Note]"
else:
    Note = Single | list[Single | list[Single | list[Single]]]
"""A ``Value`` as a journal has it."""


class NotKept(WalkserveError):
    """A plan looks into bytes of which a journal has only the description."""


class Absent(bytes):
    """Bytes that are not here. They have their size; whoever looks into them is told what is missing."""

    note: BytesNote | TensorNote

    def __new__(cls, note: BytesNote | TensorNote) -> Absent:
        made = super().__new__(cls)
        made.note = note
        return made

    def __len__(self) -> int:
        return self.note.size_bytes

    def __eq__(self, other: object) -> bool:
        return self.note == other.note if isinstance(other, Absent) else self._missing()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.note)

    def __repr__(self) -> str:
        return f"<{self.note.size_bytes} bytes, sha256 {self.note.sha256}>"

    def _missing(self, *_: Any, **__: Any) -> NoReturn:
        raise NotKept(
            f"the plan looks into {self.note.size_bytes} bytes of which a journal has only the hash "
            f"(sha256 {self.note.sha256}); give the file they came from"
        )

    __getitem__ = __iter__ = __contains__ = __add__ = __mod__ = _missing
    startswith = endswith = find = index = count = decode = hex = split = partition = strip = _missing


class Describer:
    """Makes notes of one request's values, and hashes what is large once, as a rule."""

    def __init__(self) -> None:
        self._hashes: dict[int, tuple[bytes, str]] = {}  # the bytes are kept, or their id would be reused

    def note(self, value: Value) -> Note:
        """What a journal has of a value."""
        match value:
            case float() if not math.isfinite(value):
                return NumberNote(str(value))
            case list():
                if set(map(type, value)) <= _AS_THEY_ARE:
                    return list(value)  # type: ignore[arg-type]  # a copy: whoever has the list may change it
                return [self.note(one) for one in value]
            case Named(fields):
                return RecordNote(self.notes(fields))  # a record holds no record
            case Blob(data):
                return BytesNote(len(data), self.hash(data))
            case Array(dtype, shape, data):
                return TensorNote(dtype, tuple(shape), len(data), sha256=self.hash(data))
            case TensorRef():
                return TensorNote(
                    value.dtype, tuple(value.shape), value.size_bytes, owner=value.owner, key=value.key
                )
            case _:
                return value

    def notes(self, values: Mapping[str, Any]) -> dict[str, Note]:
        """The same by name."""
        return {name: self.note(value) for name, value in values.items()}

    def hash(self, data: bytes) -> str:
        """SHA-256 in hexadecimal."""
        if isinstance(data, Absent):
            return data.note.sha256
        if len(data) < REMEMBERED_BYTES:
            return sha256(data).hexdigest()
        known = self._hashes.get(id(data))
        if known is None:
            known = self._hashes[id(data)] = (data, sha256(data).hexdigest())
            if len(self._hashes) > REMEMBERED:
                del self._hashes[next(iter(self._hashes))]
        return known[1]


def value_of(note: Note) -> Value:
    """What a replay gives a track in a value's place: what can be told from its note."""
    match note:
        case NumberNote():
            return float(note.value)
        case BytesNote():
            return Blob(Absent(note))
        case TensorNote(owner=""):
            return Array(note.dtype, note.shape, Absent(note))
        case TensorNote():
            return TensorRef(note.owner, note.key, "", 0, note.size_bytes, note.dtype, note.shape)
        case list():
            return [value_of(one) for one in note]
        case RecordNote(fields):
            return Named(values_of(fields))
        case _:
            return note


def values_of(notes: Mapping[str, Note]) -> dict[str, Value]:
    """The same by name."""
    return {name: value_of(note) for name, note in notes.items()}
