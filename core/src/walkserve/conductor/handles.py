"""Which tensors of Walks' outcomes a request's tracks can still name: the others are freed while it lives.

A track has a tensor as a handle, and nobody else in the conductor keeps one. So when the last of it is gone
here, no track can pass it on any more. Only a Walk that was given it may not have read it yet; what a Walk
is given is therefore kept until that Walk is over (``TrackLife.given``). Where a message goes to another
thread as it is, the last to drop it may be there: what is dropped waits in a deque, which any thread may
add to.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from weakref import finalize

from walkserve import messages as m
from walkserve.conductor.life import Life


class Handles:
    """Watches over the handles of all requests.

    Args:
        say: Sends a message to an address.
    """

    def __init__(self, say: Callable[[str, m.Message], None]) -> None:
        self._say = say
        self._dropped: deque[tuple[int, str, int]] = deque()

    def watch(self, number: int, values: Iterable[m.Value]) -> None:
        """A track is told of these."""
        for value in values:
            for one in m.references(value):
                # at its exit a process frees all it has anyway
                finalize(one, self._dropped.append, (number, one.owner, one.key)).atexit = False

    def free_dropped(self, lives: Mapping[int, Life]) -> None:
        """Tell their owners of what no track can name. What a request lent is freed with it at the latest."""
        if not self._dropped:
            return
        freed: dict[str, list[int]] = defaultdict(list)
        while self._dropped:
            number, owner, key = self._dropped.popleft()
            life = lives.get(number)
            if life is not None and owner in life.holders:
                freed[owner].append(key)
        for owner, keys in freed.items():
            self._say(owner, m.FreeTensors(keys))
