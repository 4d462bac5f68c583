"""In which form an answer leaves: what its client accepts decides, and only what it asked for can be had."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkserve.http.generate_events import array_of
from walkserve.http.problems import NotAcceptable
from walkserve.media.encoders import open_encoder
from walkserve.media.formats import FORMATS, SoundFormat
from walkserve_sdk import Audio, Image, Tensor, Text, Video
from walkserve_sdk.errors import ComponentError
from walkserve_sdk.events import Piece
from walkserve_sdk.ports import Kind

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"


Pieces = Sequence[Piece]
Body = tuple[dict[str, str], bytes]
"""Headers and bytes."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A form that the whole of one output can have.

    Args:
        media_type: As a client accepts it.
        kinds: Of output that can have it.
        encode: From the kind and all pieces to headers and body.
    """

    media_type: str
    kinds: tuple[type[Kind], ...]
    encode: Callable[[Any, Pieces], Body]


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer that is one output's bytes."""

    raw: Raw
    output: str
    kind: Kind

    async def encode(self, pieces: Pieces) -> Body:
        """All of it; in a thread, since some forms take a while.

        Raises:
            NotAcceptable: It has several pieces, and this form holds one.
            ComponentError: The pieces are not what the family has declared.
        """
        return await asyncio.to_thread(self.raw.encode, self.kind, pieces)


def _text(kind: Text, pieces: Pieces) -> Body:
    return {"content-type": "text/plain; charset=utf-8"}, "".join(one.text or "" for one in pieces).encode()


def _sound(format: SoundFormat) -> Callable[[Audio, Pieces], Body]:
    def encode(kind: Audio, pieces: Pieces) -> Body:
        if kind.channels > format.most_channels:
            raise NotAcceptable(
                f"accept: {format.media_type} has at most {format.most_channels} channels, this sound has"
                f" {kind.channels}",
                param="accept",
            )
        with open_encoder(format, kind.rate, kind.channels, streamed=False) as encoder:
            try:
                for piece in pieces:
                    encoder.feed(array_of(piece))
            except ValueError as error:
                raise ComponentError(f"an output is no sound: {error}") from error
            return {"content-type": format.content_type(kind.rate, kind.channels)}, encoder.finish()

    return encode


def _npy(kind: Kind, pieces: Pieces) -> Body:
    file = io.BytesIO()
    np.save(file, _one(kind, pieces), allow_pickle=False)
    return {"content-type": "application/x-npy"}, file.getvalue()


def _bytes(kind: Kind, pieces: Pieces) -> Body:
    array = _one(kind, pieces)
    shape = ",".join(map(str, array.shape))
    return {
        "content-type": "application/octet-stream",
        "x-dtype": array.dtype.name,
        "x-shape": shape,
    }, array.tobytes()


def _one(kind: Kind, pieces: Pieces) -> NDArray[Any]:
    if isinstance(kind, Audio):
        return _joined(kind, pieces)
    if len(pieces) != 1:
        raise NotAcceptable(
            f"the answer has {len(pieces)} pieces, and these bytes hold one; accept {NDJSON}", param="accept"
        )
    return array_of(pieces[0])


def _joined(kind: Audio, pieces: Pieces) -> NDArray[Any]:
    silence = np.zeros(0 if kind.channels == 1 else (0, kind.channels), np.float32)
    return np.concatenate([array_of(each) for each in pieces] or [silence])


_ARRAYS = (Audio, Image, Video, Tensor)
RAW = (
    Raw("text/plain", (Text,), _text),
    *(Raw(format.media_type, (Audio,), _sound(format)) for format in FORMATS.values()),
    Raw("application/x-npy", _ARRAYS, _npy),
    Raw("application/octet-stream", _ARRAYS, _bytes),
)
OFFERED = (NDJSON, SSE, *(raw.media_type for raw in RAW))
"""Where a client accepts several equally, the first of these is sent."""


def choose(accept: str) -> str:
    """The media type of an answer, of those that are offered.

    Args:
        accept: The header; empty where there is none.

    Raises:
        NotAcceptable: None of them is accepted.
    """
    ranges = [_range(each) for each in accept.split(",") if each.strip()] or [("*/*", 1.0)]
    best, best_quality = "", 0.0
    for offered in OFFERED:
        quality = _quality(offered, ranges)
        if quality > best_quality:
            best, best_quality = offered, quality
    if not best:
        raise NotAcceptable(
            f"accept: {accept[:100]!r} is not offered; there is {', '.join(OFFERED)}", param="accept"
        )
    return best


def _range(text: str) -> tuple[str, float]:
    name, *parameters = (each.strip().lower() for each in text.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, float(parameter[2:])
            except ValueError:
                return name, 0.0
    return name, 1.0


def _quality(offered: str, ranges: Sequence[tuple[str, float]]) -> float:
    """By the most exact range that covers it, as RFC 9110 (12.5.1) has it."""
    for covering in (offered, offered.split("/")[0] + "/*", "*/*"):
        found = [quality for name, quality in ranges if name == covering]
        if found:
            return max(found)
    return 0.0


def raw_answer(media_type: str, kinds: Mapping[str, Kind]) -> RawAnswer | None:
    """How a raw answer is written; None where the answer is events.

    Args:
        kinds: Of the outputs that are asked for.

    Raises:
        NotAcceptable: The request asks for more than one output, or for another kind.
    """
    raw = next((each for each in RAW if each.media_type == media_type), None)
    if raw is None:
        return None
    asked = ", ".join(f"{output} ({kind.kind})" for output, kind in kinds.items())
    if len(kinds) != 1:
        raise NotAcceptable(
            f"accept: {media_type} holds one output, and the request asks for {asked}; name one in 'outputs'",
            param="accept",
        )
    ((output, kind),) = kinds.items()
    if not isinstance(kind, raw.kinds):
        takes = (each.media_type for each in RAW if isinstance(kind, each.kinds))
        raise NotAcceptable(
            f"accept: the request asks for {asked}, which can be had as {', '.join((NDJSON, SSE, *takes))},"
            f" not as {media_type}",
            param="accept",
        )
    return RawAnswer(raw, output, kind)
