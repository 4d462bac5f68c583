"""The conductor, the workers and a listener as threads of this process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from walkserve import messages as m
from walkserve.conductor.process import ADDRESS as CONDUCTOR
from walkserve.conductor.process import conduct, journals_of, served_models
from walkserve.conductor.state import ConductorState
from walkserve.config import ModelConfig, usable_cores, worker_threads
from walkserve.transport.local import LocalCarrier, LocalMailbox, LocalSwitchboard
from walkserve.worker.assemble import Worker

log = logging.getLogger(__name__)

CLIENT = "engine"
"""The address of whoever listens."""


class Threads:
    """A server's parts for one model, from ``start`` to ``stop`` and ``join``.

    Args:
        hear: Called by the listener with each message to ``CLIENT``.
        broke: Called by a thread that something escaped from, in words; nothing is served any more.
    """

    def __init__(
        self, config: ModelConfig, hear: Callable[[m.Message], None], broke: Callable[[str], None]
    ) -> None:
        self.pid = os.getpid()
        board = LocalSwitchboard()
        self.mailbox = LocalMailbox(CLIENT, board)
        self.carrier = LocalCarrier(CLIENT, board)
        self.workers: list[Worker] = []
        self._conductor = LocalMailbox(CONDUCTOR, board)
        self._state = ConductorState(served_models([config]), journals_of([config]))
        self._hear = hear
        self._broke = broke
        self._is_stopping = False
        self._threads: list[threading.Thread] = []
        threads = worker_threads(usable_cores(), len(config.workers))
        for name in config.workers:
            address = f"{name}.0"
            mailbox, carrier = LocalMailbox(address, board), LocalCarrier(address, board)
            self.workers.append(Worker(config, name, address, mailbox, carrier, threads=threads))

    def start(self) -> None:
        """Start everything; the listener will hear how it goes."""
        self.mailbox.send(CONDUCTOR, [m.Attach(CLIENT)])  # first: a worker that fails at once ends everything
        self._spawn("listener", self._listen)
        self._spawn("conductor", lambda: conduct(self._state, self._conductor))
        for worker in self.workers:
            self._spawn(worker.name, worker.run)

    def stop(self) -> None:
        """Tell everything to stop; what still runs is thrown away. Twice is harmless."""
        self._is_stopping = True
        self.mailbox.wake()
        self.mailbox.send(CONDUCTOR, [m.Halt()])
        for worker in self.workers:  # the conductor says so too, unless its thread has died
            self.mailbox.send(worker.address, [m.StopWorker()])

    def join(self) -> None:
        """Wait until nothing runs any more, and give everything back. Twice is harmless."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for end in (self.mailbox, self.carrier, self._conductor):
            end.close()
        for worker in self.workers:
            worker.mailbox.close()
            worker.carrier.close()

    def _listen(self) -> None:
        while not self._is_stopping:
            for message in self.mailbox.receive(None):
                self._hear(message)

    def _spawn(self, name: str, run: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:  # SystemExit too: whoever waits for this thread is to know
                log.critical("the thread of %s died", name, exc_info=error)
                self._broke(f"the engine broke: its {name} died of {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, name=f"walkserve-{name}", daemon=True)
        self._threads.append(thread)  # first: an interrupt may come while it starts
        thread.start()
