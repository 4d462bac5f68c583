"""What a call gives, as the events its client is told: one for each piece of an output, one for the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from walkserve.delivery import Done, Failed
from walkserve.http.calls import CallEvent, Item
from walkserve.http.terms import Terms
from walkserve.messages import RequestEnded
from walkserve_sdk import Audio, Model, Output, Record, Request, Tensor, Text, Video
from walkserve_sdk import events as e
from walkserve_sdk.errors import ComponentError
from walkserve_sdk.ports import Kind


class Telling:
    """Tells one request's client what becomes of it, also where several calls make the answer.

    Args:
        name: Of the model, as it is served.
        terms: Of the request.
        label: What its client calls it on a WebSocket, where events say whose they are.

    Attributes:
        outputs: Those that were asked for.
    """

    def __init__(self, name: str, model: Model, request: Request, terms: Terms, label: str | None = None):
        self.terms = terms
        self._name = name
        self.outputs = [model.spec.outputs[output] for output in request.outputs]
        self._kinds = {output.name: output.kind for output in self.outputs}
        self._label = label
        self._told: Counter[str] = Counter()
        self._ended: list[RequestEnded] = []
        self.started = e.Started(
            id=label,
            request_id=terms.id,
            model=name,
            seed=request.seed,
            outputs={output.name: _info(output) for output in self.outputs},
        )

    def pieces(self, event: CallEvent) -> Iterator[e.Piece]:
        """What has come of an output.

        Raises:
            ComponentError: It is not what the family has declared.
        """
        if isinstance(event, Done):
            self._ended.append(event.ended)
        if isinstance(event, Done | Failed):
            return
        kind = self._kinds.get(event.output)
        if kind is None:  # nobody asked for it
            return
        for item in event.items:
            yield self._piece(event.output, kind, item, event.row)

    def done(self) -> e.Done:
        """Of several calls, the first reason other than "stop" is the request's."""
        reasons = [ended.finish_reason for ended in self._ended]
        return e.Done(
            id=self._label,
            finish_reason=next((reason for reason in reasons if reason != "stop"), "stop"),
            usage=_total(ended.usage for ended in self._ended),
            counts=_total(ended.counts for ended in self._ended),
            emitted={output: self._told[output] for output in self._kinds},
        )

    def _piece(self, output: str, kind: Kind, item: Item, row: int | None) -> e.Piece:
        index = self._told[output]
        self._told[output] += 1
        if isinstance(kind, Text):
            if not isinstance(item, str):
                raise ComponentError(
                    f"{self._name}: its output {output!r} is a {type(item).__name__}, not text"
                )
            return e.Piece(id=self._label, output=output, kind=kind.kind, index=index, row=row, text=item)
        if isinstance(kind, Record):
            return e.Piece(
                id=self._label,
                output=output,
                kind=kind.kind,
                index=index,
                row=row,
                record=self._record(output, item),
            )
        try:
            array = as_array(kind, item)
        except (TypeError, ValueError) as error:
            raise ComponentError(f"{self._name}: its output {output!r} is no array: {error}") from error
        return e.Piece(
            id=self._label,
            output=output,
            kind=kind.kind,
            index=index,
            row=row,
            rate=kind.rate if isinstance(kind, Audio) else None,
            fps=kind.fps if isinstance(kind, Video) else None,
            dtype=array.dtype.name,
            shape=array.shape,
            data=array.tobytes(),
        )

    def _record(self, output: str, item: Item) -> e.RecordData:
        if not isinstance(item, dict):
            raise ComponentError(
                f"{self._name}: its output {output!r} is a {type(item).__name__}, not a record"
            )
        return {name: _field(value) for name, value in item.items()}


def _field(value: Any) -> Any:
    """A value of a record, fit for an event."""
    match value:
        case np.ndarray():
            array = _little(value)
            return e.ArrayData(array.dtype.name, array.shape, array.tobytes())
        case list():
            return [_field(one) for one in value]
        case _:
            return value


def apart(piece: e.Piece) -> tuple[e.Piece, bytes | None]:
    """A piece without the numbers of its arrays, and those; None where it has no array."""
    if piece.record is None:
        if piece.data is None:
            return piece, None
        return replace(piece, data=None, size_bytes=len(piece.data)), piece.data
    numbers: list[bytes] = []
    record = {name: _apart(value, numbers) for name, value in piece.record.items()}
    if not numbers:
        return piece, None
    return replace(piece, record=record, size_bytes=sum(map(len, numbers))), b"".join(numbers)


def _apart(value: Any, numbers: list[bytes]) -> Any:
    match value:
        case e.ArrayData(data=bytes(data)):
            numbers.append(data)
            return replace(value, data=None, size_bytes=len(data))
        case list():
            return [_apart(one, numbers) for one in value]
        case _:
            return value


def as_array(kind: Kind, item: Item) -> NDArray[Any]:
    """An item as an array in C order, little-endian; numbers, and lists of them, have the declared dtype.

    Raises:
        ValueError: It is none.
    """
    if item is None or isinstance(item, str | dict):
        raise ValueError(f"it is {item!r:.60}")
    if isinstance(item, bytes):
        return np.frombuffer(item, np.uint8)
    if isinstance(item, np.ndarray):
        array: NDArray[Any] = item
    else:
        array = np.asarray(item, kind.dtype if isinstance(kind, Tensor) else None)
    if isinstance(kind, Audio):
        array = array.astype(np.float32, copy=False)
    return _little(array)


def _little(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def array_of(piece: e.Piece) -> NDArray[Any]:
    """The array that a piece holds; it cannot be written to."""
    assert piece.data is not None and piece.dtype is not None and piece.shape is not None
    return np.frombuffer(piece.data, piece.dtype).reshape(piece.shape)


def _info(output: Output) -> e.OutputInfo:
    kind = output.kind
    match kind:
        case Audio(rate=rate, channels=channels):
            return e.OutputInfo(kind.kind, rate=rate, channels=channels)
        case Video(fps=fps):
            return e.OutputInfo(kind.kind, fps=fps, many=output.many)
        case _:
            return e.OutputInfo(kind.kind, many=output.many)


def _total(each: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in each:
        total.update(counts)
    return dict(total)
