"""How a server stands: what its processes hold, and what its requests have left behind."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

MEGABYTE = 1e6
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Those in which the HTTP process encodes sound: asyncio's own, which come as they are needed and stay."""


@dataclass(frozen=True)
class Process:
    """One process, as the kernel counts it.

    Args:
        kinds: What its file descriptors are of, and how many of each.
    """

    pid: int
    threads: int
    kinds: Counter[str]
    resident_bytes: int

    @property
    def files(self) -> int:
        """How many file descriptors it has."""
        return self.kinds.total()

    @classmethod
    def of(cls, pid: int) -> Process:
        status = Path(f"/proc/{pid}/status").read_text()
        return cls(
            pid,
            threads=int(re.findall(r"Threads:\s+(\d+)", status)[0]),
            kinds=Counter(_kinds(pid)),
            resident_bytes=int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024,
        )


@dataclass(frozen=True)
class Standing:
    """Everything at one moment.

    Args:
        processes: By name: ``http``, ``conductor`` and the workers.
        shared: Names in the server's folder of /dev/shm, without the workers' incarnations, and how many
            there are of each.
        folders: Folders of this user's servers in /dev/shm.
        temporary: Names in the server's folder for temporary files.
    """

    open: int
    running: int
    waiting: int
    reserved: int
    processes: dict[str, Process]
    shared: dict[str, int]
    folders: tuple[str, ...]
    temporary: tuple[str, ...]

    @property
    def is_idle(self) -> bool:
        return self.open == self.running == self.waiting == self.reserved == 0

    def differs(self, before: Standing, *, growth: float) -> list[str]:
        """In words, what is not as it was; memory may have grown by the factor."""
        found = [
            f"{what}: {was} before, {now} now"
            for what, was, now in (
                ("open requests", before.open, self.open),
                ("running", before.running, self.running),
                ("waiting", before.waiting, self.waiting),
                ("reserved pages", before.reserved, self.reserved),
                ("names in shared memory", before.shared, self.shared),
                ("folders in shared memory", before.folders, self.folders),
                ("temporary files", before.temporary, self.temporary),
                ("processes", sorted(before.processes), sorted(self.processes)),
            )
            if was != now
        ]
        for name in before.processes.keys() & self.processes.keys():
            was, now = before.processes[name], self.processes[name]
            if now.threads > was.threads + (POOL_THREADS if name == "http" else 0):
                found.append(f"threads of {name}: {was.threads} before, {now.threads} now")
            if now.files > was.files:
                more = dict(now.kinds - was.kinds)
                found.append(f"file descriptors of {name}: {was.files} before, {now.files} now, {more}")
            if now.resident_bytes > growth * was.resident_bytes:
                sizes = [round(size / MEGABYTE) for size in (was.resident_bytes, now.resident_bytes)]
                found.append(f"memory of {name}: {sizes[0]} MB before, {sizes[1]} MB now")
        return found


def _kinds(pid: int) -> Iterator[str]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed in between
            yield re.sub(r"[\d.]+", "", str(file.readlink()))


def look(url: str, temporary: Path) -> Standing:
    """How the server stands now."""
    state = httpx.get(f"{url}/v1/server", timeout=10).json()
    pids = {"http": state["http_pid"], "conductor": state["conductor_pid"]}
    workers = [worker for model in state["models"] for worker in model["workers"]]
    pids |= {worker["name"]: worker["pid"] for worker in workers}
    shared = Path("/dev/shm")
    folders = sorted(path.name for path in shared.glob(f"walkserve-{state['http_pid']}-*"))
    names = [
        path.relative_to(shared / folder).as_posix()
        for folder in folders
        for path in (shared / folder).rglob("*")
    ]
    return Standing(
        open=state["open_requests"],
        running=sum(model["running"] for model in state["models"]),
        waiting=sum(model["waiting"] for model in state["models"]),
        reserved=sum(pool["reserved"] for worker in workers for pool in worker["pools"].values()),
        processes={name: Process.of(pid) for name, pid in pids.items()},
        shared=dict(sorted(Counter(_without_incarnation(name) for name in names).items())),
        folders=tuple(folders),
        temporary=tuple(sorted(path.relative_to(temporary).as_posix() for path in temporary.rglob("*"))),
    )


def _without_incarnation(name: str) -> str:
    """``trial.rank0.1`` is what ``trial.rank0.0`` was."""
    return re.sub(r"((?:rank\d+|host))\.\d+", r"\1", name)


def ends_counted(url: str) -> dict[str, int]:
    """By ``done``, ``failed`` and ``cancelled``: how many calls have ended so, of all models."""
    return _counted(url, "walkserve_requests_total", "outcome")


def losses_counted(url: str) -> dict[str, int]:
    """By worker, how often it was lost."""
    return _counted(url, "walkserve_worker_losses_total", "worker")


def gauge(url: str, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(value for metric, _, value in _samples(url) if metric == name)


def _counted(url: str, name: str, label: str) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for metric, labels, value in _samples(url):
        if metric == name:
            counted[labels[label]] += int(value)
    return dict(counted)


def _samples(url: str) -> list[tuple[str, dict[str, str], float]]:
    samples: list[tuple[str, dict[str, str], float]] = []
    for line in httpx.get(f"{url}/metrics", timeout=30).text.splitlines():
        found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if found and not line.startswith("#"):
            labels: Any = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
            samples.append((found[1], labels, float(found[3])))
    return samples
