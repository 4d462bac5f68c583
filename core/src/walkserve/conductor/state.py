"""What the conductor knows, and what follows from each thing it hears.

A reducer: ``hear`` takes one message and puts what is to be said into ``outbox``. No socket, no clock.
It is involved once per Walk, never per token.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, assert_never

from walkserve import messages as m
from walkserve.conductor.admission import fit, pages_needed
from walkserve.conductor.life import Life, Phase, TrackLife
from walkserve.conductor.served import Served
from walkserve_sdk import Fork, Outcome, Request, WalkFailed, WalkserveError
from walkserve_sdk.errors import ModelNotFound, Unavailable
from walkserve_sdk.graph import Walk
from walkserve_sdk.tracks import Finished, Step, TrackRun

log = logging.getLogger(__name__)

PREPARE = "prepare"
NOBODY = ""
"""The client of warm-up requests: what is meant for it is heard here and goes nowhere."""


class ConductorState:
    """Every model that is served, and every request that lives."""

    def __init__(self, served: Mapping[str, Served]) -> None:
        self.served = dict(served)
        self.outbox: dict[str, list[m.Message]] = defaultdict(list)
        self.phase = "starting"
        self.detail = "loading"
        self._numbers = 0
        self._lives: dict[int, tuple[Served, Life]] = {}
        self._by_tag: dict[tuple[str, int], int] = {}
        self._clients: dict[str, None] = {}

    # --- hearing ----------------------------------------------------------------------------------

    def hear(self, message: m.ToConductor) -> None:
        """One message. What goes wrong in it is its request's, never the loop's."""
        match message:
            case m.Submit():
                self._submit(message)
            case m.Cancel():
                number = self._by_tag.get((message.client, message.tag))
                if number is not None:
                    served, life = self._lives[number]
                    self._close(served, life)
            case m.Attach():
                self._clients |= {message.client: None}
                self._say(message.client, self.state())
            case m.WalkEnded() | m.WalkBroke() | m.BranchForked():
                if message.number in self._lives:
                    self._hear_of_walk(*self._lives[message.number], message)
            case m.RequestClosed():
                if message.number in self._lives:
                    self._let_go(*self._lives[message.number], message.address)
            case m.Loading():
                for client in self._clients:
                    self._say(client, message)
            case m.WorkerReady():
                self._worker_ready(message)
            case m.WorkerFailed():
                self._worker_failed(message)
            case m.WorkerLost():
                self._worker_lost(message)
            case m.Drain():
                self.phase, self.detail = "draining", "no new requests"
                self.tell_state()
            case m.Halt():
                self.phase, self.detail = "stopped", "told to stop"
            case _:
                assert_never(message)
        self._settle()

    def _settle(self) -> None:
        """What follows from everything heard so far: phases of the server."""
        if self.phase == "draining" and not self._lives:
            self.phase, self.detail = "stopped", "drained"
        if self.phase in ("starting", "ready"):
            waits = [name for name, served in self.served.items() if not served.is_ready]
            phase = "starting" if waits else "ready"
            if phase != self.phase:
                self.phase, self.detail = phase, f"waiting for {', '.join(waits)}" if waits else ""
                self.tell_state()

    def state(self) -> m.ServerState:
        """For ``/ready`` and ``/v1/server``."""
        running: dict[str, int] = defaultdict(int)
        for served, life in self._lives.values():
            running[served.name] += life.phase is Phase.RUNNING
        models = tuple(served.info(running[served.name]) for served in self.served.values())
        return m.ServerState(self.phase, self.detail, os.getpid(), models)

    def _say(self, address: str, message: m.Message) -> None:
        if address != NOBODY:
            self.outbox[address].append(message)

    def tell_state(self) -> None:
        """Tell every client how the server stands."""
        for client in self._clients:
            self._say(client, self.state())

    # --- a request begins -------------------------------------------------------------------------

    def _submit(self, message: m.Submit) -> None:
        served = self.served.get(message.model)
        try:
            if served is None:
                raise ModelNotFound(f"the model {message.model!r} is not served here", param="model")
            if self.phase == "draining" or not (served.is_ready or message.client == NOBODY):
                raise Unavailable(f"{message.model} is not ready: {self.detail or self.phase}")
            request = Request(
                parts=tuple(sent.part for sent in message.parts),
                outputs=message.outputs,
                options=m.restore_options(type(served.model).Options, message.options),
                seed=message.seed,
                given=frozenset(message.given),
            )
        except WalkserveError as error:
            self._say(message.client, m.RequestFailed(message.tag, _fault(error)))
            return
        self._begin(served, message, request)

    def _begin(self, served: Served, message: m.Submit, request: Request) -> None:
        number, self._numbers = self._numbers, self._numbers + 1
        life = Life(number, message.client, message.tag, request, set(served.addresses))
        self._lives[number] = (served, life)
        self._by_tag[(message.client, message.tag)] = number
        opened = m.OpenRequest(
            number, message.client, message.tag, message.options, request.seed, request.outputs
        )
        for address in served.addresses:
            self._say(address, opened)
        with self._blamed_on(served, life):
            walk = served.model.prepare(request)
            if walk is None:
                self._queue(served, life)
            else:
                self._start(served, life, PREPARE, 0, walk)

    def _queue(self, served: Served, life: Life) -> None:
        """Sizes are known: refuse what can never fit, let the others wait for their turn."""
        life.request, budget = fit(served.model, life.request, life.prepared, served.pools)
        life.pages = pages_needed(budget, served.pools)
        life.usage["input_tokens"] = sum(start for start, _ in budget.values())
        life.phase = Phase.WAITING
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
            self._say(life.client, m.Admitted(life.tag))
            with self._blamed_on(served, life):
                for name, spec in served.model.spec.tracks.items():
                    run = TrackRun(spec, served.model, life.request, life.prepared)
                    life.tracks[name] = TrackLife(run)
                for name, track in list(life.tracks.items()):
                    self._follow(served, life, name, track.run.start())

    # --- Walks and tracks ---------------------------------------------------------------------------

    def _hear_of_walk(
        self, served: Served, life: Life, message: m.WalkEnded | m.WalkBroke | m.BranchForked
    ) -> None:
        if life.phase is Phase.CLOSING:
            return
        with self._blamed_on(served, life):
            if message.track == PREPARE:
                if isinstance(message, m.WalkBroke):
                    raise _Told(message.fault)
                if isinstance(message, m.WalkEnded):
                    life.prepared = life.heard(message)
                    self._queue(served, life)
                return
            track = life.tracks[message.track]
            match message:
                case m.WalkEnded():
                    step = track.run.send(life.heard(message))
                    if self._is_generating(served, track.graph):
                        life.usage["output_tokens"] += message.turns
                case m.BranchForked():
                    step = track.run.send(Outcome())
                case m.WalkBroke():
                    failure = WalkFailed(
                        message.fault.message, blame=message.fault.type, status=message.fault.status
                    )
                    try:
                        step = track.run.throw(failure)
                    except WalkFailed as untaken:
                        if untaken is failure:
                            raise _Told(message.fault) from None
                        raise
            self._follow(served, life, message.track, step)

    @staticmethod
    def _is_generating(served: Served, graph: str) -> bool:
        components = served.model.spec.components
        return any(components[name].kv is not None for name in served.plans[graph].components)

    def _follow(self, served: Served, life: Life, name: str, step: Step | Finished) -> None:
        """Do what a track asks for next."""
        match step:
            case Walk():
                life.tracks[name].graph = step.graph.name
                self._start(served, life, name, life.tracks[name].run.walks - 1, step)
            case Fork():
                home = served.workers[served.ranks[step.component.name]].address
                walk = life.tracks[name].run.walks
                self._say(
                    home, m.ForkBranch(life.number, name, walk, step.component.name, step.branch, step.to)
                )
            case Finished():
                self._track_finished(served, life, name, step.reason)
            case _:
                assert_never(step)

    def _start(self, served: Served, life: Life, track: str, walk: int, step: Walk) -> None:
        inputs = {name: _value(step.graph.name, name, value) for name, value in step.inputs.items()}
        home = served.address_of(step.graph.name)
        self._say(home, m.StartWalk(life.number, track, walk, step.graph.name, inputs))

    def _track_finished(self, served: Served, life: Life, name: str, reason: str | None) -> None:
        life.tracks[name].is_finished = True
        life.reason = life.reason or reason
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
        if all(track.is_finished for track in life.tracks.values()) and len(life.tracks) == len(spec.tracks):
            ended = m.RequestEnded(
                life.tag, life.reason or "stop", life.request.seed, life.emitted, life.usage, life.counts
            )
            self._reply(life, ended)
            self._close(served, life)

    # --- a request ends -------------------------------------------------------------------------------

    def _blamed_on(self, served: Served, life: Life) -> _Blame:
        return _Blame(self, served, life)

    def fail(self, served: Served, life: Life, fault: m.Fault) -> None:
        """The request ends with an error; its client is told at once."""
        if life.phase is Phase.CLOSING:
            return
        self._reply(life, m.RequestFailed(life.tag, fault))
        self._close(served, life)

    def _reply(self, life: Life, message: m.RequestEnded | m.RequestFailed) -> None:
        if life.client == NOBODY:
            self._warmed_up(self._lives[life.number][0], message)
        else:
            self._say(life.client, message)

    def _close(self, served: Served, life: Life) -> None:
        """Take everything back, in whatever phase it is."""
        if life.phase is Phase.CLOSING:
            return
        if life.phase is Phase.WAITING:
            served.queue.remove(life)
        if life.phase is not Phase.RUNNING:
            life.pages = {}
        life.phase = Phase.CLOSING
        for track in life.tracks.values():
            track.run.close()
        self._by_tag.pop((life.client, life.tag), None)
        for address in life.holders:
            self._say(address, m.CloseRequest(life.number))
        self._forget_if_released(served, life)

    def _let_go(self, served: Served, life: Life, address: str) -> None:
        life.holders.discard(address)
        self._forget_if_released(served, life)

    def _forget_if_released(self, served: Served, life: Life) -> None:
        if life.holders or life.phase is not Phase.CLOSING:
            return
        for part, pages in life.pages.items():
            served.reserved[part] -= pages
        del self._lives[life.number]
        self._admit(served)

    # --- workers ----------------------------------------------------------------------------------------

    def _served_with(self, worker: str) -> Served:
        return next(served for served in self.served.values() if worker in served.workers)

    def _worker_ready(self, message: m.WorkerReady) -> None:
        served = self._served_with(message.worker)
        record = served.workers[message.worker]
        record.address, record.pid, record.state = message.address, message.pid, "ready"
        record.components = message.components
        served.pools |= message.pools
        if served.has_all_workers:
            addresses = {name: worker.address for name, worker in served.workers.items()}
            for address in addresses.values():
                self._say(address, m.PeersChanged(addresses))
            self._warm_up(served)
        self.tell_state()

    def _warm_up(self, served: Served) -> None:
        request = served.model.warm_up()
        if request is None:
            served.is_warm = True
            return
        parts = tuple(m.SentPart.of(part) for part in request.parts)
        self._submit(
            m.Submit(
                NOBODY, self._numbers, served.name, parts, request.outputs, request.options, request.seed
            )
        )

    def _warmed_up(self, served: Served, message: m.RequestEnded | m.RequestFailed) -> None:
        if isinstance(message, m.RequestEnded):
            served.is_warm = True
        else:
            self.phase, self.detail = "stopped", f"{served.name}: its warm-up failed: {message.fault.message}"
            self.tell_state()

    def _worker_failed(self, message: m.WorkerFailed) -> None:
        self.phase, self.detail = "stopped", f"{message.worker} cannot start: {message.fault.message}"
        self.tell_state()

    def _worker_lost(self, message: m.WorkerLost) -> None:
        """Its requests fail at once; the others go on. Whoever said so also starts it again."""
        served = self._served_with(message.worker)
        record = served.workers[message.worker]
        if record.address == message.address:
            record.state = "lost"
        served.is_warm = False
        for owner, life in list(self._lives.values()):
            if message.address in life.holders:
                life.holders.discard(message.address)
                fault = m.Fault(f"{served.name} lost a worker; try again", 503, "unavailable", "worker_lost")
                self.fail(owner, life, fault)
                self._forget_if_released(owner, life)
        self.detail = f"{message.worker} {message.why}"
        self.tell_state()

    @property
    def open_requests(self) -> int:
        return len(self._lives)


class _Told(Exception):
    """A fault that is to reach the client as it is."""

    def __init__(self, fault: m.Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Blame:
    """Whatever is raised within fails this request and nothing else."""

    def __init__(self, state: ConductorState, served: Served, life: Life) -> None:
        self.state, self.served, self.life = state, served, life

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        match error:
            case None:
                return False
            case _Told():
                fault = error.fault
            case WalkserveError():
                fault = _fault(error)
            case Exception():
                log.error("request %d: its plan raised", self.life.number, exc_info=error)
                fault = m.Fault(
                    f"the plan of {self.served.name} raised {type(error).__name__}", code="plan_failed"
                )
            case _:
                return False
        self.state.fail(self.served, self.life, fault)
        return True


def _fault(error: WalkserveError) -> m.Fault:
    return m.Fault(str(error), error.status, error.type, error.code, error.param)


def _value(graph: str, name: str, value: Any) -> m.Value:
    if value is None or isinstance(value, bool | int | float | str | m.Blob | m.Array | m.TensorRef):
        return value
    if isinstance(value, bytes):
        return m.Blob(value)
    if isinstance(value, list | tuple) and all(isinstance(one, int) for one in value):
        return list(value)
    raise WalkFailed(f"{graph}: its input {name!r} is a {type(value).__name__}, which no Walk can take")
