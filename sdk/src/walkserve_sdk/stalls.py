"""What is told of a request that can only hang: all its Walks wait on its own streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from walkserve_sdk.streams import Stream


@dataclass(frozen=True)
class StreamWait:
    """A call that waits at one end of a stream.

    Args:
        track: Whose Walk it belongs to.
        for_room: It would write, and the stream is full; otherwise it would read, and no helping is there.
    """

    track: str
    stream: str
    for_room: bool

    def __str__(self) -> str:
        return f"{self.track} for {'room' if self.for_room else 'items'} in {self.stream!r}"


def stalled(streams: Mapping[str, Stream], waits: Iterable[StreamWait]) -> str:
    """Who waits where, and what the family's author can do about it."""
    waits = list(dict.fromkeys(waits))
    full = dict.fromkeys(wait.stream for wait in waits if wait.for_room)
    bare = dict.fromkeys(wait.stream for wait in waits if not wait.for_room)
    cures = []
    for name in full:
        limit = streams[name].limit
        if name in bare:
            cures.append(f"raise {name!r}'s limit of {limit}, its policy wants more than that for a helping")
        elif bare:
            others = " and ".join(map(repr, bare))
            cures.append(f"raise {name!r}'s limit of {limit}, or read it without waiting for {others}")
        else:
            cures.append(f"raise {name!r}'s limit of {limit}, or read it")
    told = ", ".join(map(str, waits))
    return f"all of the request's Walks wait on its own streams: {told}; {'; '.join(cures)}"
