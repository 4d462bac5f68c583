"""Running one request, in one call or several, and telling its client what comes of it as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

from walkserve.delivery import Done, Failed
from walkserve.http.callers import Caller
from walkserve.http.calls import Call
from walkserve.http.generate_events import Telling
from walkserve.http.problems import Faulted
from walkserve.http.requests import Record
from walkserve.messages import Fault
from walkserve_sdk import Request
from walkserve_sdk.errors import DeadlineExceeded
from walkserve_sdk.events import Event

Next = Request | Exception | None
"""What is to be called next: None is the end, an error fails what is left."""


class Calls(Protocol):
    """All that is to be called, one after the other; as ``asyncio.Queue`` has it."""

    async def get(self) -> Next: ...

    def get_nowait(self) -> Next: ...

    def empty(self) -> bool: ...


Tell = Callable[[Sequence[Event]], Awaitable[None]]
"""Sends events to a client; returns when it can take more."""


class CallsOf(Calls):
    """The calls of a request that has wholly come, each made up when its turn has come."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests

    async def get(self) -> Next:
        return self.get_nowait()

    def get_nowait(self) -> Next:
        try:
            return next(self._requests, None)
        except Exception as error:
            return error

    def empty(self) -> bool:
        return False


class Run:
    """One request that runs.

    A call is made when the one before it has begun to give, so that nobody waits between two sentences;
    there is never more than one ahead.

    Args:
        tell: Gets all that has come since it was called last.
        on_cut: As ``Caller.submit`` has it.
    """

    def __init__(
        self,
        caller: Caller,
        telling: Telling,
        calls: Calls,
        tell: Tell,
        *,
        on_cut: Callable[[], None] = lambda: None,
    ) -> None:
        self._caller = caller
        self._telling = telling
        self._calls = calls
        self._tell = tell
        self._on_cut = on_cut
        self._next: Call | Exception | None = None
        self._is_last = False
        self._followed: Record | None = None
        """Of the request, while further calls may be made for it."""

    async def to_its_end(self, *, tells_start: bool = False) -> None:
        """Make all calls and tell what they give, up to ``Done``. Cancelling this cancels what runs.

        Args:
            tells_start: Whether ``Started`` is told as soon as the first call is made.

        Raises:
            WalkserveError: It failed; what came before has been told.
        """
        events: list[Event] = []
        with ExitStack() as open_calls:
            while (call := await self._take_next(open_calls)) is not None:
                if tells_start:
                    await self._tell([self._telling.started])
                    tells_start = False
                is_done = False
                while not is_done:
                    for event in await call.take():
                        if isinstance(event, Failed):
                            if events:
                                await self._tell(events)
                            raise Faulted(event.fault)
                        is_done = isinstance(event, Done)
                        events += self._telling.pieces(event)
                        self._look_ahead(open_calls)
                    if events and not (is_done and self._is_last):
                        await self._tell(events)
                        events = []
        await self._tell([*events, self._telling.done()])

    async def _take_next(self, open_calls: ExitStack) -> Call | None:
        if self._next is None and not self._is_last:
            self._heard(await self._what_follows(), open_calls)
        call, self._next = self._next, None
        if isinstance(call, Exception):
            raise call
        return call

    async def _what_follows(self) -> Next:
        """Wait for what is to be called next, as long as the request may take: no call of it may be open."""
        timeout_s, record = self._telling.terms.timeout_s, self._followed
        left_s = None if timeout_s is None or record is None else timeout_s - record.age_s
        try:
            async with asyncio.timeout(left_s):
                return await self._calls.get()
        except TimeoutError:
            late = DeadlineExceeded(f"the request did not end within {timeout_s:g} s")
            assert record is not None
            record.fault = Fault.of(late)
            raise late from None

    def _look_ahead(self, open_calls: ExitStack) -> None:
        if self._next is None and not self._is_last and not self._calls.empty():
            self._heard(self._calls.get_nowait(), open_calls)

    def _heard(self, request: Next, open_calls: ExitStack) -> None:
        if request is None:
            self._is_last = True
            self._all_started()
        elif isinstance(request, Exception):
            self._next = request
        else:
            started = self._telling.started
            call = self._caller.submit(started.model, request, self._on_cut, terms=self._telling.terms)
            if self._followed is None:
                self._followed = call.record
                self._followed.more_follow()
                open_calls.callback(self._all_started)
            self._next = open_calls.enter_context(call)

    def _all_started(self) -> None:
        if self._followed is not None:
            self._followed.all_started()
            self._followed = None
