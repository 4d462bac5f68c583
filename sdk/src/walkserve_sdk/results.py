"""What a request gives to its caller in Python: pieces as they come, and the whole. Needs numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sound:
    """A stretch of audio.

    Args:
        samples: float32 in [-1, 1], of shape (n,), or (n, channels) where there are several.
        rate: Samples per second.
    """

    samples: NDArray[np.float32]
    rate: int


@dataclass(frozen=True)
class OutputEvent:
    """A piece of one output: ``data`` is a ``Sound``, text, or an array, by the output's kind.

    ``index`` is the row of a Fan that gave it: the candidate whose piece it is. None of any other piece.
    """

    output: str
    data: Any
    index: int | None = None


@dataclass(frozen=True)
class Result:
    """A whole answer; every output is an attribute of its own name.

    Args:
        outputs: By name: a ``Sound``, text, or a list of arrays. Of one that rows of a Fan give, the same of
            each row, in order; arrays of one shape are stacked: (rows, pieces of a row, ...).
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
    rate: int = 0,
    channels: int = 1,
) -> Any:
    """All that one output gave, as a ``Result`` has it.

    Args:
        kind: Of the output: ``"audio"``, ``"text"``, ...
        indexes: Of the pieces, where they come from rows of a Fan.
        rate: Of audio, also where not a single piece has come.
        channels: Of audio.
    """
    rows = [index for index in indexes if index is not None]
    if rows and len(rows) == len(pieces):
        by_row: list[list[Any]] = [[] for _ in range(max(rows) + 1)]
        for index, piece in zip(rows, pieces, strict=True):
            by_row[index].append(piece)
        joined = [join_pieces(kind, row, rate=rate, channels=channels) for row in by_row]
        return joined if kind in ("audio", "text") else _stacked([_stacked(row) for row in joined])
    match kind:
        case "audio":
            silence = np.zeros(0 if channels == 1 else (0, channels), np.float32)
            return Sound(np.concatenate([piece.samples for piece in pieces] or [silence]), rate)
        case "text":
            return "".join(pieces)
        case _:
            return list(pieces)


def _stacked(arrays: list[Any]) -> Any:
    """One array, if they are arrays of one kind."""
    kinds = {(one.shape, one.dtype.str) if isinstance(one, np.ndarray) else None for one in arrays}
    return np.stack(arrays) if len(kinds) == 1 and None not in kinds else arrays
