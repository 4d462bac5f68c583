"""How a server leaves: for what reason, how long it waits for those it still answers, and when no longer."""

from __future__ import annotations

import asyncio
import contextlib
import time

from walkserve import messages as m
from walkserve.http.callers import CONDUCTOR, Caller, Post
from walkserve.http.run import Server
from walkserve.supervisor.progress import say

FINISH_S = 1.0
"""How long responses have to end when nothing more is computed for them; then connections are cut."""


class Leaving:
    """Begins with a signal, without a conductor, or for a reason that somebody else gives.

    Args:
        drain_timeout_s: How long requests have to finish after the first signal; then they are failed.
    """

    def __init__(self, caller: Caller, mailbox: Post, drain_timeout_s: float) -> None:
        self.has_begun = asyncio.Event()
        self.exit_code = 0
        self._caller = caller
        self._mailbox = mailbox
        self._drain_timeout_s = drain_timeout_s
        self._hurry = asyncio.Event()
        """Set when nothing more comes that would be worth waiting for."""
        self._drain_until = 0.0
        """By the clock of ``time.monotonic``; 0 until somebody has signalled."""

    def begin(self, why: str = "") -> None:
        """The first reason that nobody asked for is told, and makes the exit code 1."""
        if why and not self.has_begun.is_set():
            self.exit_code = 1
            say(why)
        self.has_begun.set()

    # --- reasons --------------------------------------------------------------------------------------

    def signalled(self) -> None:
        """The first signal drains, if there is anything to finish; the second stops."""
        if self._drain_until or self.has_begun.is_set():
            self._halt()
            return
        self._drain_until = time.monotonic() + self._drain_timeout_s
        if self._caller.open_calls:
            say("draining: running requests are finished, no new ones taken; once more to stop at once")
            self._mailbox.send(CONDUCTOR, [m.Drain()])
            asyncio.get_running_loop().call_later(self._drain_timeout_s, self._halt)
        else:
            self.begin()

    def _halt(self) -> None:
        """Wait for no request any more, and for the conductor only to fail them."""
        self._hurry.set()
        if not self.has_begun.is_set():
            self._mailbox.send(CONDUCTOR, [m.Halt()])
            asyncio.get_running_loop().call_later(FINISH_S, self.begin)

    async def conductor_ended(self, code: int, how: str) -> None:
        """Without a conductor nothing can be served: everybody is told, and the server ends."""
        if code == 0:  # it has said why, and that may still be on its way
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.has_begun.wait(), FINISH_S)
                return
        self._mailbox.forget(CONDUCTOR)
        why = f"the conductor {how}; the server stops"
        self.begin(why)
        self._caller.conductor_died(why)
        self._hurry.set()

    # --- waiting --------------------------------------------------------------------------------------

    async def end_serving(self, server: Server, serving: asyncio.Task[None]) -> None:
        """Let the responses under way come to their end, as long as there is hope, and cut the others."""
        server.drain()
        # what the workers said last may still be on its way
        await asyncio.wait((serving,), timeout=FINISH_S)
        unanswered = self._caller.open_calls  # that no conductor has heard of, or one that hears nothing more
        self._caller.conductor_died("the server stops")
        if unanswered:  # now they are to be told
            await asyncio.wait((serving,), timeout=FINISH_S)
        if not serving.done() and not self._hurry.is_set() and time.monotonic() < self._drain_until:
            say("waiting for clients that still read their answers; once more to stop at once")
        hurrying = asyncio.create_task(self._hurry.wait())
        await asyncio.wait(
            (serving, hurrying),
            timeout=max(FINISH_S, self._drain_until - time.monotonic()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurrying.cancel()
        server.stop()
        await serving
