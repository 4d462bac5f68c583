"""What a worker's items become for a caller in this process."""

from __future__ import annotations

from typing import Any

from walkserve import messages as m
from walkserve.transport.base import TensorCarrier
from walkserve_sdk import Output
from walkserve_sdk.ports import Audio
from walkserve_sdk.results import Sound


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
