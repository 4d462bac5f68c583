"""A request in each state of its life, held there, proved to be there, and left: what it held is given back.

The server is otherwise quiet, so that its counts are about these requests.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx
from tests.soak.asks import OVERCOMMIT, trial_fields
from tests.soak.standing import ends_counted, gauge
from tests.soak.wire import connection, drop, websocket

State = Literal["uploading", "preparing", "waiting", "prefill", "loop", "writing"]
Door = Literal["whole", "ndjson", "sse", "socket cancel", "socket reset"]
STATES: tuple[State, ...] = ("uploading", "preparing", "waiting", "prefill", "loop", "writing")
DOORS: tuple[Door, ...] = ("whole", "ndjson", "sse", "socket cancel", "socket reset")
ACCEPT = {"whole": "text/plain", "ndjson": "application/x-ndjson", "sse": "text/event-stream"}
SOON_S = 1.0
"""Within which everything has to be given back, besides what a batch that has begun still takes."""
BATCH_S = 0.3
"""The longest batch of these requests: nobody interrupts one."""
REACH_S = 20.0
HOG: dict[str, Any] = trial_fields("a", ["words"], max_tokens=300, turn_ms=20, seed=1)
"""It needs nearly the whole pool, and runs for seconds."""
OF_STATE: dict[State, dict[str, Any]] = {
    "uploading": trial_fields("never sent", ["words"]),
    "preparing": trial_fields("a", ["words"], prepare_ms=300),
    "waiting": trial_fields("a", ["words"], max_tokens=40),
    "prefill": trial_fields("once more " * 24, ["words"], read_ms=300, max_tokens=40),
    "loop": trial_fields("a", ["words"], turn_ms=50, max_tokens=250, again=40),
    # 1 MB for each word, 24 of them: far more than the sockets hold, less than gets a slow reader cut
    "writing": trial_fields("a", ["marks"], width=250_000, max_tokens=24, seed=3),
}


@dataclass(frozen=True)
class Held:
    """One that was held and left.

    Args:
        proof: What the server said of it while it was held.
        back_s: How long it took until nothing was held any more.
    """

    state: State
    door: Door
    proof: Now
    back_s: float


class NotHeld(AssertionError):
    """A request never came to the state it was to be left in, or left something behind."""


def cells(*, every_door: bool) -> list[tuple[State, Door]]:
    """Every state by every door, or each by one of them, in turn."""
    if not every_door:
        return [(state, DOORS[n % len(DOORS)]) for n, state in enumerate(STATES[:-1])] + [("writing", "sse")]
    # marks are no plain text, so there is no whole answer of them
    return [(state, door) for state in STATES for door in DOORS if (state, door) != ("writing", "whole")]


async def hold_and_leave(url: str, state: State, door: Door) -> Held:
    """Bring a request to a state, prove it, leave, and see that everything is given back.

    Raises:
        NotHeld: It was not in that state, or something is held afterwards.
    """
    async with httpx.AsyncClient(base_url=url, timeout=30) as asking, AsyncExitStack() as stack:
        before = await _now(asking)
        if state == "waiting":
            for _ in range(OVERCOMMIT):
                await stack.enter_async_context(_asked(url, HOG, "whole"))
            await _until(asking, lambda now: now.running == OVERCOMMIT, "those that have the whole pool")
        leave = await stack.enter_async_context(_asked(url, OF_STATE[state], door, upto=_upto(state)))
        name = f"{state} by {door}"
        proof = await _until(asking, lambda now: PROOF[state](now.since(before)), name)
        left = time.monotonic()
        await leave()
        others = OVERCOMMIT if state == "waiting" else 0
        await _until(asking, lambda now: now.holds(others), f"{name}, left", SOON_S + BATCH_S)
        back_s = time.monotonic() - left
        await stack.aclose()
        after = await _until(asking, lambda now: now.holds(0), "nothing is held", SOON_S + BATCH_S)
        ended = after.since(before)
        if (ended.done + ended.cancelled, ended.failed) != (others + (state != "uploading"), 0):
            raise NotHeld(f"{name}: it has not had one end: {ended}")
    return Held(state, door, proof.since(before), back_s)


# --- what the server says --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Now:
    """The server's counts.

    Args:
        first: Requests of which something of an output has come.
    """

    open: int
    running: int
    waiting: int
    reserved: int
    first: int
    done: int
    failed: int
    cancelled: int

    def since(self, before: Now) -> Now:
        """With those counts that only grow counted from ``before``."""
        return replace(
            self,
            **{name: getattr(self, name) - getattr(before, name) for name in ("first", *OUTCOMES)},
        )

    def holds(self, requests: int) -> bool:
        """Whether so many requests run, none waits, and pages are held for no others."""
        return (self.open, self.running, self.waiting, self.reserved > 0) == (
            requests,
            requests,
            0,
            requests > 0,
        )


OUTCOMES = ("done", "failed", "cancelled")
PROOF: dict[State, Callable[[Now], bool]] = {
    "uploading": lambda now: now.holds(0),  # it is no request yet
    "preparing": lambda now: now.open == 1 and not (now.running or now.waiting or now.reserved),
    "waiting": lambda now: (now.open, now.running, now.waiting) == (OVERCOMMIT + 1, OVERCOMMIT, 1),
    "prefill": lambda now: now.holds(1) and now.first == 0,
    "loop": lambda now: now.holds(1) and now.first == 1,
    # all is made, and its client has read nothing: what the sockets do not take waits in the HTTP process
    "writing": lambda now: now.holds(0) and now.done == 1,
}


async def _now(asking: httpx.AsyncClient) -> Now:
    state = (await asking.get("/v1/server")).json()
    ends, first = await asyncio.gather(
        asyncio.to_thread(ends_counted, str(asking.base_url)),
        asyncio.to_thread(gauge, str(asking.base_url), "walkserve_time_to_first_output_seconds_count"),
    )
    workers = [worker for model in state["models"] for worker in model["workers"]]
    return Now(
        open=state["open_requests"],
        running=sum(model["running"] for model in state["models"]),
        waiting=sum(model["waiting"] for model in state["models"]),
        reserved=sum(pool["reserved"] for worker in workers for pool in worker["pools"].values()),
        first=int(first),
        **{how: ends.get(how, 0) for how in OUTCOMES},
    )


async def _until(
    asking: httpx.AsyncClient, wanted: Callable[[Now], bool], what: str, within_s: float = REACH_S
) -> Now:
    deadline = time.monotonic() + within_s
    while not wanted(now := await _now(asking)):
        if time.monotonic() > deadline:
            raise NotHeld(f"{what}: not within {within_s:g} s; the server says {now}")
        await asyncio.sleep(0.01)
    return now


# --- clients ---------------------------------------------------------------------------------------------


def _upto(state: State) -> float:
    return 0.5 if state == "uploading" else 1.0


@asynccontextmanager
async def _asked(
    url: str, fields: dict[str, Any], door: Door, *, upto: float = 1.0
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A request that is sent, and read no further than its socket does by itself; how its client leaves.

    Args:
        upto: How much of it is sent: of a socket's, all but the end of its text.
    """
    if door in ACCEPT:
        async with connection(url, is_slow=True) as client:
            await client.send("/v1/generate", fields, accept=ACCEPT[door], upto=upto)

            async def leave() -> None:
                client.leave("reset" if door == "sse" else "close")

            yield leave
        return
    async with websocket(url, is_slow=True) as opened:
        open_text = {"text_open": True} if upto < 1 else {}
        await opened.send(json.dumps({"type": "generate", "id": "a", **fields, **open_text}))

        async def leave_socket() -> None:
            if door == "socket cancel":
                await opened.send(json.dumps({"type": "cancel", "id": "a"}))
            else:
                drop(opened)

        yield leave_socket
