"""A profile as lanes: for each component the batches it ran in and what it waited for, and streams' fill."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from walkserve.profiles.report import CallProfile, Profile, WorkerProfile

PHASES = (("prepare", "submitted", "prepared"), ("wait for room", "prepared", "admitted"))
ENDS = ("ended", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time with a name."""

    name: str
    began_us: int
    ended_us: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One batch; ``part`` of it was this request's."""

    began_us: int
    ended_us: int
    part: float


@dataclass(slots=True)
class Lane:
    """One component of one worker. ``waits`` are named "stream", "branch" and "batch"."""

    worker: str
    component: str
    bars: list[Bar] = field(default_factory=list)
    waits: list[Span] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fill:
    """How many items a stream held: (at_us, items), each from then on."""

    stream: str
    source: str
    target: str
    held: list[tuple[int, int]]

    @property
    def most(self) -> int:
        return max((items for _, items in self.held), default=0)


def phases(call: CallProfile) -> list[Span]:
    """What the conductor did with it: prepare, wait for pages, run."""
    at = {mark.what: mark.at_us for mark in call.marks}
    end = next((at[what] for what in ENDS if what in at), None)
    found = [Span(name, at[first], at[last]) for name, first, last in PHASES if first in at and last in at]
    if "admitted" in at and end is not None:
        found.append(Span("run", at["admitted"], end))
    return found


def walks(call: CallProfile, until_us: int) -> dict[str, list[Span]]:
    """By track, its Walks; one whose end was not heard lasts as long as the request."""
    found: dict[str, list[Span]] = {}
    for walk in call.walks:
        turns = f", {walk.turns} turns" if walk.turns > 1 else ""
        name = f"{walk.graph}{turns}, {walk.ended_by}" if walk.ended_by else walk.graph
        end = until_us if walk.ended_us is None else walk.ended_us
        found.setdefault(walk.track, []).append(Span(name, walk.began_us, end))
    return found


def lanes(profile: Profile) -> list[Lane]:
    """Worker by worker, component by component, in the order in which they first ran."""
    found: dict[tuple[str, str], Lane] = {}
    for worker in _workers(profile):
        steps = worker.steps
        names = [name.rpartition(".")[0] for name in steps.methods]
        for n, method in enumerate(steps.method):
            key = (worker.worker, names[method])
            lane = found.setdefault(key, Lane(*key))
            began, queued, ready = steps.began_us[n], steps.queued_us[n], steps.ready_us[n]
            lane.bars.append(Bar(began, steps.ended_us[n], 1 / steps.rows[n]))
            streamed = min(ready + steps.stream_wait_us[n], queued)
            lane.waits += _spans(
                ("stream", ready, streamed), ("branch", streamed, queued), ("batch", queued, began)
            )
    return sorted(
        found.values(), key=lambda lane: (_first(found.values(), lane.worker), lane.bars[0].began_us)
    )


def fills(profile: Profile) -> list[Fill]:
    """Every stream's fill, of what was given to it and read from it in whatever worker."""
    given: dict[str, str] = {}
    read: dict[str, str] = {}
    changes: dict[str, list[tuple[int, int]]] = {}
    for worker in _workers(profile):
        for flow in worker.flows:
            if flow.kind != "stream":
                continue
            (read if flow.is_read else given)[flow.name] = flow.component
            sign = -1 if flow.is_read else 1
            pairs = zip(flow.at_us, flow.items, strict=True)
            changes.setdefault(flow.name, []).extend((at_us, sign * items) for at_us, items in pairs)
    return [
        Fill(stream, given.get(stream, ""), read.get(stream, ""), _running(each))
        for stream, each in changes.items()
    ]


def outputs(profile: Profile) -> dict[str, list[int]]:
    """When each output's items were given."""
    found: dict[str, list[int]] = {}
    for worker in _workers(profile):
        for flow in worker.flows:
            if flow.kind == "output":
                found.setdefault(flow.name, []).extend(flow.at_us)
    return found


def _workers(profile: Profile) -> Iterable[WorkerProfile]:
    return (worker for call in profile.calls for worker in call.workers)


def _spans(*spans: tuple[str, int, int]) -> list[Span]:
    return [Span(*span) for span in spans if span[2] > span[1]]


def _first(lanes: Iterable[Lane], worker: str) -> int:
    return min(lane.bars[0].began_us for lane in lanes if lane.worker == worker)


def _running(changes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    held, found = 0, []
    for at_us, change in sorted(changes, key=lambda one: (one[0], -one[1])):
        held += change
        found.append((at_us, max(held, 0)))
    return found
