"""What a request's client is told, event by event: one definition for who writes and who reads.

`POST /v1/generate` sends these as JSON, one after the other; `WS /v1/stream` sends the same ones, each with
the ``id`` its client gave the request, and the numbers of an array in a binary frame after it.
"""

from __future__ import annotations

from msgspec import Struct, field


class Problem(Struct, frozen=True):
    """What went wrong: ``param`` names the field at fault, ``code`` is for programs to look at."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OutputInfo(Struct, frozen=True, omit_defaults=True):
    """What is known of an output before anything of it has come.

    Args:
        kind: ``"text"``, ``"audio"``, ``"image"``, ``"video"``, ``"tensor"`` or ``"record"``.
        rate: Of audio, samples per second.
        channels: Of audio.
        fps: Of video, frames per second.
        many: Whether several images, videos, tensors or records may come.
    """

    kind: str
    rate: int | None = None
    channels: int | None = None
    fps: float | None = None
    many: bool = False


class ArrayData(Struct, frozen=True, omit_defaults=True):
    """An array within a record. Fields are those of ``Piece``; over a WebSocket the numbers of all arrays of
    a record come one after the other in the binary frame that follows it, of each so many ``bytes``.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None
    size_bytes: int | None = field(default=None, name="bytes")


Simple = bool | int | float | str | ArrayData
RecordData = dict[str, Simple | list[Simple] | None]
"""A record: numbers, text and arrays by name, and lists of them. A number that JSON has not is null."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Anything that is told of a request. ``id`` is its client's name for it, over a WebSocket only."""

    id: str | None = None


class Started(Event, frozen=True, tag="started"):
    """It is on its way. ``request_id`` is what `GET /v1/requests/{request_id}` knows it by."""

    request_id: str
    model: str
    seed: int
    outputs: dict[str, OutputInfo]


class Piece(Event, frozen=True, tag="output"):
    """A piece of one output: ``text``, an array or a ``record``.

    Args:
        index: Which piece of this output, from 0.
        row: Of a model that does the same for several candidates: whose piece it is, from 0.
        rate: Of audio, samples per second.
        fps: Of video, frames per second.
        dtype: Of an array, as numpy spells it.
        shape: Of an array; audio is (samples,) or (samples, channels), an image (height, width, 3).
        data: An array's numbers, little-endian, the last axis fastest; base64 in JSON.
        size_bytes: In place of ``data`` over a WebSocket: the size of the binary frame that follows
            (``bytes`` in JSON).
    """

    output: str
    kind: str
    index: int
    row: int | None = None
    text: str | None = None
    rate: int | None = None
    fps: float | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    data: bytes | None = None
    record: RecordData | None = None
    size_bytes: int | None = field(default=None, name="bytes")


class Done(Event, frozen=True, tag="done"):
    """All of it has come. ``emitted`` says how many pieces of each output that were."""

    finish_reason: str
    usage: dict[str, int]
    counts: dict[str, int]
    emitted: dict[str, int]


class Failed(Event, frozen=True, tag="error"):
    """Nothing more comes. Without an ``id``, over a WebSocket: that frame was refused, and no more."""

    error: Problem
    frame: int | None = None


class Stopped(Event, frozen=True, tag="cancelled"):
    """What its client asked to cancel is over: nothing of it comes after this."""


ToCaller = Started | Piece | Done | Failed
"""What `POST /v1/generate` sends."""

ToSocket = Started | Piece | Done | Failed | Stopped
"""What `WS /v1/stream` sends."""
