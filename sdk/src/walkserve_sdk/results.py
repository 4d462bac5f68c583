"""What a request gives to its caller in Python: pieces as they come, and the whole. Needs numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkserve_sdk.errors import did_you_mean
from walkserve_sdk.ports import Audio, Output, Record, Tensor


@dataclass(frozen=True)
class Sound:
    """A stretch of audio.

    Args:
        samples: float32 in [-1, 1], of shape (n,), or (n, channels) where there are several.
        rate: Samples per second.
    """

    samples: NDArray[np.float32]
    rate: int


class Fields(dict[str, Any]):
    """A record: numbers, text, arrays and lists of them by name, as ``plan["actions"]`` or ``plan.actions``.

    A name that a ``dict`` has a method of (``items``) is found in brackets alone.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the record has no {name!r}{did_you_mean(name, self)}") from None


@dataclass(frozen=True)
class OutputEvent:
    """A piece of one output: ``data`` is a ``Sound``, text, an array or ``Fields``, by the output's kind.

    ``index`` is the row of a Fan that gave it: the candidate whose piece it is. None of any other piece.
    """

    output: str
    data: Any
    index: int | None = None


@dataclass(frozen=True)
class Result:
    """A whole answer; every output is an attribute of its own name.

    Args:
        outputs: By name: a ``Sound``, text, an array, ``Fields``, or a list, as ``join_pieces`` says.
        finish_reason: ``"stop"``, ``"length"``, or another reason of the family's.
        seed: Of the request's random streams; the same seed gives the same answer.
        usage: ``input_tokens`` and ``output_tokens``.
        counts: What components counted, dropped tokens for instance.
    """

    outputs: dict[str, Any]
    finish_reason: str
    seed: int
    usage: dict[str, int]
    counts: dict[str, int]

    def __getattr__(self, name: str) -> Any:
        outputs: dict[str, Any] = self.__dict__.get("outputs", {})  # not there yet while it is unpickled
        try:
            return outputs[name]
        except KeyError:
            raise AttributeError(f"the request had no output {name!r}; it had {sorted(outputs)}") from None


def join_pieces(
    kind: str,
    pieces: Sequence[Any],
    *,
    indexes: Sequence[int | None] = (),
    many: bool = False,
    rate: int = 0,
    channels: int = 1,
) -> Any:
    """All that one output gave, as a ``Result`` has it.

    Text is one text, and audio one ``Sound``. Of images, videos, tensors and records an output that gives
    ``many`` has a list, however many came; any other has the only piece, and None where none came. Where one
    that was not to give several did (a text that was split gives one for each sentence), it is a list.

    Of an output that rows of a Fan give, there is the same of each row, in order; but images, videos and
    tensors, however many came of a row, are one array where their shapes agree: (rows, pieces of a row, ...).

    Args:
        kind: Of the output: ``"audio"``, ``"text"``, ...
        indexes: Of the pieces, where they come from rows of a Fan.
        many: As the output was declared.
        rate: Of audio, also where not a single piece has come.
        channels: Of audio.
    """
    rows = [index for index in indexes if index is not None]
    if rows and len(rows) == len(pieces):
        by_row: list[list[Any]] = [[] for _ in range(max(rows) + 1)]
        for index, piece in zip(rows, pieces, strict=True):
            by_row[index].append(piece)
        is_array = kind in ("image", "video", "tensor")
        joined = [
            join_pieces(kind, row, many=many or is_array, rate=rate, channels=channels) for row in by_row
        ]
        return _stacked([_stacked(row) for row in joined]) if is_array else joined
    match kind:
        case "audio":
            silence = np.zeros(0 if channels == 1 else (0, channels), np.float32)
            return Sound(np.concatenate([piece.samples for piece in pieces] or [silence]), rate)
        case "text":
            return "".join(pieces)
        case _ if many or len(pieces) > 1:
            return list(pieces)
        case _:
            return pieces[0] if pieces else None


def _stacked(arrays: list[Any]) -> Any:
    """One array, if they are arrays of one kind."""
    if len(arrays) == 1 and isinstance(arrays[0], np.ndarray):
        return arrays[0][None]
    kinds = {(one.shape, one.dtype.str) if isinstance(one, np.ndarray) else None for one in arrays}
    return np.stack(arrays) if len(kinds) == 1 and None not in kinds else arrays


def flat(outputs: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """All arrays of a ``Result``'s outputs, and all texts, each by a name of its own.

    An output's one array has the output's name, the second of several ``latents.1``, and what a record has
    ``plan.actions``. Numbers are arrays too, and a list of numbers is one.
    """
    arrays: dict[str, NDArray[Any]] = {}
    texts: dict[str, str] = {}
    for output, whole in outputs.items():
        for name, value in _named(output, whole):
            if isinstance(value, str):
                texts[name] = value
            else:
                arrays[name] = np.asarray(value)
    return arrays, texts


def _named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case None:
            return
        case Sound(samples=samples):
            yield name, samples
        case dict():
            for key, one in value.items():
                yield from _named(f"{name}.{key}", one)
        case list() if not value or not all(isinstance(one, bool | int | float) for one in value):
            for index, one in enumerate(value):
                yield from _named(f"{name}.{index}", one)
        case _:
            yield name, value


def join_output(output: Output, events: Sequence[OutputEvent]) -> Any:
    """All that an output gave, as a ``Result`` has it."""
    pieces, indexes = [event.data for event in events], [event.index for event in events]
    match output.kind:
        case Audio(rate=rate, channels=channels):
            return join_pieces("audio", pieces, indexes=indexes, rate=rate, channels=channels)
        case kind:
            return join_pieces(kind.kind, pieces, indexes=indexes, many=output.many)


def as_data(output: Output, value: Any) -> Any:
    """A piece of an output as an ``OutputEvent`` has it, of what has arrived for it."""
    match output.kind:
        case Audio(rate=rate):
            return Sound(np.asarray(value, np.float32), rate)
        case Tensor(dtype=dtype) if not isinstance(value, np.ndarray):
            return np.asarray(value, dtype)  # numbers and lists of them
        case Record() if isinstance(value, dict):
            return Fields(value)
        case _:
            return value
