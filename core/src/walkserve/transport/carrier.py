"""Tensors between the processes of one host, through an arena of shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from walkserve.messages import Array, TensorRef
from walkserve.transport.base import INLINE_LIMIT
from walkserve.transport.shm import SEGMENT_BYTES, Arena, ArenaReader
from walkserve.transport.tensors import dtype_name, from_array, read, to_array, write


class ArenaCarrier:
    """A process's own arena, and its view of everybody else's in the same folder. For one thread.

    Args:
        address: The owner named in references, and the name of the arena.
        folder: The server's run folder.
        size_bytes: Of each segment.
        inline_limit: Bytes from which a tensor gets a slot.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        *,
        size_bytes: int = SEGMENT_BYTES,
        inline_limit: int = INLINE_LIMIT,
    ) -> None:
        self.address = address
        self.arena = Arena(folder, address, size_bytes)
        self.reader = ArenaReader(folder)
        self._inline_limit = inline_limit

    def put(self, tensor: Tensor) -> Array | TensorRef:
        """Copy ``tensor`` out, straight into its slot; from a device, this waits for it to be computed.

        Raises:
            OutOfSharedMemory: If it needs a further segment and there is no room for one.
        """
        size = tensor.numel() * tensor.element_size()
        if size < self._inline_limit or size == 0:
            return to_array(tensor)
        slot, view = self.arena.reserve(size)
        try:
            with view:
                write(tensor, view)
        except BaseException:
            self.arena.free(slot.key)
            raise
        return TensorRef(
            owner=self.address,
            key=slot.key,
            segment=slot.segment,
            offset=slot.offset,
            size_bytes=size,
            dtype=dtype_name(tensor.dtype),
            shape=tuple(tensor.shape),
        )

    def take(self, value: Array | TensorRef) -> Tensor:
        """A copy of its own, in host memory."""
        if isinstance(value, Array):
            return from_array(value)
        with self.reader.view(value.segment, value.offset, value.size_bytes) as view:
            return read(view, value.dtype, value.shape)

    def free(self, keys: Iterable[int]) -> None:
        for key in keys:
            self.arena.free(key)

    def forget(self, owner: str) -> None:
        """Let go of the memory of a process that is gone."""
        self.reader.forget(owner)

    @property
    def held(self) -> int:
        return self.arena.held

    def close(self) -> None:
        self.reader.close()
        self.arena.close()
