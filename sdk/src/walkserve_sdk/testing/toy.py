"""The toy runtime: walks a declaration without weights, track by track, in one deterministic order.

It is the executable form of the runtime's rules, one process, one row a batch, every call committed when
it returns. Tracks take turns, one call each; a track that waits for a stream lets the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from walkserve_sdk.errors import DeclarationError, WalkFailed
from walkserve_sdk.graph import Walk, WalkGraph
from walkserve_sdk.models import Model
from walkserve_sdk.requests import Request
from walkserve_sdk.stalls import StreamWait, stalled
from walkserve_sdk.testing.toy_plans import Plans
from walkserve_sdk.testing.toy_result import ToyResult, ToyStep
from walkserve_sdk.testing.toy_streams import ToyStream
from walkserve_sdk.testing.toy_walks import ToyLive, ToyWalk
from walkserve_sdk.tracks import Finished, Outcome, TrackRun

Task = Generator["StreamWait | None", None, "str | None"]


class ToyRuntime:
    """Runs requests of one model, one at a time.

    Args:
        model: The declaration.
        components: Fakes by component name: objects with the methods that nodes call, each taking a
            ``ToyCall`` and returning a mapping of what the node gives. A component without one gives
            words such as ``"llama.next(ids)"``.
        turns: Turns of a loop that only a stop would end and in which nobody is there to say so; also the
            length of a list of which only a word is known.
    """

    def __init__(
        self, model: Model, components: Mapping[str, object] | None = None, *, turns: int = 3
    ) -> None:
        self.model = model
        self.plans = Plans(model, components or {}, turns)

    def run(
        self,
        request: Request,
        *,
        client: Mapping[str, Iterable[Any]] | None = None,
        cancel_after: int | None = None,
    ) -> ToyResult:
        """Walk a request to its end.

        Args:
            request: From ``model.request(...)``.
            client: Items of the streams that the client writes, and then closes.
            cancel_after: Cancel the request once so many calls were made.

        Raises:
            WalkFailed: A Walk failed and its track did not take it, or all Walks wait on the request's own
                streams.
        """
        result = ToyResult(outputs={name: [] for name in request.outputs})
        streams = {name: ToyStream(stream) for name, stream in self.model.spec.streams.items()}
        result.streams = {name: stream.total for name, stream in streams.items()}
        live = ToyLive(self.plans, request.options, request.seed, streams, result, result.counts)
        result.branches = live.branches.known
        self._prepare(request, live)
        return _Request(self.model, request, live, self._from_client(client or {})).run(cancel_after)

    def _prepare(self, request: Request, live: ToyLive) -> None:
        walk = self.model.prepare(request)
        if walk is not None:
            walking = ToyWalk(live, "prepare", 0).run(walk)
            try:
                while True:
                    next(walking)
            except StopIteration as end:
                live.result.prepared = end.value
        budget = self.model.budget(request, live.result.prepared)
        live.result.budget = {component.name: size for component, size in budget.items()}

    def _from_client(self, client: Mapping[str, Iterable[Any]]) -> dict[str, deque[Any]]:
        theirs = [name for name, stream in self.model.spec.streams.items() if stream.by == "client"]
        for name in client:
            if name not in theirs:
                raise DeclarationError(
                    f"the client writes no stream {name!r}; it writes {', '.join(theirs) or 'none'}"
                )
        return {name: deque(client.get(name, ())) for name in theirs}


class _Request:
    """One request while it runs."""

    def __init__(self, model: Model, request: Request, live: ToyLive, client: dict[str, deque[Any]]) -> None:
        spec = model.spec
        self.model = model
        self.live = live
        self.client = client
        self.reads = {
            track: [s for s, reader in spec.readers.items() if reader == track] for track in spec.tracks
        }
        self.writes = {
            track: [s for s, writer in spec.writers.items() if writer == track] for track in spec.tracks
        }
        self.runs = {
            name: TrackRun(track, model, request, live.result.prepared) for name, track in spec.tracks.items()
        }
        self.reasons: dict[str, str | None] = dict.fromkeys(spec.tracks)

    def run(self, cancel_after: int | None) -> ToyResult:
        result = self.live.result
        tasks: dict[str, Task] = {name: self._track(name, run) for name, run in self.runs.items()}
        try:
            while tasks:
                has_moved = self._hear_client()
                waits: list[StreamWait] = []
                for name, task in list(tasks.items()):
                    if cancel_after is not None and self.live.called >= cancel_after:
                        result.finish_reason = "cancelled"
                        return result
                    try:
                        wait = next(task)
                    except StopIteration as end:
                        del tasks[name]
                        self._end_track(name, end.value)
                        has_moved = True
                        continue
                    if wait is None:
                        has_moved = True
                    else:
                        waits.append(wait)
                if not has_moved:
                    raise WalkFailed(stalled(self.model.spec.streams, waits))
        finally:
            for task in tasks.values():
                task.close()
            for run in self.runs.values():
                run.close()
        result.finish_reason = next((reason for reason in self.reasons.values() if reason), "stop")
        return result

    def _track(self, name: str, run: TrackRun) -> Task:
        live = self.live
        step = run.start()
        while not isinstance(step, Finished):
            if isinstance(step, Walk):
                self._check_owned(name, step.graph)
                try:
                    outcome = yield from ToyWalk(live, name, run.walks - 1).run(step)
                except WalkFailed as failure:
                    step = run.throw(failure)
                    continue
            else:
                component = step.component.name
                live.branches.fork(component, step.branch, step.to)
                live.result.steps.append(ToyStep(name, "fork", (component, step.branch, step.to)))
                outcome = Outcome()
            step = run.send(outcome)
        return step.reason

    def _check_owned(self, track: str, graph: WalkGraph) -> None:
        if self.model.spec.graphs.get(graph.name) is not graph:
            raise DeclarationError(
                f"{self.model.spec.name}.{track}: it walks {graph!r}, which is not the model's"
            )

    def _end_track(self, name: str, reason: str | None) -> None:
        self.reasons[name] = reason
        for stream in self.writes[name]:
            self.live.streams[stream].end()
        for stream in self.reads[name]:
            self.live.streams[stream].discard()

    def _hear_client(self) -> bool:
        """One item a round of every stream that the client writes, while there is room; then its end."""
        has_moved = False
        for name, items in self.client.items():
            stream = self.live.streams[name]
            if items and stream.has_room:
                stream.push(items.popleft())
                has_moved = True
            if not items and not stream.is_ended:
                stream.end()
                has_moved = True
        return has_moved
