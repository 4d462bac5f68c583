"""A batch of messages as the bytes of one frame, and back."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from types import GenericAlias
from typing import Any

import msgspec

from walkserve.messages import Message, Unreadable

log = logging.getLogger(__name__)

_encoder = msgspec.msgpack.Encoder()
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])

MOST_KINDS = 64
LONGEST_KIND = 64
"""Of what cannot be read: whatever comes, little is kept and written of it."""

# A tensor or another object; a whole number beyond 64 bits; half a surrogate pair; a list in itself.
_CANNOT_ENCODE = (TypeError, OverflowError, ValueError, RecursionError)
_CANNOT_DECODE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def pack(messages: Sequence[Message]) -> tuple[bytes, list[tuple[Message, str]]]:
    """One frame of all ``messages`` that can be encoded, and the others with the reason."""
    try:
        return _encoder.encode(messages), []
    except _CANNOT_ENCODE:
        pass
    good: list[msgspec.Raw] = []
    bad: list[tuple[Message, str]] = []
    for message in messages:
        try:
            good.append(msgspec.Raw(_encoder.encode(message)))
        except _CANNOT_ENCODE as error:
            bad.append((message, str(error)))
    return _encoder.encode(good), bad


class Unpacker:
    """Reads frames of the messages in the union ``receives``.

    What cannot be read is passed over, but for an ``Unreadable`` where it says which request it was about.
    The log is told of each kind once, and counts the others at debug level: a peer that says one thing
    wrong says it again with every frame.
    """

    def __init__(self, receives: Any) -> None:
        self.unreadable: Counter[str] = Counter()
        """How many frames or messages were passed over, by what they were."""
        # GenericAlias, because a type checker reads list[receives] as a wrong annotation
        self._all: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(
            GenericAlias(list, (receives,))
        )
        self._one: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(receives)

    def unpack(self, frame: bytes) -> list[Message]:
        """The messages of a frame."""
        try:
            return self._all.decode(frame)
        except _CANNOT_DECODE:
            pass
        try:
            raws = _raws.decode(frame)
        except _CANNOT_DECODE as error:
            self._passed_over("frame", f"a frame of {len(frame):,} bytes", error)
            return []
        messages: list[Message] = []
        for raw in raws:
            try:
                messages.append(self._one.decode(raw))
            except _CANNOT_DECODE as error:
                unreadable = _what_it_was(raw)
                self._passed_over(unreadable.kind, f"a message of type {unreadable.kind!r}", error)
                if unreadable.number >= 0 or unreadable.tags:
                    messages.append(unreadable)
        return messages

    def _passed_over(self, kind: str, what: str, error: Exception) -> None:
        if kind not in self.unreadable and len(self.unreadable) >= MOST_KINDS:
            kind = "others"
        self.unreadable[kind] += 1
        count = self.unreadable[kind]
        log.log(logging.ERROR if count == 1 else logging.DEBUG, "%s is dropped: %s", what, error)


def _what_it_was(raw: msgspec.Raw) -> Unreadable:
    """As far as it says so itself, in fields that every message names alike."""
    try:
        said = msgspec.msgpack.decode(raw)
    except _CANNOT_DECODE:
        return Unreadable("unknown")
    if not isinstance(said, dict):
        return Unreadable("unknown")
    kind, number, tags = said.get("type"), said.get("number"), said.get("tags", [said.get("tag")])
    return Unreadable(
        kind[:LONGEST_KIND] if isinstance(kind, str) else "unknown",
        number if isinstance(number, int) else -1,
        tuple(tag for tag in tags if isinstance(tag, int)) if isinstance(tags, list) else (),
    )
