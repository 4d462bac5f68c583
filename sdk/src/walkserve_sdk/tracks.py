"""Tracks: the concurrent plans of a request, each a generator that is resumed once per Walk."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from walkserve_sdk.components import Component
from walkserve_sdk.errors import DeclarationError, WalkFailed, did_you_mean
from walkserve_sdk.graph import Walk
from walkserve_sdk.streams import Stream


@dataclass(frozen=True)
class Fork:
    """Continue ``component``'s cache and state under a second name, sharing the pages it has so far.

    A fork onto an existing name replaces it. A branch that was never forked nor written is empty.

    Args:
        branch: What is continued; None begins ``to`` anew, empty.
    """

    component: Component
    branch: str | None
    to: str

    def __post_init__(self) -> None:
        known = self.component.branches
        for name in (self.branch, self.to):
            if name is not None and name not in known:
                raise DeclarationError(
                    f"Fork({self.component!r}): no branch {name!r}{did_you_mean(name, known)}; "
                    "branches are declared by Component(kv=PagedKV(branches=...))"
                )


@dataclass(frozen=True)
class Outcome(Mapping[str, Any]):
    """What a Walk gave: numbers and text to read, tensors as handles to pass on to another Walk.

    Args:
        values: By the names its nodes gave.
        ended_by: How its last loop ended: a stop's reason, ``"times"`` (out of turns), ``"each"`` (out of
            items) or ``"stream"``; ``"end"`` for a graph without a loop.
        turns: Committed turns of all its loops.
    """

    values: Mapping[str, Any] = field(default_factory=dict)  # type: ignore[assignment]  # in place of the view
    ended_by: str = "end"
    turns: int = 0

    @property
    def finish_reason(self) -> str:
        """``ended_by`` in a client's words: running out of turns is ``"length"``."""
        return {"times": "length", "end": "stop", "each": "stop", "stream": "stop"}.get(
            self.ended_by, self.ended_by
        )

    def __getitem__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise KeyError(f"the Walk gave no {name!r}{did_you_mean(name, self.values)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


Step = Walk | Fork
Track = Generator[Step, Outcome, "str | None"]
TrackFunction = Callable[..., "Track | None"]


@dataclass(frozen=True)
class TrackSpec:
    """A track as declared: its name, its function, the streams that end when it does."""

    function: TrackFunction
    writes: tuple[Stream, ...]
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)


@overload
def track(function: TrackFunction, /) -> TrackSpec: ...
@overload
def track(*, writes: Stream | Iterable[Stream] = ()) -> Callable[[TrackFunction], TrackSpec]: ...
def track(
    function: TrackFunction | None = None, /, *, writes: Stream | Iterable[Stream] = ()
) -> TrackSpec | Callable[[TrackFunction], TrackSpec]:
    """Declare a method ``(self, request, prepared)`` as a track; a gerund.

    It is a generator that yields Walks and Forks and is sent their Outcomes. It looks only at the request
    and at outcomes, so that it can be replayed. What it returns is the reason its part of the request
    finished, or None if it has none to give.

    Args:
        writes: Streams this track writes; they end when it does.
    """
    if function is not None:
        return TrackSpec(function, ())
    streams = (writes,) if isinstance(writes, Stream) else tuple(writes)
    return lambda function: TrackSpec(function, streams)


@dataclass(frozen=True)
class Finished:
    """A track came to its end, with the finish reason it returned."""

    reason: str | None


class TrackRun:
    """One track of one request while it runs: a generator, advanced by whoever owns the request."""

    def __init__(self, spec: TrackSpec, model: Any, request: Any, prepared: Outcome) -> None:
        self.spec = spec
        self.walks = 0
        started = spec.function(model, request, prepared)
        if started is not None and not isinstance(started, Generator):
            raise DeclarationError(
                f"{spec.name}: a track is a generator, this one returned {started!r}; write yield, not return"
            )
        self._plan: Track | None = started

    def start(self) -> Step | Finished:
        """The first thing the track asks for."""
        if self._plan is None:
            return Finished(None)
        plan = self._plan
        return self._resume(lambda: next(plan))

    def send(self, outcome: Outcome) -> Step | Finished:
        """Resume it with what its last step gave; the next thing it asks for."""
        assert self._plan is not None
        plan = self._plan
        return self._resume(lambda: plan.send(outcome))

    def throw(self, failure: WalkFailed) -> Step | Finished:
        """Tell it that its last Walk failed. Raises ``failure`` again unless the track takes it."""
        assert self._plan is not None
        plan = self._plan
        return self._resume(lambda: plan.throw(failure))

    def close(self) -> None:
        """Cancel it: its ``finally`` clauses run, nothing more is asked for."""
        if self._plan is not None:
            self._plan.close()

    def _resume(self, go_on: Callable[[], Step]) -> Step | Finished:
        try:
            step = go_on()
        except StopIteration as end:
            if not isinstance(end.value, str | None):
                raise DeclarationError(
                    f"{self.spec.name}: a track returns a finish reason or None, not {end.value!r}"
                ) from None
            return Finished(end.value)
        if not isinstance(step, Walk | Fork):
            self.close()
            raise DeclarationError(f"{self.spec.name}: a track yields Walks and Forks, not {step!r}")
        if isinstance(step, Walk):
            self.walks += 1
        return step
