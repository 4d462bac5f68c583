"""A server's child processes: started, watched, started again when they are lost, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import logging
import os
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from walkserve import messages as m
from walkserve.config import ServerConfig
from walkserve.http.callers import CONDUCTOR, Post
from walkserve.lifecycle import DEVICE_BROKE
from walkserve.supervisor.pulses import LOOK_S, Pulses
from walkserve.transport.pulse import pulse_path

log = logging.getLogger(__name__)

LEAVE_S = 5.0
"""How long children have to leave after they were told to; then they are killed."""
RESTART_S = (0.0, 1.0, 5.0)
"""How long before a lost worker is started again, by how often it was lost within a minute; then no more."""

Ended = Callable[[int, str], Coroutine[None, None, None]]
"""What is done when a process has ended: it gets the exit code, and in words how it ended."""


@dataclass(slots=True)
class _Worker:
    """One worker, through all processes that are it one after the other."""

    name: str
    incarnation: int = 0
    losses: list[float] = field(default_factory=list)
    """When it was lost within the last minute."""

    @property
    def address(self) -> str:
        """Where its newest incarnation hears."""
        return f"{self.name}.{self.incarnation}"

    def lost(self, now: float) -> float | None:
        """How many seconds until it is started again; None when it has been lost too often."""
        self.losses = [*(at for at in self.losses if now - at < 60), now]
        return RESTART_S[len(self.losses) - 1] if len(self.losses) <= len(RESTART_S) else None


class Children:
    """The conductor and the workers of one server.

    Args:
        path: Of the file that holds ``config``, for them to read.
        leaving: Once it is set, nobody is started or missed any more.
        conductor_ended: Called with the conductor's exit code, and how it ended; it is not started again.
        given_up: Called with a worker that is not started again, and why.
    """

    def __init__(
        self,
        config: ServerConfig,
        path: Path,
        mailbox: Post,
        *,
        leaving: asyncio.Event,
        conductor_ended: Ended,
        given_up: Callable[[str, str], None],
    ) -> None:
        self._config = config
        self._path = path
        self._mailbox = mailbox
        self._leaving = leaving
        self._conductor_ended = conductor_ended
        self._given_up = given_up
        self._workers = {name: _Worker(name) for model in config.models for name in model.workers}
        self._processes: dict[str, Process] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._stuck: set[Process] = set()
        """Killed, because they had stopped moving."""

    # --- starting ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everybody, the conductor first."""
        await self._start(CONDUCTOR, "walkserve.conductor.process", (), self._conductor_ended)
        for worker in self._workers.values():
            await self._start_worker(worker)
        if self._config.stuck_after_s:
            self._keep(asyncio.create_task(self._watch_pulses(self._config.stuck_after_s)))

    async def _start_worker(self, worker: _Worker) -> None:
        arguments = (worker.name, worker.address)
        ended = partial(self._worker_ended, worker)
        await self._start(worker.name, "walkserve.worker.process", arguments, ended)

    async def _start(self, name: str, module: str, arguments: tuple[str, ...], ended: Ended) -> None:
        if self._leaving.is_set():
            return
        threads = str(self._config.threads)
        child = self._processes[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, str(os.getpid()), str(self._path), *arguments),
            env=os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            stdin=DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C is for this process alone
        )
        self._keep(asyncio.create_task(self._watch(child, ended)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Until it is done, or the server ends."""
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    # --- watching ------------------------------------------------------------------------------------

    async def _watch(self, child: Process, ended: Ended) -> None:
        code = await child.wait()
        if not self._leaving.is_set():
            await ended(code, self._how_it_ended(child, code))

    def _how_it_ended(self, child: Process, code: int) -> str:
        if child in self._stuck:
            self._stuck.discard(child)
            return f"was stuck for {self._config.stuck_after_s:g} s and was killed"
        return f"ended with code {code}" + (": its device is broken" if code == DEVICE_BROKE else "")

    async def _watch_pulses(self, stuck_after_s: float) -> None:
        """Kill who has not moved for too long; what follows is what follows when it dies."""
        with contextlib.closing(Pulses(Path(self._config.run_folder), stuck_after_s)) as pulses:
            while True:
                living = {self._address_of(name): child for name, child in self._living()}
                for address in pulses.look(living, time.monotonic()):
                    self._stuck.add(living[address])
                    _kill(living[address])
                await asyncio.sleep(LOOK_S)

    def _address_of(self, name: str) -> str:
        return self._workers[name].address if name in self._workers else name

    async def _worker_ended(self, worker: _Worker, code: int, why: str) -> None:
        self._remove_what_is_left_of(worker.address)
        wait_s = worker.lost(time.monotonic())
        if wait_s is None:
            why += f"; after {len(worker.losses)} times within a minute it is not started again"
            self._given_up(worker.name, why)
            if self._leaving.is_set():
                return
        else:
            log.error("%s %s", worker.name, why)
        self._mailbox.send(CONDUCTOR, [m.WorkerLost(worker.name, worker.address, why)])
        if wait_s is not None:
            await asyncio.sleep(wait_s)
            worker.incarnation += 1
            await self._start_worker(worker)

    def _remove_what_is_left_of(self, address: str) -> None:
        """An incarnation that was killed could not take its socket and its shared memory with it."""
        self._mailbox.forget(address)
        folder = Path(self._config.run_folder)
        for path in (
            folder / address,
            pulse_path(folder, address),
            *folder.glob(f"{glob.escape(address)}.*.arena"),
        ):
            path.unlink(missing_ok=True)

    # --- ending --------------------------------------------------------------------------------------

    async def end(self, models: tuple[m.ModelInfo, ...]) -> None:
        """Who works is told to leave and has time for it; who still loads has nothing to put away.

        Args:
            models: What the conductor has last said of them; empty if it has said nothing.
        """
        for task in list(self._watchers):  # nobody is started any more
            task.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        working = {worker.address for model in models for worker in model.workers if worker.pid}
        for name, child in self._living():
            if name == CONDUCTOR and models:
                self._mailbox.send(CONDUCTOR, [m.Halt()])
            elif name in self._workers and self._workers[name].address in working:
                # also told by the conductor, if it lives
                self._mailbox.send(self._workers[name].address, [m.StopWorker()])
            else:
                _kill(child)
        leaving = [asyncio.create_task(child.wait()) for child in self._processes.values()]
        await asyncio.wait(leaving, timeout=LEAVE_S)
        for name, child in self._living():
            log.warning("%s did not leave; killed", name)
            _kill(child)
        await asyncio.gather(*leaving)

    def _living(self) -> list[tuple[str, Process]]:
        return [(name, child) for name, child in self._processes.items() if child.returncode is None]


def _kill(child: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()
