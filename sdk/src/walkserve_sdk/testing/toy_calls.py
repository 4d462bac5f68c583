"""One call of a component in the toy runtime: what the fake is given, and what is made of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Protocol

from walkserve_sdk.errors import did_you_mean
from walkserve_sdk.graph import Node
from walkserve_sdk.runtime import Stop
from walkserve_sdk.streams import Helping
from walkserve_sdk.testing.toy_branches import Branch


class RequestFacts(Protocol):
    """Of one request: what its calls may ask for."""

    options: Any
    seed: int
    counts: dict[str, int]


class Origin(Protocol):
    """The Walk that a call belongs to."""

    @property
    def live(self) -> RequestFacts: ...
    @property
    def track(self) -> str: ...
    @property
    def number(self) -> int: ...


class ToyCall:
    """A batch of one row, as plain Python. A fake's method takes it and returns its gives by name.

    Args:
        values: What the node takes, by name; a Helping under its stream's name. None for a value that
            nobody gave, because ``when`` skipped its node.
        helping: The Helping, for a node that reads a stream.
        state: Of this branch, None at first; assign a new one.
        tokens: By how much a call that keeps makes the cache longer: the longest list taken, or 1. Assign
            it where that is wrong.
        turn: Of the innermost loop, from 0.
        row: Index inside a Fan, else None.
    """

    __slots__ = (
        "_branch", "_counted", "_origin", "_stop", "branch", "helping", "row", "state", "tokens", "turn",
        "values",
    )  # fmt: skip

    def __init__(
        self,
        values: dict[str, Any],
        helping: Helping | None,
        branch: Branch,
        name: str,
        turn: int,
        row: int | None,
        origin: Origin,
    ) -> None:
        self.values = values
        self.helping = helping
        self.branch = name
        self.state = branch.state
        self.turn = turn
        self.row = row
        self.tokens: int | None = None
        self._branch = branch
        self._origin = origin
        self._stop: Stop | None = None
        self._counted: dict[str, int] = {}

    @property
    def length(self) -> int:
        return self._branch.length

    @property
    def content(self) -> int:
        return self._branch.content

    @property
    def options(self) -> Any:
        """The request's Options."""
        return self._origin.live.options

    def __getitem__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise KeyError(f"the node takes no {name!r}{did_you_mean(name, self.values)}") from None

    def stop(self, stop: Stop | str, *, keep: bool = False, upstream: bool = False) -> None:
        """End this row's loop: ``call.stop("stop")``, or with a ``Stop``."""
        self._stop = stop if isinstance(stop, Stop) else Stop(stop, keep=keep, upstream=upstream)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter that is reported with the request's end."""
        for counts in (self._origin.live.counts, self._counted):
            counts[name] = counts.get(name, 0) + by

    def key(self, *counters: int | str) -> int:
        """A 63-bit seed, keyed by the request's seed, fan index, track, Walk and ``counters``."""
        origin = self._origin
        path = (origin.live.seed, self.row, origin.track, origin.number, *counters)
        return int.from_bytes(blake2b(repr(path).encode(), digest_size=8).digest()) >> 1


def added_tokens(call: ToyCall) -> int:
    """By how much this call makes its cache longer."""
    if call.tokens is not None:
        return call.tokens
    longest = 1
    for value in call.values.values():
        if isinstance(value, (list, tuple)):
            longest = max(longest, len(value))
    return longest


class Symbols:
    """The fake of a component that was given none: every value is a word that says where it came from."""

    def __init__(self, node: Node) -> None:
        word = (
            f"{node.component.name}.{node.method}({', '.join((*node.takes, *(s.name for s in node.reads)))})"
        )
        self._gives = {name: word if len(node.gives) == 1 else f"{word}.{name}" for name in node.gives}

    def __call__(self, call: ToyCall) -> Mapping[str, Any]:
        return self._gives
