"""One request's life as the conductor knows it: where it stands, what it holds, what it has given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walkserve import messages as m
from walkserve.conductor.life_table import Phase
from walkserve.conductor.trace import Trace
from walkserve.journal.recorder import Recorder
from walkserve.streams.client import ClientEnd
from walkserve_sdk import Outcome, Request
from walkserve_sdk.tracks import TrackRun

if TYPE_CHECKING:
    from walkserve.conductor.served import Served
    from walkserve.conductor.stalls import Rounds

Walked = m.WalkEnded | m.WalkBroke | m.BranchForked
"""What workers say of what a plan has asked for."""


@dataclass(slots=True)
class TrackLife:
    """One track of one request: its generator, and how it finished."""

    run: TrackRun
    waits_for: int = -1  # number of the Walk that runs; of a Fork, the number of the Walk after it
    given: dict[str, m.Value] = field(
        default_factory=dict
    )  # what that Walk takes: it may not have read it yet
    is_finished: bool = False
    reason: str | None = None


@dataclass(slots=True, eq=False)
class Life:
    """The ledger of one request.

    Args:
        served: The model it is of.
        label: Its id as its client knows it, for logs.
        holders: Addresses of workers that hold something of it.
        pages: What it needs of each cached component; ``is_reserved`` from when it is admitted.
        most: Tokens that a branch of each of these may come to.
        timeout_s: How long it may take; None for as long as it takes.
        trace: What happened when; None where profiles are off.
        rounds: Of asking whether it hangs, or waits for its client; None while there was no reason to.
        client_ends: The streams that its client writes, by name.
        rests: All of it waits for its client, and nothing has happened since that was known.
        journal: Writes down what its plan asks for and is told, up to its end; None where journals are off.
    """

    number: int
    served: Served
    client: str
    tag: int
    request: Request
    holders: set[str]
    trace: Trace | None = None
    journal: Recorder | None = None
    label: str = ""
    timeout_s: float | None = None
    phase: Phase = Phase.PREPARING
    prepared: Outcome = field(default_factory=Outcome)
    tracks: dict[str, TrackLife] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    is_reserved: bool = False
    wrote: dict[str, int] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    rounds: Rounds | None = None
    client_ends: dict[str, ClientEnd] = field(default_factory=dict)
    rests: bool = False
    usage: dict[str, int] = field(default_factory=lambda: {"input_tokens": 0, "output_tokens": 0})

    def heard(self, ended: m.WalkEnded) -> Outcome:
        """Add a Walk's counts to the request's; what its track is told."""
        self.add_written(ended)
        for name, count in ended.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.usage["output_tokens"] += ended.sampled
        return Outcome(ended.values, ended.ended_by, ended.turns)

    def add_written(self, over: m.WalkEnded | m.WalkBroke) -> None:
        """What a Walk wrote and emitted is on its way, however it ended."""
        for stream, count in over.wrote.items():
            self.wrote[stream] = self.wrote.get(stream, 0) + count
        self.emitted |= over.emitted

    def mark(self, what: str) -> None:
        """Note it in the request's profile, if it has one."""
        if self.trace is not None:
            self.trace.mark(what)

    @property
    def open_ends(self) -> list[str]:
        """Streams that its client has not ended, and that are still read."""
        return [name for name, end in self.client_ends.items() if end.is_open]

    @property
    def finish_reason(self) -> str:
        """Of the first declared track that gave one."""
        return next((track.reason for track in self.tracks.values() if track.reason), "stop")

    @property
    def is_finished(self) -> bool:
        return all(track.is_finished for track in self.tracks.values())
