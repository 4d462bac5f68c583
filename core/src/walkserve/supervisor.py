"""One server: the HTTP server in this process, the conductor and the workers as children that are watched."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
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

LEAVE_S = 5.0
"""How long children have to leave after they were told to; then they are killed."""
RESTART_S = (0.0, 1.0, 5.0)
"""How long before a lost worker is started again, by how often it was lost within a minute; then no more."""


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
        self.watchers: set[asyncio.Task[None]] = set()
        self.is_leaving = False
        self.exit_code = 0
        self.signals = 0

    async def run(self, bound: socket.socket) -> int:
        folder = Path(self.config.run_folder)
        with AsyncSocketMailbox("http", folder, receives=m.ToClient) as mailbox:
            self.mailbox = mailbox
            progress = LoadingProgress()
            self.caller = Caller(mailbox, ArenaReader(folder))
            self.server = Server(create_app(self.caller, self.models), bound)
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self._signalled)
            with progress:
                await self._start_children()
                async with self.caller:
                    await self._serve(progress)
            await self._end_children()
        return self.exit_code

    async def _serve(self, progress: LoadingProgress) -> None:
        serving = asyncio.create_task(
            self.server.run(lambda: print(f"walkserve: listening on {self.server.url}", flush=True))
        )
        following = asyncio.create_task(self._follow_state(progress))
        await asyncio.wait((serving, following), return_when=asyncio.FIRST_COMPLETED)
        self.is_leaving = True
        self.server.drain()
        await serving
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    async def _follow_state(self, progress: LoadingProgress) -> None:
        """Tell the terminal how the server stands; returns when it has stopped."""
        caller, was_ready = self.caller, False
        state, loading = None, {}

        def is_news() -> bool:
            return caller.state is not state or caller.loading != loading

        while True:
            await caller.wait_until(is_news)
            state, loading = caller.state, dict(caller.loading)
            progress.show(loading)
            if state.phase == "ready" and not was_ready:
                progress.close()
                was_ready = True
                _say(f"ready: {', '.join(self.models)} on {self.server.url}")
            if state.phase == "stopped":
                if state.detail not in ("drained", "told to stop"):
                    self.exit_code = 1
                    _say(state.detail)
                return

    # --- children -----------------------------------------------------------------------------------

    async def _start_children(self) -> None:
        await self._start("conductor", "walkserve.conductor.process", (), self._conductor_ended)
        for model in self.config.models:
            for worker in model.workers:
                await self._start_worker(worker, 0, ())

    async def _start_worker(self, worker: str, incarnation: int, lost: tuple[float, ...]) -> None:
        address = f"{worker}.{incarnation}"

        async def ended(code: int) -> None:
            log.error("worker %s ended with code %d", worker, code)
            self.mailbox.send("conductor", [m.WorkerLost(worker, address, f"ended with code {code}")])
            now = time.monotonic()
            recent = (*(at for at in lost if now - at < 60), now)
            if len(recent) > len(RESTART_S):
                self.exit_code = 1
                _say(f"worker {worker} ended {len(recent)} times within a minute; the server stops")
                self.mailbox.send("conductor", [m.Halt()])
                return
            await asyncio.sleep(RESTART_S[len(recent) - 1])
            if not self.is_leaving:
                await self._start_worker(worker, incarnation + 1, recent)

        await self._start(worker, "walkserve.worker.process", (worker, address), ended)

    async def _start(
        self, name: str, module: str, arguments: tuple[str, ...], ended: Callable[[int], object]
    ) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.config.threads),
            "MKL_NUM_THREADS": str(self.config.threads),
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            str(self.path),
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
        )
        self.children[name] = child

        async def watch() -> None:
            code = await child.wait()
            if not self.is_leaving:
                result = ended(code)
                if asyncio.iscoroutine(result):
                    await result

        task = asyncio.create_task(watch())
        self.watchers.add(task)
        task.add_done_callback(self.watchers.discard)

    def _conductor_ended(self, code: int) -> None:
        """Without a conductor nothing can be served: everybody is told, and the server ends."""
        if self.caller.state.phase == "stopped":
            return
        self.exit_code = 1
        _say(f"the conductor ended with code {code}; the server stops")
        self.caller.conductor_died()
        self.server.stop()

    async def _end_children(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(
                asyncio.gather(*(child.wait() for child in self.children.values())), LEAVE_S
            )
        for name, child in self.children.items():
            if child.returncode is None:
                log.warning("%s did not leave; killed", name)
                child.kill()
                await child.wait()
        for task in list(self.watchers):
            task.cancel()
        await asyncio.gather(*self.watchers, return_exceptions=True)

    # --- leaving --------------------------------------------------------------------------------------

    def _signalled(self) -> None:
        """The first signal drains, the second stops."""
        self.signals += 1
        if self.signals == 1:
            _say("draining: running requests are finished, no new ones taken; once more to stop at once")
            self.mailbox.send("conductor", [m.Drain()])
        else:
            self.is_leaving = True
            self.mailbox.send("conductor", [m.Halt()])
            self.server.stop()


def _say(line: str) -> None:
    print(f"walkserve: {line}", file=sys.stderr, flush=True)
