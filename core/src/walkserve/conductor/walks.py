"""What a request's plan asks for, Walks and forks, and what it is told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from walkserve import messages as m
from walkserve.conductor.blame import Told, throw
from walkserve.conductor.client_streams import ClientStreams
from walkserve.conductor.handles import Handles
from walkserve.conductor.life import Life, TrackLife, Walked
from walkserve_sdk import Fork, Outcome, WalkFailed
from walkserve_sdk.graph import Walk
from walkserve_sdk.tracks import Finished, Step, TrackRun

PREPARE = "prepare"
"""The track of the one Walk that is made before a request's sizes are known."""


class Walks:
    """Says to workers what plans ask for. What a plan raises is its request's; whoever calls this sees to it.

    Args:
        say: Sends a message to an address.
        clients: The streams that clients write.
        handles: Told what tracks are told.
    """

    def __init__(
        self, say: Callable[[str, m.Message], None], clients: ClientStreams, handles: Handles
    ) -> None:
        self._say = say
        self._clients = clients
        self._handles = handles

    def start_preparing(self, life: Life) -> bool:
        """Ask the family for its first Walk; False where it needs none."""
        walk = life.served.model.prepare(life.request)
        if walk is not None:
            self._start(life, PREPARE, 0, walk)
        return walk is not None

    def hear_prepared(self, life: Life, message: Walked) -> None:
        """The first Walk is over. Raises Told where it broke."""
        if life.journal is not None:
            life.journal.heard(message)
        match message:
            case m.WalkEnded() if message.track == PREPARE:
                life.prepared = life.heard(message)
            case m.WalkBroke():
                raise Told(message.fault)
            case _:
                raise RuntimeError(f"nobody asked for {message!r:.200}")

    def start_tracks(self, life: Life) -> None:
        """All of them; each goes on to what it asks for first."""
        model = life.served.model
        for name, spec in model.spec.tracks.items():
            life.tracks[name] = TrackLife(TrackRun(spec, model, life.request, life.prepared))
        for name, track in life.tracks.items():
            self._follow(life, name, track.run.start())

    def resume(self, life: Life, message: Walked) -> None:
        """Tell a track what came of its Walk. Raises Told where it does not take that one broke."""
        if isinstance(message, m.WalkBroke):
            life.add_written(message)
        track = life.tracks[message.track]
        if track.is_finished or message.walk != track.waits_for:
            return  # said twice
        if life.journal is not None:
            life.journal.heard(message)
        track.given = {}
        match message:
            case m.WalkEnded():
                self._handles.watch(life.number, message.values.values())
                step = track.run.send(life.heard(message))
            case m.BranchForked():
                step = track.run.send(Outcome())
            case m.WalkBroke():
                step = throw(track.run, message.fault)
        self._follow(life, message.track, step)

    def _follow(self, life: Life, name: str, step: Step | Finished) -> None:
        """Do what a track asks for next."""
        track, served = life.tracks[name], life.served
        match step:
            case Walk():
                track.waits_for = track.run.walks - 1
                self._start(life, name, track.waits_for, step)
            case Fork(component, branch, to):
                track.waits_for = track.run.walks
                home = served.workers[served.ranks[component.name]].address
                if life.journal is not None:
                    life.journal.fork_started(name, track.waits_for, step)
                self._say(home, m.ForkBranch(life.number, name, track.waits_for, component.name, branch, to))
            case Finished():
                self._finish(life, name, step.reason)
            case _:
                assert_never(step)

    def _start(self, life: Life, track: str, walk: int, step: Walk) -> None:
        inputs = {name: _value(step.graph.name, name, value) for name, value in step.inputs.items()}
        home = life.served.address_of(step.graph.name)
        if life.trace is not None:
            life.trace.walk_started(track, walk, step.graph.name, home, inputs)
        if life.journal is not None:
            life.journal.walk_started(track, walk, step.graph.name, inputs)
        if track in life.tracks:  # else it prepares, and what that gives is kept anyway
            life.tracks[track].given = inputs
        most = life.most if life.served.plans[step.graph.name].fans else {}
        self._say(home, m.StartWalk(life.number, track, walk, step.graph.name, inputs, most))

    def _finish(self, life: Life, name: str, reason: str | None) -> None:
        """A track has returned: what it wrote has an end, and what it read is read no more."""
        track, served = life.tracks[name], life.served
        track.is_finished, track.reason = True, reason
        if life.journal is not None:
            life.journal.track_finished(name, reason)
        spec = served.model.spec
        for stream, writer in spec.writers.items():
            if writer == name:
                reader = served.workers[served.reader_of[stream]].address
                self._say(reader, m.EndStream(life.number, stream, life.wrote.get(stream, 0)))
        for stream, reading in spec.readers.items():
            if reading != name:
                continue
            if stream in life.client_ends:
                self._clients.discard(life, stream)
            elif stream in served.writer_of:
                writing = served.workers[served.writer_of[stream]].address
                self._say(writing, m.DiscardStream(life.number, stream))


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
            if not m.unfit(items):
                return items
        case dict():
            fields = {key: _value(graph, f"{name}.{key}", one) for key, one in value.items()}
            if not m.unfit(fields):
                return m.Named(fields)
        case int() if not -(2**63) <= value < 2**64:
            raise WalkFailed(f"{graph}: its input {name!r} is beyond 64 bits")
        case None | bool() | int() | float() | str() | m.Blob() | m.Array() | m.TensorRef() | m.Named():
            return value
    raise WalkFailed(f"{graph}: its input {name!r} is a {type(value).__name__}, which no Walk can take")
