"""What a worker's items become for a caller in this process."""

from __future__ import annotations

from typing import Any

from torch import bfloat16

from walkserve import messages as m
from walkserve.transport.base import TensorCarrier
from walkserve_sdk import Output
from walkserve_sdk.results import Fields, as_data


def read_item(output: Output, item: m.Value, carrier: TensorCarrier) -> Any:
    """An item of ``output`` as its caller gets it, in host memory."""
    return as_data(output, _read(item, carrier))


def _read(value: m.Value, carrier: TensorCarrier) -> Any:
    match value:
        case m.Array() | m.TensorRef():
            tensor = carrier.take(value).cpu()
            has_numpy = tensor.dtype != bfloat16  # which numpy does not know
            return (tensor if has_numpy else tensor.float()).numpy().copy()  # the caller's own
        case m.Blob():
            return value.data
        case list():
            return [_read(one, carrier) for one in value]
        case m.Named(fields=fields):
            return Fields({name: _read(one, carrier) for name, one in fields.items()})
        case _:
            return value
