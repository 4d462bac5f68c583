"""Streams between tracks, and the chunk policies that cut what has arrived into helpings.

Indices are absolute: item 0 is the first that was ever written. A policy is a pure function of three
numbers (how many items were handed over as fresh, how many have arrived, whether the end is known), so
every policy is tested without a runtime.

      handed             arrived
    0 ──┼──────────────────┼────────▶ items
        └── fresh ──┘
    └ context ┘  may reach back behind ``handed``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from walkserve_sdk.errors import DeclarationError

IDLE_S = 60.0
"""How long a client that writes a stream may be silent, where its family does not say."""


@dataclass(frozen=True)
class Cut:
    """Items ``start:stop`` are the next helping; the last ``fresh`` of them were never handed over before."""

    start: int
    stop: int
    fresh: int
    last: bool


@dataclass(frozen=True)
class Helping:
    """What a reading node takes of a stream in one turn.

    Args:
        items: The values, oldest first; context before fresh ones.
        start: Absolute index of ``items[0]``.
        fresh: How many, at the end, are new. May be 0 in the last helping.
        last: True exactly once per stream, also when the stream was empty: flush what you hold back.
    """

    items: Sequence[Any]
    start: int
    fresh: int
    last: bool

    @property
    def new(self) -> Sequence[Any]:
        """The fresh items alone."""
        return self.items[len(self.items) - self.fresh :]


class ChunkPolicy(Protocol):
    """How much of a stream is one helping."""

    def cut(self, handed: int, arrived: int, ended: bool) -> Cut | None:
        """The next helping, or None while more must arrive. Never called again after a cut with ``last``."""

    def oldest(self, handed: int) -> int:
        """The first item a later helping may still contain; everything before it may be forgotten."""


def _positive(policy: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise DeclarationError(f"{policy}: {name}={number}, but it must be at least 1")


@dataclass(frozen=True)
class Each:
    """One item a helping."""

    def cut(self, handed: int, arrived: int, ended: bool) -> Cut | None:
        if arrived > handed:
            return Cut(handed, handed + 1, 1, last=ended and handed + 1 == arrived)
        return Cut(handed, handed, 0, last=True) if ended else None

    def oldest(self, handed: int) -> int:
        return handed


@dataclass(frozen=True)
class Fixed:
    """Whole multiples of ``n`` that have arrived, up to ``most`` items; the rest with the end.

    Small helpings while the reader keeps up, large ones when it is behind: this, on a decoder that keeps
    its state, is how codecs are fed.

    Args:
        n: Items of one unit, a codec frame for instance.
        most: The largest helping; a multiple of ``n``; by default one unit.
    """

    n: int
    most: int | None = None

    def __post_init__(self) -> None:
        _positive("Fixed", n=self.n, most=self.limit)
        if self.limit % self.n:
            raise DeclarationError(f"Fixed: most={self.most} is no multiple of n={self.n}")

    @property
    def limit(self) -> int:
        return self.n if self.most is None else self.most

    def cut(self, handed: int, arrived: int, ended: bool) -> Cut | None:
        waiting = arrived - handed
        if ended and waiting <= self.limit:
            return Cut(handed, arrived, waiting, last=True)
        whole = min(waiting - waiting % self.n, self.limit)
        return Cut(handed, handed + whole, whole, last=False) if whole else None

    def oldest(self, handed: int) -> int:
        return handed


@dataclass(frozen=True)
class SlidingWindow:
    """The last ``size`` items, each time ``step`` more have arrived; for decoders without a state.

    The first window waits for ``size`` items, all of them fresh; what remains at the end is delivered in
    a last window with as much context as there is.
    """

    size: int
    step: int

    def __post_init__(self) -> None:
        _positive("SlidingWindow", size=self.size, step=self.step)
        if self.step > self.size:
            raise DeclarationError(f"SlidingWindow: step={self.step} skips items of a window of {self.size}")

    def cut(self, handed: int, arrived: int, ended: bool) -> Cut | None:
        wanted = self.step if handed else self.size
        fresh = min(wanted, arrived - handed)
        last = ended and handed + fresh == arrived
        if fresh < wanted and not last:
            return None
        stop = handed + fresh
        return Cut(max(0, stop - self.size), stop, fresh, last)

    def oldest(self, handed: int) -> int:
        return max(0, handed - self.size)


@dataclass(frozen=True)
class LeftContext:
    """``n`` fresh items behind up to ``context`` that were handed over before."""

    n: int
    context: int

    def __post_init__(self) -> None:
        _positive("LeftContext", n=self.n, context=self.context)

    def cut(self, handed: int, arrived: int, ended: bool) -> Cut | None:
        fresh = min(self.n, arrived - handed)
        last = ended and handed + fresh == arrived
        if fresh < self.n and not last:
            return None
        return Cut(self.oldest(handed), handed + fresh, fresh, last)

    def oldest(self, handed: int) -> int:
        return max(0, handed - self.context)


class Stream:
    """Ordered hand-over of values from one track to one other.

    Args:
        policy: How much is one helping.
        limit: Items waiting (written, not yet handed over) at which the writer is no longer *started*; a
            started write always succeeds whole. A guard of memory, not a throttle.
        by: ``"client"`` for a stream that the client writes, while the request runs, and ends.
        idle_s: Of a client's stream: so many seconds without an item, while all of the request waits for
            one, fail it. By default a minute; ``math.inf`` waits for as long as the request may take.
    """

    def __init__(
        self,
        policy: ChunkPolicy | None = None,
        *,
        limit: int = 8192,
        by: Literal["track", "client"] = "track",
        idle_s: float | None = None,
    ) -> None:
        _positive("Stream", limit=limit)
        if by not in ("track", "client"):
            raise DeclarationError(f"Stream: by={by!r}; a stream is written by a 'track' or by the 'client'")
        if idle_s is not None and by != "client":
            raise DeclarationError("Stream: idle_s says how long a client may be silent; write by='client'")
        if idle_s is not None and not idle_s > 0:
            raise DeclarationError(f"Stream: idle_s={idle_s}; give a number of seconds above 0, or math.inf")
        if isinstance(policy, type) or not (policy is None or hasattr(policy, "cut")):
            raise DeclarationError(
                f"Stream({policy!r}): it is no chunk policy; give one, Fixed(7) for instance"
            )
        self.policy: ChunkPolicy = policy if policy is not None else Each()
        if self.policy.cut(0, limit, ended=False) is None:
            raise DeclarationError(
                f"Stream: limit={limit} stops the writer before {self.policy!r} has its first helping; "
                "raise it"
            )
        self.limit = limit
        self.by = by
        self.idle_s = IDLE_S if idle_s is None else idle_s
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __repr__(self) -> str:
        return f"Stream({self.name or self.policy!r})"
