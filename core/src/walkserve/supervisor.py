"""One server: the HTTP server in this process, the conductor and the workers as children that are watched."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec
import uvloop

from walkserve import messages as m
from walkserve.config import ModelConfig, ServerConfig, worker_threads
from walkserve.errors import SettingError
from walkserve.http.app import create_app
from walkserve.http.callers import Caller
from walkserve.http.run import Server, bind
from walkserve.plugins import load_model
from walkserve.progress import LoadingProgress
from walkserve.transport.rundir import run_folder
from walkserve.transport.shm import ArenaReader
from walkserve.transport.sockets import AsyncSocketMailbox
from walkserve_sdk import Model

log = logging.getLogger(__name__)

DRAIN_S = 30.0
"""How long requests have to finish after the first signal; then they are failed."""
FINISH_S = 1.0
"""How long responses have to end when nothing more is computed for them; then connections are cut."""
LEAVE_S = 5.0
"""How long children have to leave after they were told to; then they are killed."""
RESTART_S = (0.0, 1.0, 5.0)
"""How long before a lost worker is started again, by how often it was lost within a minute; then no more."""
ENDED_WELL = ("drained", "told to stop")
"""What a conductor says that has stopped because it was asked to."""


def serve(models: tuple[ModelConfig, ...], *, host: str, port: int, log_level: str) -> int:
    """Serve until told to stop; the exit code.

    Raises:
        SettingError: The port is taken, or the host is not this machine's.
    """
    try:
        bound = bind(host, port)
    except OSError as error:
        raise SettingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port"
        ) from None
    with bound, run_folder() as folder:
        workers = [name for model in models for name in model.workers]
        config = ServerConfig(
            models=models,
            run_folder=str(folder),
            log_level=log_level,
            threads=worker_threads(os.cpu_count() or 1, len(workers)),
        )
        path = folder / "config.json"
        path.write_bytes(msgspec.json.encode(config))
        declared = {model.name: load_model(model.family)(model.checkpoint) for model in models}
        return uvloop.run(_Supervisor(config, path, declared).run(bound))


class _Supervisor:
    """Starts, watches and ends a server's processes."""

    def __init__(self, config: ServerConfig, path: Path, models: dict[str, Model]) -> None:
        self.config = config
        self.path = path
        self.models = models
        self.children: dict[str, asyncio.subprocess.Process] = {}
        self.addresses: dict[str, str] = {}
        """Worker -> where its newest incarnation hears."""
        self.watchers: set[asyncio.Task[None]] = set()
        self.known: tuple[m.ModelInfo, ...] = ()
        """What the conductor has last said of the models; empty until it has said something."""
        self.was_ready = False
        self.leaving = asyncio.Event()
        self.hurry = asyncio.Event()
        """Set when nothing more comes that would be worth waiting for."""
        self.drain_until = 0.0
        """By the clock of ``time.monotonic``; 0 until somebody has signalled."""
        self.exit_code = 0

    async def run(self, bound: socket.socket) -> int:
        folder = Path(self.config.run_folder)
        with AsyncSocketMailbox("http", folder, receives=m.ToClient) as mailbox:
            self.mailbox = mailbox
            progress = LoadingProgress(sum(len(model.ranks) for model in self.config.models))
            self.caller = Caller(mailbox, ArenaReader(folder))
            self.server = Server(create_app(self.caller, self.models), bound)
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self._signalled)
            with progress:
                await self._start_children()
                async with self.caller:
                    await self._serve(progress)
        return self.exit_code

    async def _serve(self, progress: LoadingProgress) -> None:
        serving = asyncio.create_task(
            self.server.run(lambda: print(f"walkserve: listening on {self.server.url}", flush=True))
        )
        following = asyncio.create_task(self._follow_state(progress))
        leaving = asyncio.create_task(self.leaving.wait())
        await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
        self._leave()
        progress.close()
        await asyncio.gather(self._end_serving(serving), self._end_children())
        for task in (following, leaving):
            task.cancel()
        await asyncio.gather(following, leaving, return_exceptions=True)

    async def _follow_state(self, progress: LoadingProgress) -> None:
        """Tell the terminal how the server stands; returns when it has stopped."""
        caller = self.caller
        state, loading = None, {}

        def is_news() -> bool:
            return caller.state is not state or caller.loading != loading

        while True:
            await caller.wait_until(is_news)
            state, loading = caller.state, dict(caller.loading)
            self.known = state.models or self.known
            if self.leaving.is_set():
                return
            progress.show(loading)
            if state.phase == "ready" and not self.was_ready:
                progress.close()
                self.was_ready = True
                _say(f"ready: {', '.join(self.models)} on {self.server.url}")
            if state.phase == "stopped":
                self._leave("" if state.detail in ENDED_WELL else state.detail)
                return

    # --- children -----------------------------------------------------------------------------------

    async def _start_children(self) -> None:
        await self._start("conductor", "walkserve.conductor.process", (), self._conductor_ended)
        for model in self.config.models:
            for worker in model.workers:
                await self._start_worker(worker, 0, ())

    async def _start_worker(self, worker: str, incarnation: int, lost: tuple[float, ...]) -> None:
        address = self.addresses[worker] = f"{worker}.{incarnation}"

        async def ended(code: int) -> None:
            self.mailbox.forget(address)
            self._remove_what_is_left_of(address)
            now = time.monotonic()
            recent = (*(at for at in lost if now - at < 60), now)
            why = f"ended with code {code}"
            is_given_up = len(recent) > len(RESTART_S)
            if is_given_up:
                why += f"; after {len(recent)} times within a minute it is not started again"
                if not self._is_any_served(besides=worker):
                    self._leave(f"{worker} {why}, and the server stops")
                    return
                _say(f"{worker} {why}")
            else:
                log.error("%s %s", worker, why)
            self.mailbox.send("conductor", [m.WorkerLost(worker, address, why)])
            if not is_given_up:
                await asyncio.sleep(RESTART_S[len(recent) - 1])
                await self._start_worker(worker, incarnation + 1, recent)

        await self._start(worker, "walkserve.worker.process", (worker, address), ended)

    async def _start(
        self,
        name: str,
        module: str,
        arguments: tuple[str, ...],
        ended: Callable[[int], Coroutine[None, None, None]],
    ) -> None:
        if self.leaving.is_set():
            return
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.config.threads),
            "MKL_NUM_THREADS": str(self.config.threads),
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            str(os.getpid()),
            str(self.path),
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C is for this process alone
        )
        self.children[name] = child

        async def watch() -> None:
            code = await child.wait()
            if not self.leaving.is_set():
                await ended(code)

        task = asyncio.create_task(watch())
        self.watchers.add(task)
        task.add_done_callback(self.watchers.discard)

    def _is_any_served(self, besides: str) -> bool:
        """Whether a model has ever been ready, or one without this worker has all of its own."""
        return self.was_ready or any(
            all(worker.state == "ready" and worker.name != besides for worker in model.workers)
            for model in self.known
        )

    def _remove_what_is_left_of(self, address: str) -> None:
        """An incarnation that was killed could not take its socket and its shared memory with it."""
        folder = Path(self.config.run_folder)
        for path in (folder / address, *folder.glob(f"{glob.escape(address)}.*.arena")):
            path.unlink(missing_ok=True)

    async def _conductor_ended(self, code: int) -> None:
        """Without a conductor nothing can be served: everybody is told, and the server ends."""
        if code == 0:  # it has said why, and that may still be on its way
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.leaving.wait(), FINISH_S)
                return
        self.mailbox.forget("conductor")
        why = f"the conductor ended with code {code}; the server stops"
        self._leave(why)
        self.caller.conductor_died(why)
        self.hurry.set()

    # --- leaving --------------------------------------------------------------------------------------

    def _signalled(self) -> None:
        """The first signal drains, if there is anything to finish; the second stops."""
        if self.drain_until or self.leaving.is_set():
            self._halt()
            return
        self.drain_until = time.monotonic() + DRAIN_S
        if self.caller.open_calls:
            _say("draining: running requests are finished, no new ones taken; once more to stop at once")
            self.mailbox.send("conductor", [m.Drain()])
            asyncio.get_running_loop().call_later(DRAIN_S, self._halt)
        else:
            self._leave()

    def _halt(self) -> None:
        """Wait for no request any more, and for the conductor only to fail them."""
        self.hurry.set()
        if not self.leaving.is_set():
            self.mailbox.send("conductor", [m.Halt()])
            asyncio.get_running_loop().call_later(FINISH_S, self._leave)

    def _leave(self, why: str = "") -> None:
        """Begin to end. The first reason that nobody asked for is told, and makes the exit code 1."""
        if why and not self.leaving.is_set():
            self.exit_code = 1
            _say(why)
        self.leaving.set()

    async def _end_serving(self, serving: asyncio.Task[None]) -> None:
        """Let the responses under way come to their end, as long as there is hope, and cut the others."""
        self.server.drain()
        # what the workers said last may still be on its way
        await asyncio.wait((serving,), timeout=FINISH_S)
        self.caller.conductor_died("the server stops")  # a request that no conductor has heard of fails
        if not serving.done() and not self.hurry.is_set() and time.monotonic() < self.drain_until:
            _say("waiting for clients that still read their answers; once more to stop at once")
        hurrying = asyncio.create_task(self.hurry.wait())
        await asyncio.wait(
            (serving, hurrying),
            timeout=max(FINISH_S, self.drain_until - time.monotonic()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurrying.cancel()
        self.server.stop()
        await serving

    async def _end_children(self) -> None:
        """Who works is told to leave and has time for it; who still loads has nothing to put away."""
        for task in list(self.watchers):  # nobody is started any more
            task.cancel()
        await asyncio.gather(*self.watchers, return_exceptions=True)
        working = {worker.address for model in self.known for worker in model.workers if worker.pid}
        for name, child in self.children.items():
            address = self.addresses.get(name)
            if child.returncode is not None:
                continue
            if address is None and self.known:
                self.mailbox.send(name, [m.Halt()])
            elif address in working:  # also told by the conductor, if it lives
                self.mailbox.send(address, [m.StopWorker()])
            else:
                _kill(child)
        leaving = [asyncio.create_task(child.wait()) for child in self.children.values()]
        await asyncio.wait(leaving, timeout=LEAVE_S)
        for name, child in self.children.items():
            if child.returncode is None:
                log.warning("%s did not leave; killed", name)
                _kill(child)
        await asyncio.gather(*leaving)


def _kill(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()


def _say(line: str) -> None:
    print(f"walkserve: {line}", file=sys.stderr, flush=True)
