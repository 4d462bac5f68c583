"""What the conductor writes down of one request, where journals are on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic_ns
from typing import Any, Protocol

import msgspec

from walkserve import messages as m
from walkserve.journal import entries as e
from walkserve.journal.notes import BytesNote, Describer, NumberNote
from walkserve_sdk import Budget, Fork, Request

Write = Callable[[e.Line], None]


class Journals(Protocol):
    """Where the journals of a server's requests go."""

    def begin(
        self, number: int, submit: m.Submit, request: Request, pools: Mapping[str, m.PoolInfo]
    ) -> Recorder | None:
        """The journal of a request that is accepted now; None where it can have none."""

    def flush(self) -> None:
        """Write down what has gathered."""


class Recorder:
    """Says of one request what has happened, as entries. It has a clock, and nothing follows from it.

    Args:
        write: Takes an entry, and keeps nothing of it that may change.
        clock: Nanoseconds of CLOCK_MONOTONIC.
    """

    def __init__(self, write: Write, clock: Callable[[], int] = monotonic_ns) -> None:
        self._write = write
        self._clock = clock
        self._began_ns = clock()
        self._describe = Describer()

    @property
    def _at_ms(self) -> float:
        return round((self._clock() - self._began_ns) / 1e6, 3)

    def opened(
        self,
        number: int,
        submit: m.Submit,
        request: Request,
        pools: Mapping[str, m.PoolInfo],
        origin: e.Origin,
    ) -> None:
        """It was accepted."""
        self._write(
            e.Opened(
                at_ms=0.0,
                journal=e.FORMAT,
                time=datetime.now(UTC).isoformat(timespec="milliseconds"),
                number=number,
                label=submit.label,
                model=submit.model,
                origin=origin,
                parts=tuple(self._part(part) for part in submit.parts),
                outputs=tuple(request.outputs),
                options=_plain(msgspec.to_builtins(request.options)),
                given=tuple(sorted(request.given)),
                seed=request.seed,
                pools=dict(pools),
                writes=tuple(submit.writes),
            )
        )

    def _part(self, part: m.SentPart) -> e.PartNote:
        if part.kind == "text":
            return e.PartNote(part.kind, text=part.data.decode(), name=part.name)
        media = BytesNote(len(part.data), self._describe.hash(part.data))
        return e.PartNote(part.kind, media=media, name=part.name)

    def sized(self, budget: Budget, pages: Mapping[str, int], cut: Mapping[str, Any]) -> None:
        """Its sizes are known; ``cut`` is the option that was cut to what fits."""
        sizes = {part.name: (start, more) for part, (start, more) in budget.items()}
        self._write(e.Sized(at_ms=self._at_ms, budget=sizes, pages=dict(pages), cut=dict(cut)))

    def admitted(self) -> None:
        """It has its caches."""
        self._write(e.Admitted(at_ms=self._at_ms))

    def walk_started(self, track: str, walk: int, graph: str, inputs: Mapping[str, m.Value]) -> None:
        """A track asked for a Walk."""
        notes = self._describe.notes(inputs)
        self._write(e.WalkStarted(at_ms=self._at_ms, track=track, walk=walk, graph=graph, inputs=notes))

    def fork_started(self, track: str, walk: int, fork: Fork) -> None:
        """A track asked for a fork."""
        self._write(
            e.ForkStarted(
                at_ms=self._at_ms,
                track=track,
                walk=walk,
                component=fork.component.name,
                branch=fork.branch,
                to=fork.to,
            )
        )

    def heard(self, message: m.WalkEnded | m.WalkBroke | m.BranchForked) -> None:
        """A worker said so, and a track is told."""
        at_ms, track, walk = self._at_ms, message.track, message.walk
        match message:
            case m.WalkEnded():
                entry: e.Line = e.WalkEnded(
                    at_ms=at_ms,
                    track=track,
                    walk=walk,
                    ended_by=message.ended_by,
                    turns=message.turns,
                    sampled=message.sampled,
                    values=self._describe.notes(message.values),
                    wrote=message.wrote,
                    emitted=message.emitted,
                    counts=message.counts,
                )
            case m.WalkBroke():
                entry = e.WalkBroke(
                    at_ms=at_ms,
                    track=track,
                    walk=walk,
                    fault=message.fault,
                    wrote=message.wrote,
                    emitted=message.emitted,
                )
            case m.BranchForked():
                entry = e.Forked(at_ms=at_ms, track=track, walk=walk)
        self._write(entry)

    def client_wrote(self, message: m.WriteStream | m.FinishStream) -> None:
        """Its client wrote to a stream, or writes no more."""
        at_ms, stream = self._at_ms, message.stream
        if isinstance(message, m.FinishStream):
            self._write(e.ClientFinished(at_ms=at_ms, stream=stream, total=message.total))
        else:
            items = [self._describe.note(item) for item in message.items]
            self._write(e.ClientWrote(at_ms=at_ms, stream=stream, first=message.first, items=items))

    def track_finished(self, track: str, reason: str | None) -> None:
        """A track returned."""
        self._write(e.TrackFinished(at_ms=self._at_ms, track=track, reason=reason))

    def told(self, message: m.RequestEnded | m.RequestFailed) -> None:
        """Its client is told how it ended."""
        if isinstance(message, m.RequestFailed):
            self._write(e.Failed(at_ms=self._at_ms, fault=message.fault))
            return
        self._write(
            e.Ended(
                at_ms=self._at_ms,
                finish_reason=message.finish_reason,
                emitted=dict(message.emitted),
                usage=dict(message.usage),
                counts=dict(message.counts),
            )
        )

    def cancelled(self) -> None:
        """Whoever asked has left."""
        self._write(e.Cancelled(at_ms=self._at_ms))


def _plain(value: Any) -> Any:
    """Options as JSON can have them: a number that it cannot write as a note."""
    match value:
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case float() if not math.isfinite(value):
            return NumberNote(str(value))
        case _:
            return value
