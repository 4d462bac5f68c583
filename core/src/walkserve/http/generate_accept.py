"""In which form an answer leaves: what its client accepts decides, and only what it asked for can be had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from walkserve.http.event_answers import NDJSON, SSE
from walkserve.http.generate_events import array_of
from walkserve.http.problems import NotAcceptable
from walkserve.media.encoders import open_encoder
from walkserve.media.formats import FORMATS, SoundFormat
from walkserve_sdk import Audio, Image, Output, Record, Tensor, Text, Video
from walkserve_sdk.arrays import write_npy, write_safetensors
from walkserve_sdk.errors import ComponentError
from walkserve_sdk.events import Piece
from walkserve_sdk.pieces import read_piece
from walkserve_sdk.ports import Kind
from walkserve_sdk.results import Sound, flat, join_pieces

Pieces = Sequence[Piece]
Body = tuple[dict[str, str], bytes]
"""Headers and bytes."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A form that the whole of one output can have.

    Args:
        media_type: As a client accepts it.
        kinds: Of output that can have it.
        encode: From an output and all its pieces to headers and body.
    """

    media_type: str
    kinds: tuple[type[Kind], ...]
    encode: Callable[[Output, Pieces], Body]


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer that is the outputs' bytes: one's, or in a file that holds several by name, all of them."""

    raw: Raw | None  # None: all in one file
    outputs: Sequence[Output]

    async def encode(self, pieces: Pieces) -> Body:
        """All of it; in a thread, since some forms take a while.

        Raises:
            NotAcceptable: An output has several pieces, and this form holds one.
            ComponentError: The pieces are not what the family has declared.
        """
        by_output = {each.name: [one for one in pieces if one.output == each.name] for each in self.outputs}
        if self.raw is None:
            return await asyncio.to_thread(_safetensors, self.outputs, by_output)
        (output,) = self.outputs
        return await asyncio.to_thread(self.raw.encode, output, by_output[output.name])


def _text(output: Output, pieces: Pieces) -> Body:
    return {"content-type": "text/plain; charset=utf-8"}, "".join(one.text or "" for one in pieces).encode()


def _sound(format: SoundFormat) -> Callable[[Output, Pieces], Body]:
    def encode(output: Output, pieces: Pieces) -> Body:
        kind = output.kind
        assert isinstance(kind, Audio)
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


def _npy(output: Output, pieces: Pieces) -> Body:
    return {"content-type": "application/x-npy"}, write_npy(_one(output, pieces))


def _bytes(output: Output, pieces: Pieces) -> Body:
    array = _one(output, pieces)
    shape = ",".join(map(str, array.shape))
    return {
        "content-type": "application/octet-stream",
        "x-dtype": array.dtype.name,
        "x-shape": shape,
    }, array.tobytes()


def _json(output: Output, pieces: Pieces) -> Body:
    records = [one.record for one in pieces]
    whole = records if output.many or len(records) > 1 else records[0] if records else None
    return {"content-type": "application/json"}, msgspec.json.encode(whole)


def _safetensors(outputs: Sequence[Output], by_output: Mapping[str, Pieces]) -> Body:
    tensors, texts = flat({each.name: whole(each, by_output[each.name]) for each in outputs})
    return {"content-type": SAFETENSORS}, write_safetensors(tensors, texts)


def _one(output: Output, pieces: Pieces) -> NDArray[Any]:
    value = whole(output, pieces)
    if isinstance(value, Sound):
        return value.samples
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if not isinstance(value, np.ndarray):
        raise NotAcceptable(
            f"the answer has {len(pieces)} pieces, and these bytes hold one; accept {SAFETENSORS}",
            param="accept",
        )
    return value


def whole(output: Output, pieces: Pieces) -> Any:
    """All that an output gave, as a client in Python has it.

    Raises:
        ComponentError: They are not to be joined.
    """
    kind = output.kind
    rate, channels = (kind.rate, kind.channels) if isinstance(kind, Audio) else (0, 1)
    events = [read_piece(piece) for piece in pieces]
    data, indexes = [event.data for event in events], [event.index for event in events]
    try:
        return join_pieces(kind.kind, data, indexes=indexes, many=output.many, rate=rate, channels=channels)
    except ValueError as error:
        raise ComponentError(f"an output is no sound: {error}") from error


_ARRAYS = (Audio, Image, Video, Tensor)
SAFETENSORS = "application/x-safetensors"
"""Every output that is asked for, by name, in one file."""
RAW = (
    Raw("text/plain", (Text,), _text),
    *(Raw(format.media_type, (Audio,), _sound(format)) for format in FORMATS.values()),
    Raw("application/x-npy", _ARRAYS, _npy),
    Raw("application/octet-stream", _ARRAYS, _bytes),
    Raw("application/json", (Record,), _json),
)
OFFERED = (NDJSON, SSE, *(raw.media_type for raw in RAW), SAFETENSORS)
"""Where a client accepts several equally, the first of these is sent."""


def raw_answer(media_type: str, outputs: Sequence[Output]) -> RawAnswer | None:
    """How a raw answer is written; None where the answer is events.

    Args:
        outputs: Those that are asked for.

    Raises:
        NotAcceptable: The request asks for more than one output, or for another kind.
    """
    if media_type == SAFETENSORS:
        return RawAnswer(None, outputs)
    raw = next((each for each in RAW if each.media_type == media_type), None)
    if raw is None:
        return None
    asked = ", ".join(f"{output.name} ({output.kind.kind})" for output in outputs)
    if len(outputs) != 1:
        raise NotAcceptable(
            f"accept: {media_type} holds one output, and the request asks for {asked}; name one in 'outputs'",
            param="accept",
        )
    (output,) = outputs
    if not isinstance(output.kind, raw.kinds):
        takes = (*(each.media_type for each in RAW if isinstance(output.kind, each.kinds)), SAFETENSORS)
        raise NotAcceptable(
            f"accept: the request asks for {asked}, which can be had as {', '.join((NDJSON, SSE, *takes))},"
            f" not as {media_type}",
            param="accept",
        )
    return RawAnswer(raw, outputs)
