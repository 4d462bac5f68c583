"""What the conductor knows of requests, and what follows from each thing it hears.

A reducer: ``hear`` takes one message and puts what is to be said into ``outbox``. No socket, no clock.
It is involved once per Walk, never per token.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, assert_never

from walkserve import messages as m
from walkserve.conductor.admission import fit, pages_needed
from walkserve.conductor.blame import Blamed, Told, fault_of, throw
from walkserve.conductor.fleet import Fleet
from walkserve.conductor.life import Life, Phase, TrackLife
from walkserve.conductor.served import Served
from walkserve.conductor.trace import Trace
from walkserve.logs import about
from walkserve_sdk import Fork, Outcome, Request, WalkFailed
from walkserve_sdk.errors import ModelNotFound, Unavailable
from walkserve_sdk.graph import Walk
from walkserve_sdk.tracks import Finished, Step, TrackRun

log = logging.getLogger(__name__)

PREPARE = "prepare"
WORKER_LOST = "worker_lost"
NOBODY = ""
"""The client of warm-up requests: what is meant for it is heard here and goes nowhere."""


class ConductorState:
    """Every request that lives, and the fleet that serves it."""

    def __init__(self, served: Mapping[str, Served]) -> None:
        self.outbox: dict[str, list[m.Message]] = defaultdict(list)
        self.fleet = Fleet(served, self._say)
        self._numbers = 0
        self._lives: dict[int, tuple[Served, Life]] = {}
        self._by_tag: dict[tuple[str, int], int] = {}

    @property
    def open_requests(self) -> int:
        """Requests that hold something, those that are closing included."""
        return len(self._lives)

    @property
    def phase(self) -> str:
        return self.fleet.phase

    # --- hearing ----------------------------------------------------------------------------------

    def hear(self, message: m.ToConductor) -> None:
        """One message. What goes wrong in it is its request's, never the loop's."""
        match message:
            case m.Submit():
                self._submit(message)
            case m.Cancel():
                number = self._by_tag.get((message.client, message.tag))
                if number is not None:
                    self._close(*self._lives[number])
            case m.Attach():
                self.fleet.attach(message.client)
                self.fleet.tell(self.state(), message.client)
            case m.WalkEnded() | m.WalkBroke() | m.BranchForked():
                if message.number in self._lives:
                    self._hear_of_walk(*self._lives[message.number], message)
            case m.RequestClosed():
                if message.number in self._lives:
                    self._let_go(*self._lives[message.number], message.address)
            case m.Loading():
                self.fleet.pass_on(message)
            case m.WorkerReady():
                served = self.fleet.worker_ready(message)
                if served is not None:
                    self._warm_up(served)
            case m.WorkerFailed():
                self.fleet.worker_failed(message)
            case m.WorkerLost():
                self.fleet.worker_lost(message)
                self._fail_holders(message.address)
            case m.Drain():
                self.fleet.drain()
            case m.Halt():
                self.fleet.stop("told to stop")
            case _:
                assert_never(message)
        if self.fleet.settle(self.open_requests) or isinstance(
            message, m.WorkerReady | m.WorkerLost | m.Drain
        ):
            self.tell_state()

    def state(self) -> m.ServerState:
        """For ``/ready`` and ``/v1/server``."""
        running = Counter(served.name for served, life in self._lives.values() if life.phase is Phase.RUNNING)
        return self.fleet.state(running)

    def tell_state(self) -> None:
        """Tell every client how the server stands."""
        self.fleet.tell(self.state())

    def _say(self, address: str, message: m.Message) -> None:
        if address != NOBODY:
            self.outbox[address].append(message)

    # --- a request begins -------------------------------------------------------------------------

    def _submit(self, message: m.Submit) -> None:
        served = self.fleet.served.get(message.model)
        try:
            if served is None:
                raise ModelNotFound(f"the model {message.model!r} is not served here", param="model")
            if self.phase == "draining" or not (served.is_ready or message.client == NOBODY):
                raise Unavailable(f"{message.model} is not ready: {self.fleet.detail or self.phase}")
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
        self._begin(served, message, request)

    def _begin(self, served: Served, message: m.Submit, request: Request) -> None:
        number, self._numbers = self._numbers, self._numbers + 1
        trace = Trace(served.addresses) if served.profiles and message.client != NOBODY else None
        life = Life(number, message.client, message.tag, request, set(served.addresses), trace, message.label)
        self._lives[number] = (served, life)
        self._by_tag[(message.client, message.tag)] = number
        opened = m.OpenRequest(
            number,
            message.client,
            message.tag,
            message.options,
            request.seed,
            request.outputs,
            message.label,
        )
        for address in served.addresses:
            self._say(address, opened)
        with self._blamed_on(served, life):
            walk = served.model.prepare(request)
            if walk is None:
                self._queue(served, life)
            else:
                self._start(served, life, PREPARE, 0, walk)

    def _close_where_done(self, served: Served, life: Life) -> None:
        """It is prepared: a worker that no track calls, and that lends nothing, has nothing more of it."""
        if any(m.references(value) for value in life.prepared.values.values()):
            return
        for worker in served.workers.values():
            if worker.name not in served.track_workers and worker.address in life.holders:
                self._say(worker.address, m.CloseRequest(life.number))

    def _queue(self, served: Served, life: Life) -> None:
        """Sizes are known: refuse what can never fit, let the others wait for their turn."""
        life.request, budget = fit(served.model, life.request, life.prepared, served.pools)
        life.pages = pages_needed(budget, served.pools)
        life.usage["input_tokens"] = sum(start for start, _ in budget.values())
        life.phase = Phase.WAITING
        _mark(life, "prepared")
        self._close_where_done(served, life)
        served.queue.append(life)
        self._admit(served)

    def _admit(self, served: Served) -> None:
        """Give the oldest that wait their caches, all of a request's or none."""
        while served.queue:
            life = served.queue[0]
            if any(
                served.reserved.get(part, 0) + pages > served.pools[part].pages
                for part, pages in life.pages.items()
            ):
                return
            served.queue.popleft()
            for part, pages in life.pages.items():
                served.reserved[part] = served.reserved.get(part, 0) + pages
            life.phase = Phase.RUNNING
            _mark(life, "admitted")
            self._say(life.client, m.Admitted(life.tag))
            with self._blamed_on(served, life):
                for name, spec in served.model.spec.tracks.items():
                    run = TrackRun(spec, served.model, life.request, life.prepared)
                    life.tracks[name] = TrackLife(run)
                for name, track in life.tracks.items():
                    self._follow(served, life, name, track.run.start())
                self._end_if_finished(served, life)

    # --- Walks and tracks ---------------------------------------------------------------------------

    def _hear_of_walk(
        self, served: Served, life: Life, message: m.WalkEnded | m.WalkBroke | m.BranchForked
    ) -> None:
        if life.phase is Phase.CLOSING:
            return
        if life.trace is not None and not isinstance(message, m.BranchForked):
            life.trace.walk_ended(message)
        with self._blamed_on(served, life):
            if message.track == PREPARE:
                if isinstance(message, m.WalkBroke):
                    raise Told(message.fault)
                if isinstance(message, m.WalkEnded):
                    life.prepared = life.heard(message)
                    self._queue(served, life)
                return
            if isinstance(message, m.WalkBroke):
                life.add_written(message)
                if not message.track:
                    raise Told(message.fault)
            track = life.tracks[message.track]
            if track.is_finished or message.walk != track.waits_for:
                return  # said twice
            match message:
                case m.WalkEnded():
                    step = track.run.send(life.heard(message))
                case m.BranchForked():
                    step = track.run.send(Outcome())
                case m.WalkBroke():
                    step = throw(track.run, message.fault)
            self._follow(served, life, message.track, step)
            self._end_if_finished(served, life)

    def _follow(self, served: Served, life: Life, name: str, step: Step | Finished) -> None:
        """Do what a track asks for next."""
        track = life.tracks[name]
        match step:
            case Walk():
                track.waits_for = track.run.walks - 1
                self._start(served, life, name, track.waits_for, step)
            case Fork(component, branch, to):
                track.waits_for = track.run.walks
                home = served.workers[served.ranks[component.name]].address
                self._say(home, m.ForkBranch(life.number, name, track.waits_for, component.name, branch, to))
            case Finished():
                self._track_finished(served, life, name, step.reason)
            case _:
                assert_never(step)

    def _start(self, served: Served, life: Life, track: str, walk: int, step: Walk) -> None:
        inputs = {name: _value(step.graph.name, name, value) for name, value in step.inputs.items()}
        home = served.address_of(step.graph.name)
        if life.trace is not None:
            life.trace.walk_started(track, walk, step.graph.name, home, inputs)
        self._say(home, m.StartWalk(life.number, track, walk, step.graph.name, inputs))

    def _track_finished(self, served: Served, life: Life, name: str, reason: str | None) -> None:
        track = life.tracks[name]
        track.is_finished, track.reason = True, reason
        spec = served.model.spec
        for stream, writer in spec.writers.items():
            if writer == name:
                reader = served.workers[served.reader_of[stream]].address
                self._say(reader, m.EndStream(life.number, stream, life.wrote.get(stream, 0)))
        for stream, reading in spec.readers.items():
            if reading == name and stream in served.writer_of:
                self._say(
                    served.workers[served.writer_of[stream]].address, m.DiscardStream(life.number, stream)
                )

    def _end_if_finished(self, served: Served, life: Life) -> None:
        if life.is_finished and life.phase is Phase.RUNNING:
            ended = m.RequestEnded(
                life.tag, life.finish_reason, life.request.seed, life.emitted, life.usage, life.counts
            )
            self._reply(life, ended)
            self._close(served, life)

    # --- a request ends -------------------------------------------------------------------------------

    def _blamed_on(self, served: Served, life: Life) -> Blamed:
        return Blamed(f"the plan of {served.name}", lambda fault: self._fail(served, life, fault), life.label)

    def _fail(self, served: Served, life: Life, fault: m.Fault) -> None:
        """The request ends with an error; its client is told at once."""
        if life.phase is not Phase.CLOSING:
            self._reply(life, m.RequestFailed(life.tag, fault))
            self._close(served, life)

    def fail_number(self, number: int, fault: m.Fault) -> None:
        """The same by its number, if it still lives."""
        if number in self._lives:
            self._fail(*self._lives[number], fault)

    def fail_all(self, fault: m.Fault) -> None:
        """Every request that lives ends with an error."""
        for number in list(self._lives):
            self.fail_number(number, fault)

    def _fail_holders(self, address: str) -> None:
        """A worker is gone: what it held fails, and waits for it no more."""
        for served, life in list(self._lives.values()):
            if address in life.holders:
                lost = m.Fault(f"{served.name} lost a worker; try again", 503, "unavailable", WORKER_LOST)
                life.holders.discard(address)
                self._fail(served, life, lost)
                self._forget_if_released(served, life)

    def _reply(self, life: Life, message: m.RequestEnded | m.RequestFailed) -> None:
        _mark(life, "ended" if isinstance(message, m.RequestEnded) else "failed")
        if life.client == NOBODY:
            self._warmed_up(self._lives[life.number][0], message)
        else:
            self._say(life.client, message)

    def _close(self, served: Served, life: Life) -> None:
        """Take everything back, in whatever phase it is."""
        if life.phase is Phase.CLOSING:
            return
        was_waiting = life.phase is Phase.WAITING
        if was_waiting:
            served.queue.remove(life)
        if life.phase is not Phase.RUNNING:
            life.pages = {}
        life.phase = Phase.CLOSING
        for name, track in life.tracks.items():
            try:
                track.run.close()
            except Exception:  # a plan that raises while it is cancelled keeps nothing
                log.exception("the track %s raised when it was closed", name, extra=about(life.label))
        self._by_tag.pop((life.client, life.tag), None)
        if life.trace is not None:
            self._say(life.client, life.trace.told(life.tag))
        for address in life.holders:
            self._say(address, m.CloseRequest(life.number))
        self._forget_if_released(served, life)
        if was_waiting:
            self._admit(served)  # who stood behind it may fit

    def _let_go(self, served: Served, life: Life, address: str) -> None:
        life.holders.discard(address)
        self._forget_if_released(served, life)

    def _forget_if_released(self, served: Served, life: Life) -> None:
        if life.holders or life.phase is not Phase.CLOSING or life.number not in self._lives:
            return
        for part, pages in life.pages.items():
            served.reserved[part] -= pages
        del self._lives[life.number]
        self._admit(served)

    # --- warm-up --------------------------------------------------------------------------------------

    def _warm_up(self, served: Served) -> None:
        """Send a request of the family's own through every component; then the model is ready."""
        try:
            request = served.model.warm_up()
        except Exception as error:
            log.error("the warm-up of %s cannot be made", served.name, exc_info=error)
            self.fleet.stop(f"{served.name}: its warm_up raised {type(error).__name__}: {error}")
            return
        if request is None:
            self.fleet.warmed_up(served)
            return
        parts = tuple(m.SentPart.of(part) for part in request.parts)
        submit = m.Submit(
            NOBODY, self._numbers, served.name, parts, request.outputs, request.options, request.seed
        )
        self._begin(served, submit, request)

    def _warmed_up(self, served: Served, message: m.RequestEnded | m.RequestFailed) -> None:
        if isinstance(message, m.RequestEnded):
            self.fleet.warmed_up(served)
        elif message.fault.code != WORKER_LOST:  # else it is tried again when the worker is back
            self.fleet.stop(f"{served.name}: its warm-up failed: {message.fault.message}")


def _mark(life: Life, what: str) -> None:
    """Note it in the request's profile, if it has one."""
    if life.trace is not None:
        life.trace.mark(what)


def _value(graph: str, name: str, value: Any) -> m.Value:
    """What a track gives a Walk, fit for a message.

    Raises:
        WalkFailed: No message can hold it.
    """
    match value:
        case bytes():
            return m.Blob(value)
        case list() | tuple():
            items = [_value(graph, name, one) for one in value]
            if not any(isinstance(one, list | m.Blob) or one is None for one in items):
                return items  # type: ignore[return-value]
        case int() if not -(2**63) <= value < 2**64:
            raise WalkFailed(f"{graph}: its input {name!r} is beyond 64 bits")
        case None | bool() | int() | float() | str() | m.Blob() | m.Array() | m.TensorRef():
            return value
    raise WalkFailed(f"{graph}: its input {name!r} is a {type(value).__name__}, which no Walk can take")
