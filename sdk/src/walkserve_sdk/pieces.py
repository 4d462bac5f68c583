"""Pieces of outputs, out of the events that tell them. Needs numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkserve_sdk.events import ArrayData, Piece
from walkserve_sdk.results import Fields, OutputEvent, Sound


def read_piece(piece: Piece) -> OutputEvent:
    """What a piece holds: text, a ``Sound``, an array or ``Fields``, all of them its reader's own."""
    if piece.record is not None:
        numbers = memoryview(piece.data or b"")  # of all its arrays, where they came in a frame of their own
        fields = Fields()
        for name, value in piece.record.items():
            fields[name], numbers = _field(value, numbers)
        return OutputEvent(piece.output, fields, piece.row)
    if piece.data is None or piece.dtype is None or piece.shape is None:
        return OutputEvent(piece.output, piece.text or "", piece.row)
    array = _array(piece.data, piece.dtype, piece.shape)
    data = Sound(array, piece.rate or 0) if piece.kind == "audio" else array
    return OutputEvent(piece.output, data, piece.row)


def _field(value: Any, numbers: memoryview) -> tuple[Any, memoryview]:
    """A value of a record, and what is left of the numbers of its arrays."""
    match value:
        case ArrayData(dtype=dtype, shape=shape, data=None, size_bytes=size):
            return _array(numbers[:size], dtype, shape), numbers[size:]
        case ArrayData(dtype=dtype, shape=shape, data=data):
            return _array(data or b"", dtype, shape), numbers
        case list():
            items = []
            for one in value:
                item, numbers = _field(one, numbers)
                items.append(item)
            return items, numbers
        case _:
            return value, numbers


def _array(data: bytes | memoryview, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(shape)
    return array.astype(dtype)  # the caller's own, in its machine's order: it may change it
