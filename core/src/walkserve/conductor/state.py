"""What the conductor knows of requests and workers, and what follows from each thing it hears.

A reducer: ``hear`` takes one message and puts what is to be said into ``outbox``. No socket, no clock.
It is involved once per Walk, never per token.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import assert_never

from walkserve import messages as m
from walkserve.conductor.blame import BLAMED, fault_of
from walkserve.conductor.client_streams import check_writes
from walkserve.conductor.fleet import Fleet
from walkserve.conductor.life_table import Phase
from walkserve.conductor.lives import NOBODY, WORKER_LOST, Lives
from walkserve.conductor.served import Served
from walkserve.journal.recorder import Journals
from walkserve_sdk import Request
from walkserve_sdk.errors import ModelNotFound, Unavailable

log = logging.getLogger(__name__)


class ConductorState:
    """Every request that lives, and the fleet that serves it.

    Args:
        journals: Where each request's journal is written; whoever owns it has it flushed.
    """

    def __init__(self, served: Mapping[str, Served], journals: Journals | None = None) -> None:
        self.outbox: dict[str, list[m.Message]] = defaultdict(list)
        self.fleet = Fleet(served, self._say)
        self.lives = Lives(self._say, self._warmed_up, journals)
        self.journals = journals
        self._warm_ups = 0

    @property
    def open_requests(self) -> int:
        """Requests that hold something, those that are closing included."""
        return len(self.lives)

    @property
    def phase(self) -> str:
        return self.fleet.phase

    # --- hearing ----------------------------------------------------------------------------------

    def hear(self, message: m.ToConductor) -> None:
        """One message. What goes wrong in it is its request's, never the loop's."""
        match message:
            case m.Submit():
                self._submit(message)
            case m.WriteStream() | m.FinishStream():
                self.lives.written(message)
            case m.Cancel():
                self.lives.cancel(message.client, message.tag)
            case m.Attach():
                self.fleet.attach(message.client)
                self.fleet.tell(self.state(), message.client)
            case m.WalkEnded() | m.WalkBroke() | m.BranchForked():
                self.lives.walked(message)
            case m.Blocked() | m.Stuck():
                self.lives.wait_on_streams(message)
            case m.StreamTaken():
                self.lives.taken(message)
            case m.RequestClosed():
                self.lives.let_go(message.number, message.address)
            case m.Loading():
                self.fleet.pass_on(message)
            case m.WorkerReady():
                served = self.fleet.worker_ready(message)
                if served is not None:
                    self._warm_up(served)
            case m.Calibrated():
                self.fleet.calibrated(message)
            case m.WorkerFailed():
                self.fleet.worker_failed(message)
            case m.WorkerLost():
                self.fleet.worker_lost(message)
                self.lives.lose(message.address)
            case m.Drain():
                self.fleet.drain()
            case m.Halt():
                self.fleet.stop("told to stop")
            case _:
                assert_never(message)
        self._settle(has_changed=isinstance(message, m.WorkerReady | m.WorkerLost | m.Drain))

    def expire(self, number: int) -> None:
        """Said by who has the clock: a request of ``lives.due`` has had its time, if it still lives."""
        self.lives.expire(number)
        self._settle()

    def was_silent(self, number: int) -> None:
        """Said by the same: nothing was heard of a request for as long as its client may be silent."""
        self.lives.was_silent(number)
        self._settle()

    def fail_number(self, number: int, fault: m.Fault) -> None:
        """A request ends with an error, if it still lives."""
        self.lives.fail(number, fault)

    def fail_all(self, fault: m.Fault) -> None:
        """Every request that lives ends with an error."""
        for life in self.lives:
            self.lives.fail(life.number, fault)

    def _settle(self, *, has_changed: bool = False) -> None:
        self.lives.free_dropped()
        if self.fleet.settle(self.open_requests) or has_changed:
            self.tell_state()

    def state(self) -> m.ServerState:
        """For ``/ready`` and ``/v1/server``."""
        return self.fleet.state(
            Counter(life.served.name for life in self.lives if life.phase is Phase.RUNNING)
        )

    def tell_state(self) -> None:
        """Tell every client how the server stands."""
        self.fleet.tell(self.state())

    def _say(self, address: str, message: m.Message) -> None:
        if address != NOBODY:
            self.outbox[address].append(message)

    # --- a request begins -------------------------------------------------------------------------

    def _submit(self, message: m.Submit) -> None:
        """Take a request, or say why it is not taken."""
        served = self.fleet.served.get(message.model)
        try:
            if served is None:
                raise ModelNotFound(f"the model {message.model!r} is not served here", param="model")
            if self.phase == "draining" or not (served.is_ready or message.client == NOBODY):
                raise Unavailable(f"{message.model} is not ready: {self.fleet.detail or self.phase}")
            check_writes(served.name, served.model.spec, message.writes)
            request = Request(
                parts=tuple(sent.part for sent in message.parts),
                outputs=message.outputs,
                options=m.restore_options(type(served.model).Options, message.options),
                seed=message.seed,
                given=frozenset(message.given),
            )
        except Exception as error:  # whoever asked is answered, whatever it was
            self._say(message.client, m.RequestFailed(message.tag, fault_of(error, "reading the request")))
            return
        self.lives.accept(served, message, request)

    # --- warm-up ----------------------------------------------------------------------------------

    def _warm_up(self, served: Served) -> None:
        """Send a request of the family's own through every component; then the model is ready."""
        try:
            request = served.model.warm_up()
        except BLAMED as error:
            log.error("the warm-up of %s cannot be made", served.name, exc_info=error)
            self.fleet.stop(f"{served.name}: its warm_up raised {type(error).__name__}: {error}")
            return
        if request is None:
            self.fleet.warmed_up(served)
            return
        parts = tuple(m.SentPart.of(part) for part in request.parts)
        self._warm_ups += 1
        submit = m.Submit(
            NOBODY, self._warm_ups, served.name, parts, request.outputs, request.options, request.seed
        )
        self.lives.accept(served, submit, request)

    def _warmed_up(self, served: Served, message: m.RequestEnded | m.RequestFailed) -> None:
        if isinstance(message, m.RequestEnded):
            self.fleet.warmed_up(served)
        elif message.fault.code != WORKER_LOST:  # else it is tried again when the worker is back
            self.fleet.stop(f"{served.name}: its warm-up failed: {message.fault.message}")
