"""What every way of moving messages and tensors has to do, and how it fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from walkserve.messages import Array, Message, TensorRef
from walkserve_sdk.errors import Unavailable, WalkserveError

if TYPE_CHECKING:
    from torch import Tensor

INLINE_LIMIT = 16 * 1024
"""Bytes below which a tensor rides inside its message: copying it twice is cheaper than a slot to free."""


class Unsendable(WalkserveError):
    """``messages`` hold what cannot be written down; the others of the same call were sent."""

    def __init__(self, to: str, messages: Sequence[Message], why: str) -> None:
        kinds = ", ".join(type(message).__name__ for message in messages)
        super().__init__(f"{kinds} to {to!r} cannot be sent: {why}")
        self.to = to
        self.messages = tuple(messages)


class TensorGone(Unavailable):
    """The tensor behind a reference is not there any more: its owner has died or was told to free it."""


class OutOfSharedMemory(Unavailable):
    """The machine has no room for another segment; nothing was taken."""


class Posting(Protocol):
    """The sending half of a mailbox, and its life. A context manager; leaving it closes it.

    One thread uses a mailbox; only ``wake`` may be called from others, and from signal handlers.
    """

    address: str
    dropped: int  # messages refused so far, because their reader took nothing for too long

    def send(self, to: str, messages: Sequence[Message]) -> None:
        """Send ``messages`` as one frame; frames between two mailboxes arrive in order.

        Returns at once whatever ``to`` does. What is sent to a mailbox that is not open yet
        waits for it; what a reader that takes nothing leaves over is dropped and counted.

        Raises:
            Unsendable: If some cannot be encoded; the others are on their way.
        """

    def forget(self, to: str) -> None:
        """Drop what waits for ``to``, which is gone."""

    def wake(self) -> None:
        """Make a ``receive`` that blocks, or the next one, return."""

    def close(self) -> None:
        """Send what can be sent within a short time and give everything back. Twice is harmless."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Mailbox(Posting, Protocol):
    """A named place that others send to, read by a thread that may block."""

    def receive(self, timeout_s: float | None = None) -> list[Message]:
        """Wait for something and return all that is there; ``[]`` after ``timeout_s`` or a ``wake``."""


class AsyncMailbox(Posting, Protocol):
    """The same, read by a coroutine. Cancelling ``receive`` loses nothing."""

    async def receive(self, timeout_s: float | None = None) -> list[Message]:
        """Wait for something and return all that is there; ``[]`` after ``timeout_s`` or a ``wake``."""


class TensorCarrier(Protocol):
    """Takes tensors out of the hands of who made them, and gives them to who reads them.

    Tensors are immutable once put.
    """

    address: str

    def put(self, tensor: Tensor) -> Array | TensorRef:
        """Make ``tensor`` readable by others: inline if it is small, else held until its key is freed."""

    def take(self, value: Array | TensorRef) -> Tensor:
        """The tensor, valid for as long as it is kept, whatever its owner frees.

        Raises:
            TensorGone: If its owner is gone and nothing of it was read before.
        """

    def free(self, keys: Iterable[int]) -> None:
        """Let go of tensors put here. Keys are never used twice, so freeing one twice is harmless."""

    def forget(self, owner: str) -> None:
        """Let go of what is kept for reading from ``owner``, a carrier that is gone."""

    @property
    def held(self) -> int:
        """How many tensors were put here, not inline, and not freed yet."""

    def close(self) -> None:
        """Give everything back, held or not."""
