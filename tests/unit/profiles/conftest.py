"""Profiles made by hand: what two workers and a conductor would have told of a small request."""

from array import array
from collections.abc import Callable
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.profiles.report import Notes, Profile, ProfiledRequest, report

MS = 1_000_000
BEGAN = 5_000 * MS


def packed(rows: list[tuple[int, ...]]) -> bytes:
    return array("q", [number for row in rows for number in row]).tobytes()


def at(ms: float) -> int:
    return BEGAN + int(ms * MS)


def step(
    method: int, turn: int, ready: float, queued: float, began: float, ended: float, rows: int = 2
) -> tuple[int, ...]:
    """One call; if it was ready before it was queued, it waited for the stream."""
    wait = int((queued - ready) * MS)
    stream = 0 if wait else -1
    return (method, method, 0, turn, 1, rows, at(ready), at(queued), at(began), at(ended), stream, wait)


def total(
    component: str, method: str, calls: int, busy_ms: float, stream_ms: float = 0, rows: int = 2
) -> m.MethodTotal:
    busy = int(busy_ms * MS)
    return m.MethodTotal(
        component, method, calls, calls * rows, calls, busy, busy // rows, int(stream_ms * MS), 0, calls * MS
    )


def notes(turns: int, tag: int = 1, offset: float = 0.0) -> Notes:
    """``turns`` turns of a model of 4 ms each, and a codec on another worker that reads pairs of them."""
    model = [
        step(0, n, offset + 10 + 5 * n, offset + 10 + 5 * n, offset + 11 + 5 * n, offset + 15 + 5 * n)
        for n in range(turns)
    ]
    codec = [
        step(0, n, offset + 10 + 10 * n, offset + 20 + 10 * n, offset + 21 + 10 * n, offset + 23 + 10 * n)
        for n in range(turns // 2)
    ]
    wrote = [(0, at(offset + 15 + 5 * n), 1) for n in range(turns)]
    read = [(0, at(offset + 20 + 10 * n), 2) for n in range(turns // 2)]
    gave = [(1, at(offset + 23 + 10 * n), 1) for n in range(turns // 2)]
    end = offset + 25 + 5 * turns
    walk = m.WalkTime("writing", 0, "write", "toy.rank0.0", at(offset + 9), at(end - 1), "stop", turns, 40, 8)
    return Notes(
        traced=m.Traced(
            tag,
            ("toy.rank0.0", "toy.rank1.0"),
            tuple(
                (what, at(offset + ms))
                for what, ms in (("submitted", 2), ("prepared", 4), ("admitted", 9), ("ended", end - offset))
            ),
            (walk,),
        ),
        parts={
            "toy.rank0.0": m.Profiled(
                *(tag, "toy.rank0", "toy.rank0.0"),
                methods=(total("model", "next", turns, 4 * turns),),
                edges=(m.EdgeTotal("stream", "codes", "model", False, turns, 8 * turns),),
                tracks=("writing",),
                streams=(),
                steps=packed(model),
                flows=packed(wrote),
                uncounted=0,
            ),
            "toy.rank1.0": m.Profiled(
                *(tag, "toy.rank1", "toy.rank1.0"),
                methods=(total("codec", "decode", turns // 2, turns, 5 * turns),),
                edges=(
                    m.EdgeTotal("stream", "codes", "codec", True, turns, 0),
                    m.EdgeTotal("output", "speech", "codec", False, turns // 2, 1000 * turns),
                ),
                tracks=("sounding",),
                streams=("codes",),
                steps=packed(codec),
                flows=packed(read + gave),
                uncounted=0,
            ),
        },
    )


def made(*parts: Notes, turns: int = 20) -> Profile:
    took_s = (26 + 5 * turns) / 1000 * max(len(parts), 1)
    return report(parts or (notes(turns),), began_ns=BEGAN, took_s=took_s, first_output_s=0.024)


def asked(profile: Profile | None, **changes: Any) -> ProfiledRequest:
    told = {
        "id": "req-1",
        "model": "toy:small",
        "state": "done",
        "finish_reason": "stop",
        "audio_s": {"speech": 0.5},
    }
    return ProfiledRequest(**told | changes, profile=profile)  # type: ignore[arg-type]


@pytest.fixture
def noted() -> Callable[..., Notes]:
    return notes


@pytest.fixture
def make() -> Callable[..., Profile]:
    return made


@pytest.fixture
def ask() -> Callable[..., ProfiledRequest]:
    return asked
