"""The soak: one server of two families, asked for everything at once, while clients leave and workers die."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.soak.asks import ORPHEUS, OVERCOMMIT, POOL_TOKENS, TRIAL, Ask, Family, good_asks, plan
from tests.soak.clients import SharedSocket, ask_once, shared_socket
from tests.soak.judge import DOWN, Outage, Verdict, check_counts, check_memory, judge
from tests.soak.seen import Seen
from tests.soak.standing import Standing, ends_counted, gauge, look, losses_counted
from tests.soak.states import Held, cells, hold_and_leave

SOCKETS = 3
"""Shared by those requests that need none of their own; 32 may be open on each."""
SETTLE_S = 10.0
GROWTH = 1.5
"""By how much a process may grow: what was freed stays with its allocator."""
SERVE = (
    *(ORPHEUS, TRIAL, "--port", "0", "--deterministic"),
    *("--cache-tokens", str(POOL_TOKENS), "--overcommit", str(OVERCOMMIT)),
)


@dataclass(frozen=True)
class Size:
    """How long a soak is.

    Args:
        requests: Of the storm.
        in_flight: How many are kept open at once.
        kills: Which worker is killed, by which share of the requests that have ended.
        every_door: Whether each state is left by each door, or by one of them.
    """

    requests: int = 500
    in_flight: int = 40
    seed: int = 1
    kills: tuple[tuple[float, str, Family], ...] = (
        (0.25, "trial.rank0", "trial"),
        (0.6, "orpheus-toy.host", "orpheus"),
    )
    every_door: bool = True


@dataclass
class Soaked:
    """All that was seen."""

    size: Size
    verdict: Verdict = field(default_factory=Verdict)
    held: list[Held] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    refused_while_down: int = 0
    peak: Counter[str] = field(default_factory=Counter)
    busy_samples: int = 0
    """How often the storm was looked at while requests waited and ran in both families."""
    seconds: dict[str, float] = field(default_factory=dict)
    before: Standing | None = None
    after: Standing | None = None
    ended: dict[str, int] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    moves: int = 0
    """Caches that moved to host memory or back; those of a worker that was killed are not counted."""

    @property
    def wrong(self) -> list[str]:
        return self.verdict.wrong


class Soak:
    """One run against a server that is ready."""

    def __init__(self, url: str, temporary: Path, size: Size) -> None:
        self._url = url
        self._temporary = temporary
        self._size = size
        self._is_back = asyncio.Event()  # every model is ready, as far as those know who wait for it
        self._flying = 0
        self._seen: list[Seen] = []
        self._refused: list[Seen] = []
        self.soaked = Soaked(size)

    async def run(self) -> Soaked:
        """All of it; ``wrong`` of what is returned is empty if everything held."""
        alone = await self._timed("alone", self._ask_alone())
        await self._timed("together", self._check(alone))  # also: threads and buffers that come with use
        await asyncio.to_thread(ends_counted, self._url)  # asking workers connects to them
        before = self.soaked.before = await asyncio.to_thread(look, self._url, self._temporary)
        await self._timed("states", self._hold_states())
        await self._timed("storm", self._storm(alone))
        self.soaked.seconds["settling"], _ = await self._settle()
        await self._check(alone)
        _, self.soaked.after = await self._settle()
        self.soaked.wrong.extend(self.soaked.after.differs(before, growth=GROWTH))
        return self.soaked

    async def _timed(self, what: str, work: Any) -> Any:
        began = time.monotonic()
        result = await work
        self.soaked.seconds[what] = time.monotonic() - began
        return result

    async def _ask_alone(self) -> dict[str, Any]:
        """Every good request on the quiet server."""
        given = {}
        for ask in good_asks():
            seen = await ask_once(self._url, ask)
            assert seen.end == "done", f"{ask.name}, alone: {seen}"
            given[ask.name] = seen.given
        return given

    async def _check(self, alone: dict[str, Any]) -> None:
        """Every good request at once, and each as it is alone."""
        for seen in await asyncio.gather(*(ask_once(self._url, ask) for ask in good_asks())):
            if seen.end != "done" or seen.given != alone[seen.ask.name]:
                self.soaked.wrong.append(
                    f"{seen.ask.name}, all of a kind at once: it is not what it is alone"
                )

    async def _hold_states(self) -> None:
        for state, door in cells(every_door=self._size.every_door):
            self.soaked.held.append(await hold_and_leave(self._url, state, door))

    # --- the storm -----------------------------------------------------------------------------------

    async def _storm(self, alone: dict[str, Any]) -> None:
        url = self._url
        ended = await asyncio.to_thread(ends_counted, url)
        losses = await asyncio.to_thread(losses_counted, url)
        forgotten: list[str] = []
        planned = plan(self._size.requests, self._size.seed)
        slots = asyncio.Semaphore(self._size.in_flight)
        asking = httpx.AsyncClient(base_url=url, timeout=30)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(asking)
            shared = [await stack.enter_async_context(shared_socket(url)) for _ in range(SOCKETS)]
            looking = asyncio.create_task(self._watch())
            killing = asyncio.create_task(self._kill())

            async def one(n: int, ask: Ask) -> None:
                async with slots:
                    self._in_flight(1)
                    seen = await self._ask(ask, shared[n % SOCKETS])
                    self._in_flight(-1)
                self._seen.append(seen)
                forgotten.append(await check_memory(asking, seen))

            try:
                async with asyncio.TaskGroup() as group:
                    for n, ask in enumerate(planned):
                        group.create_task(one(n, ask))
                await killing
            finally:
                looking.cancel()
                killing.cancel()
        await self._settle()
        self.soaked.refused_while_down = len(self._refused)
        after = await asyncio.to_thread(ends_counted, url)
        self.soaked.ended = {how: after[how] - ended.get(how, 0) for how in after}
        self.soaked.moves = round(await asyncio.to_thread(gauge, url, "walkserve_cache_moves_total"))
        lost = await asyncio.to_thread(losses_counted, url)
        self.soaked.losses = {name: lost[name] - losses.get(name, 0) for name in lost}
        verdict = judge(self._seen, alone, self.soaked.outages)
        verdict.wrong += self.soaked.wrong
        verdict.wrong += filter(None, forgotten)
        verdict.wrong += check_counts([*self._seen, *self._refused], self.soaked.ended)
        killed = Counter(name for _, name, _ in self._size.kills)
        if Counter(self.soaked.losses) != killed:
            verdict.wrong.append(f"killed: {dict(killed)}, counted: {self.soaked.losses}")
        self.soaked.verdict = verdict

    def _in_flight(self, more: int) -> None:
        self._flying += more
        self.soaked.peak["in flight"] = max(self.soaked.peak["in flight"], self._flying)

    async def _ask(self, ask: Ask, shared: SharedSocket) -> Seen:
        """Its end. While its model is not ready it is refused, and asks again."""
        while True:
            seen = await ask_once(self._url, ask, shared)
            if seen.code != DOWN:
                return seen
            self._refused.append(seen)
            await self._is_back.wait()

    async def _kill(self) -> None:
        for share, worker, family in self._size.kills:
            while len(self._seen) < share * self._size.requests:
                await asyncio.sleep(0.01)
            async with httpx.AsyncClient(base_url=self._url, timeout=30) as asking:
                state = (await asking.get("/v1/server")).json()
                workers = [one for model in state["models"] for one in model["workers"]]
                pid = next(one["pid"] for one in workers if one["name"] == worker)
                self._is_back.clear()
                os.kill(pid, signal.SIGKILL)
                killed = time.monotonic()
                noticed = await _wait_ready(asking, False)
                ready = await _wait_ready(asking, True)
                self._is_back.set()
            self.soaked.outages.append(Outage(worker, family, killed, noticed, ready))

    async def _watch(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=30) as asking:
            while True:
                state = (await asking.get("/v1/server")).json()
                models = state["models"]
                peak = {
                    "open": state["open_requests"],
                    "running": sum(model["running"] for model in models),
                    "waiting": sum(model["waiting"] for model in models),
                }
                for name, value in peak.items():
                    self.soaked.peak[name] = max(self.soaked.peak[name], value)
                self.soaked.busy_samples += all(model["running"] and model["waiting"] for model in models)
                await asyncio.sleep(0.05)

    async def _settle(self) -> tuple[float, Standing]:
        """Wait until nothing is held; how long that took, and how the server stands then.

        It need not come about. Whoever looks is held too, by a connection that the server closes in its time,
        so it looks again where something differs.
        """
        began = time.monotonic()
        while True:
            standing = await asyncio.to_thread(look, self._url, self._temporary)
            before = self.soaked.before
            is_settled = standing.is_idle and before and not standing.differs(before, growth=GROWTH)
            if is_settled or time.monotonic() - began > SETTLE_S:
                return time.monotonic() - began, standing
            await asyncio.sleep(0.1)


async def _wait_ready(asking: httpx.AsyncClient, wanted: bool) -> float:
    while ((await asking.get("/ready")).status_code == 200) is not wanted:
        await asyncio.sleep(0.02)
    return time.monotonic()
