"""Whether every request had its one end: by its client, by what the server remembers, by its counts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.soak.asks import Family
from tests.soak.seen import Seen

LOST = "worker_lost"
DOWN = "unavailable"
REMEMBERED_S = 5.0
STATE_OF = {
    "done": {"done"},
    "error": {"failed"},
    "cut": {"failed"},
    "cancelled": {"cancelled", "done"},
    "left": {"cancelled", "done", "failed"},
}
"""How the server may remember what its client saw. Who leaves may come too late: all of it was made, or it
had failed."""


@dataclass(frozen=True)
class Outage:
    """A worker that was killed; seconds of ``time.monotonic``.

    Args:
        killed: When.
        noticed: When the server said that it was not ready.
        ready: When it was again.
    """

    worker: str
    family: Family
    killed: float
    noticed: float
    ready: float

    def may_have_hit(self, seen: Seen) -> bool:
        """Whether the request was open when the worker died, or when the server knew of it."""
        return seen.ask.family == self.family and seen.began <= self.noticed and seen.ended >= self.killed


@dataclass
class Verdict:
    """What is wrong, in words, and what was counted on the way."""

    wrong: list[str] = field(default_factory=list)
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By what kind of request it was and how it ended."""
    equal: int = 0
    """Good ones that gave what they give alone."""
    lost: int = 0
    """Those that a killed worker held."""


def judge(seen: Sequence[Seen], alone: Mapping[str, Any], outages: Sequence[Outage]) -> Verdict:
    """By what the clients saw."""
    verdict = Verdict()
    for one in seen:
        end = f"{one.end}, {one.code}" if one.code else one.end
        verdict.ends[one.ask.kind, end] += 1
        is_hit = any(outage.may_have_hit(one) for outage in outages)
        if is_hit and (one.code == LOST or one.end == "cut"):
            verdict.lost += 1
            if one.end == "error" and one.status not in (0, 503):
                verdict.wrong.append(f"{one.ask.name}: its worker was lost, and it was told {one.status}")
            continue
        if one.end == "done" and one.ask.kind != "failing":
            if one.given == alone[one.ask.name]:
                verdict.equal += one.ask.kind == "good"
            else:
                verdict.wrong.append(f"{one.ask.name} ({one.id}): it is not what it is alone")
        elif not _is_as_asked(one):
            verdict.wrong.append(f"{one.ask.name} ({one.id}): it ended with {end}")
    return verdict


def _is_as_asked(one: Seen) -> bool:
    ask = one.ask
    match ask.kind:
        case "good":
            return False  # it was not done
        case "failing":
            return one.end == "error" and (one.code == ask.code or not ask.is_accepted)
        case "leaving":
            return one.end in ("left", "cancelled")


async def check_memory(asking: httpx.AsyncClient, one: Seen) -> str:
    """By ``GET /v1/requests/{id}``: what is wrong with what the server remembers, or nothing.

    Of a client that left, the server hears a little later.
    """
    if not one.id:
        return ""
    deadline = time.monotonic() + REMEMBERED_S
    while True:
        answer = await asking.get(f"/v1/requests/{one.id}")
        status = answer.json()
        if not one.ask.is_accepted:
            is_right = answer.status_code == 404
        else:
            code = (status.get("error") or {}).get("code") or ""
            is_right = status.get("state") in STATE_OF[one.end] and one.code in ("", code)
        if is_right or time.monotonic() > deadline or status.get("state") not in (None, "running"):
            break
        await asyncio.sleep(0.05)
    if is_right:
        return ""
    return f"{one.ask.name} ({one.id}): its client saw {one.end} {one.code}, the server remembers {status}"


def check_counts(seen: Sequence[Seen], ended: Mapping[str, int]) -> list[str]:
    """By ``/metrics``: every call that was accepted is in one outcome, once.

    A request is one call of the model or several. Whether one that was left without an answer had been
    accepted, its client cannot know.
    """
    least: Counter[str] = Counter()
    unknown = 0
    for one in seen:
        if not one.ask.is_accepted:
            continue
        if one.end == "done":
            least["done"] += one.ask.calls
        elif one.end in ("error", "cut"):
            least["failed"] += 1
            unknown += one.ask.calls - 1
        elif one.id:
            least["left"] += 1
            unknown += one.ask.calls - 1
        else:
            unknown += one.ask.calls
    total, known = sum(ended.values()), sum(least.values())
    wrong = []
    if not known <= total <= known + unknown:
        wrong.append(f"{known} to {known + unknown} calls were made, and {total} ended: {dict(ended)}")
    for how in ("done", "failed"):
        if ended.get(how, 0) < least[how]:
            wrong.append(f"{least[how]} calls were {how} to their clients, {ended.get(how, 0)} to the server")
    return wrong
