"""What the conductor and the workers tell of each request's time, kept until somebody asks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress

from walkserve.messages import Profiled, Traced
from walkserve.profiles.report import Notes

KEEP = 32
"""Requests whose profiles are kept; each may take some megabytes."""
SETTLE_S = 1.0
"""How long after a request's end what is told of it may be on its way."""


class Profiles:
    """The newest requests' profiles, by id.

    Args:
        keep: Of how many requests.
    """

    def __init__(self, keep: int = KEEP) -> None:
        self._keep = keep
        self._requests: OrderedDict[str, dict[int, Notes]] = OrderedDict()  # -> by the tags of its calls
        self._by_tag: dict[int, Notes] = {}
        self._changed = asyncio.Event()

    def start(self, id: str, tag: int) -> None:
        """A call of this request starts."""
        self._by_tag[tag] = self._requests.setdefault(id, {})[tag] = Notes()
        if len(self._requests) > self._keep:
            for old in self._requests.popitem(last=False)[1]:
                del self._by_tag[old]

    def hear(self, message: Traced | Profiled) -> None:
        """Something is told of a call."""
        notes = self._by_tag.get(message.tag)
        if notes is None:
            return  # forgotten
        if isinstance(message, Traced):
            notes.traced = message
        else:
            notes.parts[message.address] = message
        self._ring()

    def lost(self, address: str) -> None:
        """This worker will tell nothing more."""
        for notes in self._by_tag.values():
            notes.lost.add(address)
        self._ring()

    async def of(self, id: str, *, wait: bool) -> list[Notes] | None:
        """What is known of a request's calls; None if nothing is kept of it.

        Args:
            wait: It has ended: what is still on its way is waited for, for a moment.
        """
        calls = self._requests.get(id)
        if calls is None:
            return None
        if wait:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    while not all(notes.is_settled for notes in calls.values()):
                        await self._changed.wait()
        return list(calls.values())

    def _ring(self) -> None:
        rung, self._changed = self._changed, asyncio.Event()
        rung.set()
