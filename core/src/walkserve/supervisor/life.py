"""A server's life in the HTTP process: children start, it becomes ready, and it ends with all of them."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

from walkserve import messages as m
from walkserve.config import ServerConfig
from walkserve.extensions import Extensions
from walkserve.http.app import create_app
from walkserve.http.callers import Caller
from walkserve.http.run import Server
from walkserve.http.settings import HttpSettings
from walkserve.supervisor.children import Children
from walkserve.supervisor.leaving import Leaving
from walkserve.supervisor.progress import LoadingProgress, say
from walkserve.transport.shm import ArenaReader
from walkserve.transport.sockets import AsyncSocketMailbox
from walkserve_sdk import Model

ENDED_WELL = ("drained", "told to stop")
"""What a conductor says that has stopped because it was asked to."""


async def live(
    config: ServerConfig,
    path: Path,
    models: dict[str, Model],
    bound: socket.socket,
    http: HttpSettings,
    extensions: Extensions,
) -> int:
    """Serve on a bound socket until told to stop; the exit code.

    Args:
        path: Of the file that holds ``config``, for the children.
        models: The declarations of what is served, by name.
        extensions: Their routes are served too.
    """
    with AsyncSocketMailbox("http", Path(config.run_folder), receives=m.ToClient) as mailbox:
        return await _Life(config, path, models, bound, mailbox, http, extensions).run()


class _Life:
    """Joins the web server, the children and the terminal, and knows how the server stands."""

    def __init__(
        self,
        config: ServerConfig,
        path: Path,
        models: dict[str, Model],
        bound: socket.socket,
        mailbox: AsyncSocketMailbox,
        http: HttpSettings,
        extensions: Extensions,
    ) -> None:
        self.names = ", ".join(models)
        self.progress = LoadingProgress(sum(len(model.ranks) for model in config.models))
        self.caller = Caller(
            mailbox,
            ArenaReader(Path(config.run_folder)),
            profiles=any(model.profile for model in config.models),
            max_open=http.max_open_requests,
        )
        app = create_app(self.caller, models, http, extensions)
        self.server = Server(
            app, bound, frame_bytes=http.media_bytes, receive_timeout_s=http.receive_timeout_s
        )
        self.leaving = Leaving(self.caller, mailbox, config.drain_timeout_s)
        self.children = Children(
            config,
            path,
            mailbox,
            leaving=self.leaving.has_begun,
            conductor_ended=self.leaving.conductor_ended,
            given_up=self._worker_given_up,
        )
        self.known: tuple[m.ModelInfo, ...] = ()
        """What the conductor has last said of the models; empty until it has said something."""
        self.was_ready = False

    async def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.leaving.signalled)
        with self.progress:
            await self.children.start()
            async with self.caller:
                await self._serve()
        return self.leaving.exit_code

    async def _serve(self) -> None:
        serving = asyncio.create_task(
            self.server.run(lambda: print(f"walkserve: listening on {self.server.url}", flush=True))
        )
        following = asyncio.create_task(self._follow_state())
        leaving = asyncio.create_task(self.leaving.has_begun.wait())
        await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
        self.leaving.begin()
        self.progress.close()
        await asyncio.gather(self.leaving.end_serving(self.server, serving), self.children.end(self.known))
        for task in (following, leaving):
            task.cancel()
        await asyncio.gather(following, leaving, return_exceptions=True)

    async def _follow_state(self) -> None:
        """Hear all that the conductor tells, until the server leaves."""
        caller = self.caller
        state, loading = None, {}

        def is_news() -> bool:
            return caller.state is not state or caller.loading != loading

        while not self.leaving.has_begun.is_set():
            await caller.wait_until(is_news)
            state, loading = caller.state, dict(caller.loading)
            self._hear(state, loading)

    def _hear(self, state: m.ServerState, loading: dict[tuple[str, str], bool]) -> None:
        """Tell the terminal how the server stands now, and leave when the conductor has stopped."""
        self.known = state.models or self.known
        if self.leaving.has_begun.is_set():
            return
        self.progress.show(loading)
        if state.phase == "ready" and not self.was_ready:
            self.progress.close()
            self.was_ready = True
            say(f"ready: {self.names} on {self.server.url}")
        if state.phase == "stopped":
            self.leaving.begin("" if state.detail in ENDED_WELL else state.detail)

    def _worker_given_up(self, worker: str, why: str) -> None:
        """The server goes on as long as any model is served without this worker."""
        if self._is_any_served(besides=worker):
            say(f"{worker} {why}")
        else:
            self.leaving.begin(f"{worker} {why}, and the server stops")

    def _is_any_served(self, besides: str) -> bool:
        """Whether a model has ever been ready, or one without this worker has all of its own."""
        return self.was_ready or any(
            all(worker.state == "ready" and worker.name != besides for worker in model.workers)
            for model in self.known
        )
