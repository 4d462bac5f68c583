"""The models of a server and their workers: who is there, who is lost, and how the whole stands."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

from walkserve import messages as m
from walkserve.conductor.served import Served

log = logging.getLogger(__name__)

Say = Callable[[str, m.Message], None]


class Fleet:
    """What is served, and who wants to know.

    ``phase`` goes from "starting" to "ready" and back as workers come and go, then to "draining" and
    "stopped". A model is ready when all its workers are there, a warm-up has passed through them, and those
    that calibrate have done so.
    """

    def __init__(self, served: Mapping[str, Served], say: Say) -> None:
        self.served = dict(served)
        self.phase = "starting"
        self.detail = "loading"
        self._say = say
        self._clients: dict[str, None] = {}

    def attach(self, client: str) -> None:
        """This client is told the state from now on."""
        self._clients[client] = None

    def pass_on(self, message: m.Loading) -> None:
        for client in self._clients:
            self._say(client, message)

    # --- phases -----------------------------------------------------------------------------------

    def state(self, running: Mapping[str, int]) -> m.ServerState:
        """For ``/ready`` and ``/v1/server``; ``running`` counts requests by model."""
        models = tuple(served.info(running.get(name, 0)) for name, served in self.served.items())
        return m.ServerState(self.phase, self.detail, os.getpid(), models)

    def tell(self, state: m.ServerState, client: str | None = None) -> None:
        """Tell one client how the server stands, or all."""
        for each in self._clients if client is None else (client,):
            self._say(each, state)

    def drain(self) -> None:
        """Take nothing new."""
        if self.phase != "stopped":
            self.phase, self.detail = "draining", "no new requests"

    def stop(self, why: str) -> None:
        """Over; the first reason stands."""
        if self.phase != "stopped":
            self.phase, self.detail = "stopped", why

    def settle(self, open_requests: int) -> bool:
        """Draw the conclusion from what was heard; whether the phase or what it waits for has changed."""
        before = (self.phase, self.detail)
        if self.phase == "draining" and not open_requests:
            self.stop("drained")
        if self.phase in ("starting", "ready"):
            waits = [
                served.trouble or f"{name} is {'calibrating' if served.is_warm else 'loading'}"
                for name, served in self.served.items()
                if not served.is_ready
            ]
            self.phase, self.detail = ("starting", "; ".join(waits)) if waits else ("ready", "")
        return before != (self.phase, self.detail)

    # --- workers ----------------------------------------------------------------------------------

    def _served_with(self, worker: str) -> Served | None:
        """The model it is of; None, and a line in the log, if nobody here has such a worker."""
        served = next((each for each in self.served.values() if worker in each.workers), None)
        if served is None:
            log.error("no model here has a worker %r", worker[:64])
        return served

    def worker_ready(self, message: m.WorkerReady) -> Served | None:
        """A worker has loaded; its model if that was the last one missing, so that it can be warmed up."""
        served = self._served_with(message.worker)
        if served is None:
            return None
        record = served.workers[message.worker]
        record.address, record.pid, record.state = message.address, message.pid, "ready"
        record.components, record.failure = message.components, ""
        record.budgets, record.is_calibrated = message.budgets, not message.calibrates
        served.pools |= message.pools
        if not served.has_all_workers:
            return None
        addresses = {name: worker.address for name, worker in served.workers.items()}
        for address in addresses.values():
            self._say(address, m.PeersChanged(addresses))
        return served

    def worker_failed(self, message: m.WorkerFailed) -> None:
        """A worker cannot load: at first start that ends the server, later it is a model in trouble."""
        served = self._served_with(message.worker)
        if served is None:
            return
        why = f"{message.worker} cannot start: {message.fault.message}"
        served.workers[message.worker].failure = why
        if any(each.was_ready for each in self.served.values()):
            self._lose(served, message.worker, message.address, why)
        else:
            self.stop(why)

    def worker_lost(self, message: m.WorkerLost) -> None:
        """A worker is gone; whoever said so also starts it again."""
        served = self._served_with(message.worker)
        if served is None:
            return
        why = f"{message.worker} {message.why}"
        failure = served.workers[message.worker].failure
        self._lose(served, message.worker, message.address, f"{failure}; {why}" if failure else why)

    @staticmethod
    def _lose(served: Served, worker: str, address: str, why: str) -> None:
        record = served.workers[worker]
        if record.address in ("", address):  # else the next incarnation is already there
            record.state = "lost"
            served.is_warm = False
            served.trouble = why

    def warmed_up(self, served: Served) -> None:
        """A request has passed through every component: now it can be seen how fast they are."""
        served.is_warm = served.was_ready = True
        served.trouble = ""
        for worker in served.workers.values():
            if not worker.is_calibrated:
                self._say(worker.address, m.Calibrate())

    def calibrated(self, message: m.Calibrated) -> None:
        """A worker knows its token budgets."""
        served = self._served_with(message.worker)
        if served is None:
            return
        record = served.workers[message.worker]
        if record.address == message.address:  # else it is another incarnation by now
            record.budgets, record.is_calibrated = message.budgets, True
