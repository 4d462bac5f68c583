"""A request's profile as clients are told it, made of what the conductor and the workers have noted.

Times are whole microseconds from when the request was accepted. All are of CLOCK_MONOTONIC, which the
processes of one host share, so they can be compared across processes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from walkserve import messages as m

CLOCK = "CLOCK_MONOTONIC, microseconds from when the request was accepted"
STEP_FIELDS = (
    *("method", "track", "walk", "turn", "tokens", "rows"),
    *("ready_ns", "queued_ns", "began_ns", "ended_ns", "stream", "stream_wait_ns"),
)
"""The numbers of one step in ``Profiled.steps``. ``method``, ``track`` and ``stream`` count the tuples of
``Profiled``; the stream is the one it waited for last, -1 for none. A call is ready when its values are
there, and queued when its streams and its branch let it go."""
FLOW_FIELDS = ("edge", "at_ns", "items")
"""The numbers of one flow in ``Profiled.flows``: items given to an edge at a time, or read from it."""


class Mark(Struct, frozen=True):
    """Something that happened to a call: submitted, prepared, admitted, ended, failed, cancelled."""

    what: str
    at_us: int


class WalkProfile(Struct, frozen=True):
    """One Walk, from the conductor's order to its end; ``ended_us`` is null if that was not heard."""

    track: str
    walk: int
    graph: str
    worker: str
    began_us: int
    ended_us: int | None
    ended_by: str
    turns: int
    bytes_in: int
    bytes_out: int


class MethodProfile(Struct, frozen=True):
    """One method of one component.

    ``busy_us`` is the time of all batches with a row of this request, ``share`` that by the request's time,
    and ``cost_us`` counts of each batch only this request's part, its time divided by its rows. What its
    calls waited for in all: a stream, their branch (the turn before), a batch.
    """

    component: str
    method: str
    worker: str
    calls: int
    tokens: int
    mean_rows: float
    busy_us: int
    share: float
    cost_us: int
    stream_wait_us: int
    branch_wait_us: int
    batch_wait_us: int


class EdgeProfile(Struct, frozen=True):
    """What went from here to there: items of a stream or an output, or the values of a graph's Walks."""

    kind: str  # "stream" | "output" | "value"
    name: str
    source: str
    target: str
    items: int
    bytes: int


class Steps(Struct, frozen=True):
    """Calls in the order in which they ended, a column per field; a ``stream`` of -1 is none."""

    methods: list[str]
    tracks: list[str]
    streams: list[str]
    method: list[int]
    track: list[int]
    walk: list[int]
    turn: list[int]
    tokens: list[int]
    rows: list[int]
    ready_us: list[int]
    queued_us: list[int]
    began_us: list[int]
    ended_us: list[int]
    stream: list[int]
    stream_wait_us: list[int]


class Flow(Struct, frozen=True):
    """When a component gave items to a stream or an output, or read them from a stream."""

    kind: str
    name: str
    component: str
    is_read: bool
    at_us: list[int]
    items: list[int]


class WorkerProfile(Struct, frozen=True):
    """What one worker noted; ``uncounted`` calls came after those that are kept one by one."""

    worker: str
    steps: Steps
    flows: list[Flow]
    uncounted: int


class CallProfile(Struct, frozen=True):
    """One request to the runtime. A response that is made of several has one of these for each."""

    complete: bool
    marks: list[Mark]
    walks: list[WalkProfile]
    methods: list[MethodProfile]
    edges: list[EdgeProfile]
    workers: list[WorkerProfile]


class Profile(Struct, frozen=True):
    """Where a request's time went. Incomplete while it runs, and where a worker was lost."""

    complete: bool
    clock: str
    first_output_us: int | None
    took_us: int
    calls: list[CallProfile]


class ProfiledRequest(Struct, frozen=True):
    """What a time line needs of ``GET /v1/requests/{id}``."""

    id: str
    model: str
    state: str
    finish_reason: str | None = None
    took_s: float | None = None
    audio_s: dict[str, float] = {}
    usage: dict[str, int] = {}
    underruns: int = 0
    profile: Profile | None = None


@dataclass(slots=True)
class Notes:
    """What has been told of one call so far."""

    traced: m.Traced | None = None
    parts: dict[str, m.Profiled] = field(default_factory=dict)  # by the worker's address
    lost: set[str] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether everybody has told theirs."""
        return self.traced is not None and all(address in self.parts for address in self.traced.workers)

    @property
    def is_settled(self) -> bool:
        """Whether nothing more can come."""
        return self.traced is not None and all(
            address in self.parts or address in self.lost for address in self.traced.workers
        )


def report(notes: Sequence[Notes], *, began_ns: int, took_s: float, first_output_s: float | None) -> Profile:
    """The profile of a request.

    Args:
        notes: Of its calls.
        began_ns: When it was accepted.
    """
    took_us = round(took_s * 1e6)
    return Profile(
        complete=all(each.is_complete for each in notes),
        clock=CLOCK,
        first_output_us=None if first_output_s is None else round(first_output_s * 1e6),
        took_us=took_us,
        calls=[_call(each, began_ns, took_us) for each in notes],
    )


def _call(notes: Notes, began_ns: int, took_us: int) -> CallProfile:
    def since(at_ns: int) -> int:
        return (at_ns - began_ns) // 1000

    traced = notes.traced or m.Traced(0, (), (), ())
    parts = list(notes.parts.values())
    walks = [
        WalkProfile(
            track=walk.track,
            walk=walk.walk,
            graph=walk.graph,
            worker=_worker(walk.worker),
            began_us=since(walk.began_ns),
            ended_us=since(walk.ended_ns) if walk.ended_ns else None,
            ended_by=walk.ended_by,
            turns=walk.turns,
            bytes_in=walk.bytes_in,
            bytes_out=walk.bytes_out,
        )
        for walk in traced.walks
    ]
    return CallProfile(
        complete=notes.is_complete,
        marks=[Mark(what, since(at_ns)) for what, at_ns in traced.marks],
        walks=walks,
        methods=[_method(part.worker, total, took_us) for part in parts for total in part.methods],
        edges=[*_edges(parts), *_values(walks)],
        workers=[_worker_profile(part, began_ns) for part in parts],
    )


def _worker(address: str) -> str:
    return address.rpartition(".")[0]


def _method(worker: str, total: m.MethodTotal, took_us: int) -> MethodProfile:
    return MethodProfile(
        component=total.component,
        method=total.method,
        worker=worker,
        calls=total.calls,
        tokens=total.tokens,
        mean_rows=round(total.rows / total.calls, 3),
        busy_us=total.busy_ns // 1000,
        share=round(total.busy_ns / 1000 / took_us, 4) if took_us else 0.0,
        cost_us=total.cost_ns // 1000,
        stream_wait_us=total.stream_wait_ns // 1000,
        branch_wait_us=total.branch_wait_ns // 1000,
        batch_wait_us=total.batch_wait_ns // 1000,
    )


def _edges(parts: Sequence[m.Profiled]) -> list[EdgeProfile]:
    """Streams and outputs. A stream's reader may be in another worker than its writer."""
    edges = [edge for part in parts for edge in part.edges]
    readers = {edge.name: edge.component for edge in edges if edge.is_read}
    return [
        EdgeProfile(
            kind=edge.kind,
            name=edge.name,
            source=edge.component,
            target="client" if edge.kind == "output" else readers.get(edge.name, ""),
            items=edge.items,
            bytes=edge.size_bytes,
        )
        for edge in edges
        if not edge.is_read
    ]


def _values(walks: Sequence[WalkProfile]) -> list[EdgeProfile]:
    """What the conductor gave to the Walks of each graph, and what it got of them."""
    found: list[EdgeProfile] = []
    for graph in dict.fromkeys(walk.graph for walk in walks):
        own = [walk for walk in walks if walk.graph == graph]
        worker = own[0].worker
        given, got = sum(walk.bytes_in for walk in own), sum(walk.bytes_out for walk in own)
        if given:
            found.append(EdgeProfile("value", graph, "conductor", worker, len(own), given))
        if got:
            found.append(EdgeProfile("value", graph, worker, "conductor", len(own), got))
    return found


def _worker_profile(part: m.Profiled, began_ns: int) -> WorkerProfile:
    steps = columns(part.steps, STEP_FIELDS)
    flows = columns(part.flows, FLOW_FIELDS)

    def since(name: str) -> list[int]:
        return [(at_ns - began_ns) // 1000 for at_ns in steps[name]]

    return WorkerProfile(
        worker=part.worker,
        steps=Steps(
            methods=[f"{one.component}.{one.method}" for one in part.methods],
            tracks=list(part.tracks),
            streams=list(part.streams),
            ready_us=since("ready_ns"),
            queued_us=since("queued_ns"),
            began_us=since("began_ns"),
            ended_us=since("ended_ns"),
            stream_wait_us=[wait_ns // 1000 for wait_ns in steps["stream_wait_ns"]],
            **{name: steps[name] for name in ("method", "track", "walk", "turn", "tokens", "rows", "stream")},
        ),
        flows=[_flow(number, edge, flows, began_ns) for number, edge in enumerate(part.edges)],
        uncounted=part.uncounted,
    )


def _flow(number: int, edge: m.EdgeTotal, flows: Mapping[str, list[int]], began_ns: int) -> Flow:
    own = [n for n, of in enumerate(flows["edge"]) if of == number]
    return Flow(
        kind=edge.kind,
        name=edge.name,
        component=edge.component,
        is_read=edge.is_read,
        at_us=[(flows["at_ns"][n] - began_ns) // 1000 for n in own],
        items=[flows["items"][n] for n in own],
    )


def columns(packed: bytes, names: Sequence[str]) -> dict[str, list[int]]:
    """Rows of numbers, as a worker packs them: by the names of ``STEP_FIELDS`` or ``FLOW_FIELDS``."""
    numbers = array("q")
    numbers.frombytes(packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return {name: numbers[n :: len(names)].tolist() for n, name in enumerate(names)}
