"""A batch of messages as the bytes of one frame, and back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import GenericAlias
from typing import Any

import msgspec

from walkserve.messages import Message

log = logging.getLogger(__name__)

_encoder = msgspec.msgpack.Encoder()
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])

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
    """Reads frames of the messages in the union ``receives``, and passes over what it cannot read."""

    def __init__(self, receives: Any) -> None:
        # GenericAlias, because a type checker reads list[receives] as a wrong annotation
        self._all: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(
            GenericAlias(list, (receives,))
        )
        self._one: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(receives)

    def unpack(self, frame: bytes) -> list[Message]:
        """The messages of a frame; those that cannot be read are logged and left out."""
        try:
            return self._all.decode(frame)
        except _CANNOT_DECODE:
            pass
        try:
            raws = _raws.decode(frame)
        except _CANNOT_DECODE as error:
            log.error("a frame of %d bytes is dropped: %s", len(frame), error)
            return []
        messages = []
        for raw in raws:
            try:
                messages.append(self._one.decode(raw))
            except _CANNOT_DECODE as error:
                log.error("a message of type %s is dropped: %s", _type_of(raw), error)
        return messages


def _type_of(raw: msgspec.Raw) -> str:
    try:
        anything = msgspec.msgpack.decode(raw)
    except _CANNOT_DECODE:
        return "unknown"
    return repr(anything.get("type", "unknown")) if isinstance(anything, dict) else "unknown"
