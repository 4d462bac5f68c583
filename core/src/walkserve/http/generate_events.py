"""What a call gives, as the events its client is told: one for each piece of an output, one for the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkserve.delivery import Done, Failed
from walkserve.http.calls import CallEvent, Item
from walkserve.http.terms import Terms
from walkserve.messages import RequestEnded
from walkserve_sdk import Audio, Model, Request, Tensor, Text, Video
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
        kinds: Of the outputs that were asked for, by name.
    """

    def __init__(self, name: str, model: Model, request: Request, terms: Terms, label: str | None = None):
        self.terms = terms
        self._name = name
        self.kinds = {output: model.spec.outputs[output].kind for output in request.outputs}
        self._label = label
        self._told: Counter[str] = Counter()
        self._ended: list[RequestEnded] = []
        self.started = e.Started(
            id=label,
            request_id=terms.id,
            model=name,
            seed=request.seed,
            outputs={output: _info(kind) for output, kind in self.kinds.items()},
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
        kind = self.kinds.get(event.output)
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
            emitted={output: self._told[output] for output in self.kinds},
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


def as_array(kind: Kind, item: Item) -> NDArray[Any]:
    """An item as an array in C order, little-endian; numbers, and lists of them, have the declared dtype.

    Raises:
        ValueError: It is none.
    """
    if item is None or isinstance(item, str):
        raise ValueError(f"it is {item!r:.60}")
    if isinstance(item, bytes):
        return np.frombuffer(item, np.uint8)
    if isinstance(item, np.ndarray):
        array: NDArray[Any] = item
    else:
        array = np.asarray(item, kind.dtype if isinstance(kind, Tensor) else None)
    if isinstance(kind, Audio):
        array = array.astype(np.float32, copy=False)
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def array_of(piece: e.Piece) -> NDArray[Any]:
    """The array that a piece holds; it cannot be written to."""
    assert piece.data is not None and piece.dtype is not None and piece.shape is not None
    return np.frombuffer(piece.data, piece.dtype).reshape(piece.shape)


def _info(kind: Kind) -> e.OutputInfo:
    match kind:
        case Audio(rate=rate, channels=channels):
            return e.OutputInfo(kind.kind, rate=rate, channels=channels)
        case Video(fps=fps):
            return e.OutputInfo(kind.kind, fps=fps)
        case _:
            return e.OutputInfo(kind.kind)


def _total(each: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in each:
        total.update(counts)
    return dict(total)
