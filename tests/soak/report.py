"""A soak's figures, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.soak.soak import Soaked
from tests.soak.standing import MEGABYTE, Standing


def table(soaked: Soaked) -> str:
    """Several lines, without the end of the last."""
    return "\n".join(_lines(soaked))


def _lines(soaked: Soaked) -> Iterator[str]:
    ends = soaked.verdict.ends
    yield f"{'requests':<12}{'their end':<36}{'':>6}"
    for (kind, end), count in sorted(ends.items()):
        yield f"{kind:<12}{end:<36}{count:>6}"
    yield f"{'':<12}{'equal to alone':<36}{soaked.verdict.equal:>6}"
    yield f"{'':<12}{'held by a killed worker':<36}{soaked.verdict.lost:>6}"
    yield f"{'':<12}{'refused while one was down':<36}{soaked.refused_while_down:>6}"
    yield ""
    held = Counter(one.state for one in soaked.held)
    yield "left in each state: " + ", ".join(f"{state} {count}" for state, count in held.items())
    if soaked.held:
        slowest = max(soaked.held, key=lambda one: one.back_s)
        yield f"all given back within {slowest.back_s:.2f} s ({slowest.state} by {slowest.door})"
    for one in soaked.outages:
        noticed, ready = one.noticed - one.killed, one.ready - one.killed
        yield f"{one.worker} killed: noticed after {noticed:.2f} s, ready after {ready:.1f} s"
    yield "peak: " + ", ".join(f"{count} {what}" for what, count in soaked.peak.items())
    yield f"caches moved to host memory and back: {soaked.moves}"
    yield "seconds: " + ", ".join(f"{what} {spent:.1f}" for what, spent in soaked.seconds.items())
    yield ""
    if soaked.before is not None and soaked.after is not None:
        yield from _standings(soaked.before, soaked.after)
    yield "" if soaked.wrong else "every request had one end; all is as it was"
    yield from (f"WRONG: {what}" for what in soaked.wrong)


def _standings(before: Standing, after: Standing) -> Iterator[str]:
    yield f"{'before → after':<20}{'threads':>12}{'files':>12}{'memory, MB':>16}"
    for name, was in before.processes.items():
        now = after.processes.get(name)
        if now is not None:
            threads, files = f"{was.threads} → {now.threads}", f"{was.files} → {now.files}"
            memory = " → ".join(f"{one.resident_bytes / MEGABYTE:.0f}" for one in (was, now))
            yield f"{name:<20}{threads:>12}{files:>12}{memory:>16}"
    yield ", ".join(
        f"{what} {was} → {now}"
        for what, was, now in (
            ("open", before.open, after.open),
            ("running", before.running, after.running),
            ("waiting", before.waiting, after.waiting),
            ("reserved pages", before.reserved, after.reserved),
            ("names in /dev/shm", sum(before.shared.values()), sum(after.shared.values())),
            ("temporary files", len(before.temporary), len(after.temporary)),
        )
    )


def json_line(soaked: Soaked) -> str:
    """One line."""
    return json.dumps(
        {
            "benchmark": "soak",
            "requests": soaked.size.requests,
            "in_flight": soaked.size.in_flight,
            "seed": soaked.size.seed,
            "ends": {f"{kind}: {end}": count for (kind, end), count in sorted(soaked.verdict.ends.items())},
            "equal_to_alone": soaked.verdict.equal,
            "lost_with_a_worker": soaked.verdict.lost,
            "refused_while_down": soaked.refused_while_down,
            "calls_ended": soaked.ended,
            "left_in_state": dict(Counter(one.state for one in soaked.held)),
            "given_back_s": round(max((one.back_s for one in soaked.held), default=0.0), 3),
            "outages": [
                {
                    "worker": one.worker,
                    "noticed_s": round(one.noticed - one.killed, 3),
                    "ready_s": round(one.ready - one.killed, 2),
                }
                for one in soaked.outages
            ],
            "moves": soaked.moves,
            "peak": dict(soaked.peak),
            "seconds": {what: round(spent, 2) for what, spent in soaked.seconds.items()},
            "before": _summary(soaked.before),
            "after": _summary(soaked.after),
            "wrong": soaked.wrong,
        }
    )


def _summary(standing: Standing | None) -> dict[str, Any]:
    if standing is None:
        return {}
    processes = standing.processes.values()
    return {
        "open": standing.open,
        "running": standing.running,
        "waiting": standing.waiting,
        "reserved_pages": standing.reserved,
        "threads": sum(one.threads for one in processes),
        "file_descriptors": sum(one.files for one in processes),
        "resident_mb": round(sum(one.resident_bytes for one in processes) / MEGABYTE),
        "shared_names": sum(standing.shared.values()),
        "temporary_files": len(standing.temporary),
    }
