"""Messages and tensors inside one process: handed over as they are, nothing is copied or encoded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

from walkserve.messages import Array, Message, TensorRef
from walkserve.transport.base import INLINE_LIMIT, TensorGone

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

HIGH_WATER = 10_000

# A frame; None is the bell. SimpleQueue, because it may be put to from a signal handler.
_Queue = SimpleQueue["list[Message] | None"]


class LocalSwitchboard:
    """Where the mailboxes and carriers of one process find each other."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._open: set[str] = set()
        self._closed: set[str] = set()
        self._tensors: dict[str, dict[int, Tensor]] = {}


class LocalMailbox:
    """A mailbox for another thread of this process, or the same one."""

    def __init__(self, address: str, switchboard: LocalSwitchboard, *, high_water: int = HIGH_WATER) -> None:
        if address in switchboard._open:
            raise FileExistsError(f"the mailbox {address!r} is open already")
        self.address = address
        self.dropped = 0
        self._switchboard = switchboard
        self._high_water = high_water
        switchboard._open.add(address)
        switchboard._closed.discard(address)
        self._queue = switchboard._queues.setdefault(address, SimpleQueue())

    def send(self, to: str, messages: Sequence[Message]) -> None:
        if not messages:
            return
        board = self._switchboard
        queue = None
        if to not in board._closed:  # not there yet is not gone: its queue waits for it
            queue = board._queues.setdefault(to, SimpleQueue())
        if queue is None or queue.qsize() >= self._high_water:
            self.dropped += len(messages)
            return
        queue.put(list(messages))

    def forget(self, to: str) -> None:
        if to not in self._switchboard._open:
            self._switchboard._queues.pop(to, None)

    def receive(self, timeout_s: float | None = None) -> list[Message]:
        """See ``Mailbox``."""
        messages: list[Message] = []
        with suppress(Empty):
            frame = self._queue.get(timeout=None if timeout_s is None else max(timeout_s, 0))
            while True:
                messages += frame or ()
                frame = self._queue.get_nowait()
        return messages

    def wake(self) -> None:
        self._queue.put(None)

    def close(self) -> None:
        if self.address in self._switchboard._open:
            self._switchboard._open.discard(self.address)
            self._switchboard._closed.add(self.address)
            self._switchboard._queues.pop(self.address, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalCarrier:
    """Tensors by reference, on the device where they are.

    Small ones in host memory ride inline as they do between processes, so that a client
    frees the same things in both; one on another device does not, its copy would wait for it.
    """

    def __init__(
        self, address: str, switchboard: LocalSwitchboard, *, inline_limit: int = INLINE_LIMIT
    ) -> None:
        self.address = address
        self._inline_limit = inline_limit
        self._switchboard = switchboard
        self._keys = count(1)
        self._tensors: dict[int, Tensor] = {}
        switchboard._tensors[address] = self._tensors

    def put(self, tensor: Tensor) -> Array | TensorRef:
        from walkserve.transport.tensors import dtype_name, to_array

        size = tensor.numel() * tensor.element_size()
        if tensor.device.type == "cpu" and (size < self._inline_limit or size == 0):
            return to_array(tensor)
        key = next(self._keys)
        self._tensors[key] = tensor
        return TensorRef(
            owner=self.address,
            key=key,
            segment="local",
            offset=0,
            size_bytes=size,
            dtype=dtype_name(tensor.dtype),
            shape=tuple(tensor.shape),
        )

    def take(self, value: Array | TensorRef) -> Tensor:
        if isinstance(value, Array):
            from walkserve.transport.tensors import from_array

            return from_array(value)
        try:
            return self._switchboard._tensors[value.owner][value.key]
        except KeyError:
            raise TensorGone(f"tensor {value.key} of {value.owner!r} is not held any more") from None

    def free(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._tensors.pop(key, None)

    def forget(self, owner: str) -> None:
        self._switchboard._tensors.pop(owner, None)

    @property
    def held(self) -> int:
        return len(self._tensors)

    def close(self) -> None:
        self._tensors.clear()
        if self._switchboard._tensors.get(self.address) is self._tensors:
            del self._switchboard._tensors[self.address]
