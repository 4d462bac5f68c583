"""What a request gives to a caller in this process: pieces as they come, and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkserve import messages as m
from walkserve.transport.base import TensorCarrier
from walkserve_sdk import Output
from walkserve_sdk.ports import Audio, Text


@dataclass(frozen=True)
class Sound:
    """A stretch of audio.

    Args:
        samples: float32 in [-1, 1], of shape (n,).
        rate: Samples per second.
    """

    samples: NDArray[np.float32]
    rate: int


@dataclass(frozen=True)
class OutputEvent:
    """A piece of one output: ``data`` is a ``Sound``, text, or an array, by the output's kind."""

    output: str
    data: Any


@dataclass(frozen=True)
class Result:
    """A whole answer; every output is an attribute of its own name.

    Args:
        outputs: By name: a ``Sound``, text, or a list of arrays.
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


def read_item(output: Output, item: m.Value, carrier: TensorCarrier) -> Any:
    """An item of ``output`` as its caller gets it, in host memory."""
    value = _read(item, carrier)
    return Sound(value, output.kind.rate) if isinstance(output.kind, Audio) else value


def _read(value: m.Value, carrier: TensorCarrier) -> Any:
    match value:
        case m.Array() | m.TensorRef():
            return carrier.take(value).float().cpu().numpy().copy()  # the caller's own: it may change it
        case m.Blob():
            return value.data
        case list():
            return [_read(one, carrier) for one in value]
        case _:
            return value


def join_pieces(output: Output, pieces: Sequence[Any]) -> Any:
    """All that ``output`` gave, as a ``Result`` has it."""
    match output.kind:
        case Audio(rate=rate):
            samples = [piece.samples for piece in pieces]
            return Sound(np.concatenate(samples) if samples else np.zeros(0, np.float32), rate)
        case Text():
            return "".join(pieces)
        case _:
            return list(pieces)
