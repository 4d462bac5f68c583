"""A journal's file, read and checked line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from walkserve.errors import SettingError
from walkserve.journal import entries as e
from walkserve.journal.notes import Absent, BytesNote, NumberNote, value_of
from walkserve.messages import SentPart

_CURE = "give a file that walkserve serve --journal DIR has written"
_decode = msgspec.json.Decoder(e.Line).decode


class _Head(msgspec.Struct):
    """What has to be known of a first line before the rest of it can be."""

    journal: int


@dataclass(frozen=True)
class Recorded:
    """One request's journal. Entry n stands in line n + 1; the first is its ``opened``.

    Args:
        cut: Why there is nothing after the last entry though the request had not ended, or ``""``.
    """

    entries: tuple[e.Line, ...]
    cut: str = ""

    @property
    def opened(self) -> e.Opened:
        first = self.entries[0]
        assert isinstance(first, e.Opened)  # it was read as one
        return first

    def parts(self, media: Mapping[str, bytes]) -> tuple[SentPart, ...]:
        """The request's parts; media that is not given, by its SHA-256, is absent."""
        return tuple(_part(note, media) for note in self.opened.parts)

    @property
    def options(self) -> dict[str, Any]:
        """As two processes send them to each other."""
        restored: dict[str, Any] = _restored(self.opened.options)
        return restored


def read_journal(path: Path) -> Recorded:
    """Read a journal; one that ends in the middle is one, too.

    Raises:
        SettingError: It is none; with the line, and what to do.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror or error}; {_CURE}") from error
    *lines, torn = text.split(b"\n")
    if not lines:
        raise SettingError(f"{path} is no journal: it has no whole line; {_CURE}")
    try:
        written = msgspec.json.decode(lines[0], type=_Head).journal
    except msgspec.DecodeError as error:
        raise SettingError(f"{path}, line 1: this begins no journal: {error}; {_CURE}") from None
    if written != e.FORMAT:
        raise SettingError(
            f"{path}, line 1: this journal is of format {written}, and this walkserve reads {e.FORMAT}; "
            "replay it with the walkserve that wrote it"
        )
    entries = tuple(_entry(path, number, line) for number, line in enumerate(lines, 1))
    _check_order(path, entries)
    return Recorded(entries, _cut(entries, torn))


def _entry(path: Path, number: int, line: bytes) -> e.Line:
    try:
        return _decode(line)
    except msgspec.DecodeError as error:
        raise SettingError(
            f"{path}, line {number}: this is no entry of a journal: {error}; {_CURE}"
        ) from None


def _check_order(path: Path, entries: tuple[e.Line, ...]) -> None:
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, e.Opened) != (number == 1):
            what = "opens a second request" if number > 1 else "opens no request"
            raise SettingError(f"{path}, line {number}: this {what}; a journal is one request's: {_CURE}")
        if number < len(entries) and isinstance(entry, (*e.END, e.BrokenOff)):
            raise SettingError(
                f"{path}, line {number + 1}: this stands after the end of its request; {_CURE}"
            )


def _cut(entries: tuple[e.Line, ...], torn: bytes) -> str:
    last = entries[-1]
    if isinstance(last, e.END):
        return ""
    if isinstance(last, e.BrokenOff):
        return last.why
    if torn:
        return f"line {len(entries) + 1} is torn off in the middle"
    return f"after line {len(entries)} nothing was written"


def _part(note: e.PartNote, media: Mapping[str, bytes]) -> SentPart:
    if note.media is None:
        return SentPart(note.kind, (note.text or "").encode(), note.name)
    return SentPart(note.kind, media.get(note.media.sha256) or Absent(note.media), note.name)


def _restored(value: Any) -> Any:
    """Options again, as ``Recorder`` got them."""
    match value:
        case {"is": "number", "value": str(number), **rest} if not rest:
            return value_of(NumberNote(number))
        case dict():
            return {key: _restored(one) for key, one in value.items()}
        case list():
            return [_restored(one) for one in value]
        case _:
            return value


def absent_media(recorded: Recorded, media: Mapping[str, bytes]) -> tuple[BytesNote, ...]:
    """Of the request's media, what is not given."""
    notes = (part.media for part in recorded.opened.parts)
    return tuple(note for note in notes if note is not None and note.sha256 not in media)
