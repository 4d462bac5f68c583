"""A profile summed up: per method its time and its waits, and per edge what went over it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from walkserve.profiles.report import EdgeProfile, MethodProfile, Profile


@dataclass(frozen=True, slots=True)
class MethodLine:
    """One method over all calls of a request. Times in microseconds; ``share`` of the request's time."""

    name: str
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


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """One edge over all calls of a request."""

    kind: str
    name: str
    source: str
    target: str
    items: int
    size_bytes: int


def method_lines(profile: Profile) -> list[MethodLine]:
    """Those that took most come first."""
    found: dict[tuple[str, str], MethodLine] = {}
    for method in (method for call in profile.calls for method in call.methods):
        line = _method(method, profile.took_us)
        key = (line.name, line.worker)
        found[key] = _sum(found[key], line, profile.took_us) if key in found else line
    return sorted(found.values(), key=lambda line: -line.busy_us)


def edge_lines(profile: Profile) -> list[EdgeLine]:
    """Streams and outputs first, then values."""
    found: dict[tuple[str, str, str, str], EdgeLine] = {}
    for edge in (edge for call in profile.calls for edge in call.edges):
        line = _edge(edge)
        key = (line.kind, line.name, line.source, line.target)
        old = found.get(key)
        found[key] = (
            line
            if old is None
            else replace(old, items=old.items + line.items, size_bytes=old.size_bytes + line.size_bytes)
        )
    return sorted(found.values(), key=lambda line: line.kind == "value")


def _method(method: MethodProfile, took_us: int) -> MethodLine:
    return MethodLine(
        name=f"{method.component}.{method.method}",
        worker=method.worker,
        calls=method.calls,
        tokens=method.tokens,
        mean_rows=method.mean_rows,
        busy_us=method.busy_us,
        share=method.busy_us / took_us if took_us else 0.0,
        cost_us=method.cost_us,
        stream_wait_us=method.stream_wait_us,
        branch_wait_us=method.branch_wait_us,
        batch_wait_us=method.batch_wait_us,
    )


def _sum(one: MethodLine, other: MethodLine, took_us: int) -> MethodLine:
    calls = one.calls + other.calls
    busy_us = one.busy_us + other.busy_us
    return MethodLine(
        name=one.name,
        worker=one.worker,
        calls=calls,
        tokens=one.tokens + other.tokens,
        mean_rows=(one.mean_rows * one.calls + other.mean_rows * other.calls) / calls,
        busy_us=busy_us,
        share=busy_us / took_us if took_us else 0.0,
        cost_us=one.cost_us + other.cost_us,
        stream_wait_us=one.stream_wait_us + other.stream_wait_us,
        branch_wait_us=one.branch_wait_us + other.branch_wait_us,
        batch_wait_us=one.batch_wait_us + other.batch_wait_us,
    )


def _edge(edge: EdgeProfile) -> EdgeLine:
    return EdgeLine(edge.kind, edge.name, edge.source, edge.target, edge.items, edge.bytes)
