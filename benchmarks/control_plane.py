"""What serving costs when nothing is computed: turns, first tokens and tokens per second.

The processes, mailboxes and loops are the server's own: a conductor and a worker as children, the ``Caller``
in this process, in uvloop. The family is ``null_family.py``. A count ends where a route would take the
token: out of the call's queue, awaited by one task per request. No HTTP is spoken.

Each figure is measured with the server's engine, which makes a batch of the rows and calls a component, and
with an engine that does neither; and beside a floor, one message per step into asyncio queues with none of
our logic. On a machine with other load, compare with the floor of the same run, and CPU time with CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import null_family
import uvloop
from control_plane_child import Step

from walkserve import messages as m
from walkserve.config import ServerConfig
from walkserve.delivery import Done
from walkserve.http.callers import Caller
from walkserve.http.calls import Items
from walkserve.resolve import resolve_models
from walkserve.transport.rundir import run_folder
from walkserve.transport.sockets import AsyncSocketMailbox

HERE = Path(__file__).parent
AIMS = {"turn_us": 40.0, "row_us": 5.0, "first_ms": 1.0, "tokens_per_s": 100_000.0}
MSTAR = {"turn_us": "400-650", "row_us": "165-185", "first_ms": "7.6-13", "tokens_per_s": "1,700-4,300"}
"""M* on such a machine, as its measurers told; not measured here."""
TURNS = {1: 4000, 8: 2000, 32: 1000}
"""Turns by batch size: enough that beginning and end do not count."""
FIRSTS = 300
STREAM = 256
"""Tokens of each request where whole requests are counted; 32 are always open."""


# --- what is measured -----------------------------------------------------------------------------------


@dataclass
class Turns:
    """Microseconds per row, by batch size; a turn at batch 1 is a row."""

    wall: dict[int, list[float]] = field(default_factory=dict)
    cpu: dict[int, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, rows: int, wall_us: float, cpu_us: dict[str, float]) -> None:
        self.wall.setdefault(rows, []).append(wall_us)
        for process, spent in cpu_us.items():
            self.cpu.setdefault(rows, {}).setdefault(process, []).append(spent)


@dataclass
class Measured:
    """One engine."""

    turns: Turns = field(default_factory=Turns)
    first_ms: list[float] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)


def cpu_s(pid: int) -> float:
    """What another process has used so far, all its threads."""
    return time.clock_gettime((~pid << 3) | 2)


class Meter:
    """Wall and CPU time of a stretch, by process."""

    def __init__(self, children: dict[str, int]) -> None:
        self.children = {**children, "caller": os.getpid()}
        self.start()

    def start(self) -> None:
        self.began = time.perf_counter()
        self.before = {name: cpu_s(pid) for name, pid in self.children.items()}

    def us_per(self, count: int) -> tuple[float, dict[str, float]]:
        wall = time.perf_counter() - self.began
        spent = {name: cpu_s(pid) - self.before[name] for name, pid in self.children.items()}
        return wall * 1e6 / count, {name: s * 1e6 / count for name, s in spent.items()}


# --- processes ------------------------------------------------------------------------------------------


def profile_of(role: str, folder: Path | None) -> str:
    return str(folder / f"{role}.pstats") if folder is not None else ""


@contextmanager
def child(*arguments: str, path: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this benchmark; at the end it has left by itself, or is killed."""
    paths = [str(HERE), *([str(path)] if path is not None else []), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "control_plane_child.py"), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def configure(folder: Path, plugin: Path) -> Path:
    """Write what the children read: one model, one worker."""
    null_family.install(plugin)
    sys.path.insert(0, str(plugin))
    try:
        models = resolve_models(("null",), device="cpu")
    finally:
        sys.path.remove(str(plugin))
    path = folder / "config.json"
    path.write_bytes(msgspec.json.encode(ServerConfig(models, str(folder), "warning")))
    return path


@asynccontextmanager
async def server(engine: str, profiles: Path | None = None) -> AsyncIterator[Bench]:
    """A server of the null family without its web server, and a client of it in this process."""
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder())
        plugin = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = str(configure(folder, plugin))
        mailbox = stack.enter_context(AsyncSocketMailbox("http", folder, receives=m.ToClient))
        parent, host = str(os.getpid()), "null.host"
        roles = {"conductor": (parent, config), "worker": (parent, config, host, f"{host}.0")}
        processes = {
            role: stack.enter_context(
                child(engine, profile_of(role, profiles), role, *arguments, path=plugin)
            )
            for role, arguments in roles.items()
        }
        async with Caller(mailbox) as caller:
            await asyncio.wait_for(caller.wait_until(lambda: caller.state.phase == "ready"), 60)
            bench = Bench(caller, {role: process.pid for role, process in processes.items()})
            for _ in range(3):  # what is called for the first time
                await asyncio.gather(*(bench.ask(200) for _ in range(32)))
            yield bench
            mailbox.send("conductor", [m.Halt()])  # and it sends the worker home
            await caller.wait_until(lambda: caller.state.phase == "stopped")


async def measure(engine: str, repeat: int) -> Measured:
    """All figures of one engine, one after the other, several times."""
    measured = Measured()
    async with server(engine) as bench:
        for _ in range(repeat):
            for rows in TURNS:
                measured.turns.add(rows, *await bench.turns(rows, TURNS[rows]))
            measured.first_ms += await bench.firsts(FIRSTS)
            measured.tokens_per_s.append(await bench.streams(32, STREAM))
    return measured


async def profile(engine: str, folder: Path) -> None:
    """One more server, each process under a profiler; it makes small functions look dearer than they are."""
    async with server(engine, folder) as bench:
        caller = cProfile.Profile()
        caller.enable()
        for _ in range(5):
            await bench.turns(32, TURNS[32])
        caller.disable()
        caller.dump_stats(profile_of("caller", folder))


class Bench:
    """A client of the null family, in the place of the HTTP routes."""

    def __init__(self, caller: Caller, children: dict[str, int]) -> None:
        self.caller = caller
        self.children = children
        self.model = null_family.Null()

    async def ask(self, tokens: int) -> tuple[float, float]:
        """One request to its end, every token looked at; seconds to the first token, and when that was."""
        request = self.model.request(options={"max_tokens": tokens, "seed": 0})
        asked, first, expected = time.perf_counter(), 0.0, 1
        with self.caller.submit("null", request) as call:
            while True:
                for event in await call.take():
                    if isinstance(event, Items):
                        first = first or time.perf_counter()
                        for token in event.items:
                            if token != expected:
                                raise SystemExit(f"token {token} came where {expected} was due")
                            expected += 1
                    elif isinstance(event, Done):
                        if expected != tokens + 1:
                            raise SystemExit(f"{expected - 1} of {tokens} tokens came")
                        return first - asked, first
                    else:
                        raise SystemExit(f"a request failed: {event!r}")

    async def turns(self, rows: int, turns: int) -> tuple[float, dict[str, float]]:
        """Microseconds per row of so many requests side by side: wall, and CPU by process."""
        await asyncio.sleep(0.05)
        meter = Meter(self.children)
        await asyncio.gather(*(self.ask(turns) for _ in range(rows)))
        return meter.us_per(rows * turns)

    async def firsts(self, count: int) -> list[float]:
        """Milliseconds to the first token, one request after another on an idle server."""
        times = []
        for _ in range(count):
            await asyncio.sleep(0.002)  # it has let go of the one before
            times.append((await self.ask(2))[0] * 1000)
        return times

    async def streams(self, clients: int, tokens: int, rounds: int = 4) -> float:
        """Tokens per second of clients that each ask again when they are answered."""

        async def client() -> None:
            for _ in range(rounds):
                await self.ask(tokens)

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        return clients * rounds * tokens / (time.perf_counter() - began)


# --- the floor ------------------------------------------------------------------------------------------


async def measure_floor(repeat: int) -> Turns:
    """One msgspec batch per step over ZeroMQ into asyncio queues."""
    turns = Turns()
    for _ in range(repeat):
        for rows, count in TURNS.items():
            turns.add(rows, *await floor_of(rows, count))
    return turns


async def floor_of(rows: int, turns: int) -> tuple[float, dict[str, float]]:
    queues: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in range(rows)]

    async def take(queue: asyncio.Queue[int]) -> None:
        for expected in range(1, turns + 1):
            if await queue.get() != expected:
                raise SystemExit("the floor lost a token")

    with ExitStack() as stack:
        folder = stack.enter_context(run_folder())
        mailbox = stack.enter_context(AsyncSocketMailbox("http", folder, receives=Step, high_water=0))
        sender = stack.enter_context(child("local", "", "floor", str(folder), str(rows), str(turns)))
        taking = [asyncio.create_task(take(queue)) for queue in queues]
        steps = await mailbox.receive()
        meter = Meter({})  # from the first step on: the sender's start does not count
        left = turns
        while True:
            for step in steps:
                assert isinstance(step, Step)
                for tag, token in zip(step.tags, step.tokens, strict=True):
                    queues[tag].put_nowait(token)
            left -= len(steps)
            if left == 0:
                break
            await asyncio.sleep(0)
            steps = await mailbox.receive()
        await asyncio.gather(*taking)
        wall, cpu = meter.us_per(rows * turns)
        assert sender.stdout is not None
        return wall, {"worker": float(sender.stdout.readline()) * 1e6 / (rows * turns), **cpu}


# --- telling --------------------------------------------------------------------------------------------

PROCESSES = ("worker", "caller", "conductor")


def summary(measured: Measured) -> dict[str, Any]:
    """Medians, as the line of JSON has them."""
    tenths = statistics.quantiles(measured.first_ms, n=10)
    return {
        **turns_summary(measured.turns),
        "first_ms": {"median": round(tenths[4], 3), "p90": round(tenths[8], 3)},
        "tokens_per_s": round(statistics.median(measured.tokens_per_s)),
    }


def turns_summary(turns: Turns) -> dict[str, Any]:
    return {
        "row_us": medians(turns.wall),
        "row_us_best": {rows: round(min(times), 2) for rows, times in turns.wall.items()},
        "row_cpu_us": {rows: medians(each) for rows, each in turns.cpu.items()},
    }


def medians(times: dict[Any, list[float]]) -> dict[Any, float]:
    return {name: round(statistics.median(each), 2) for name, each in times.items()}


def print_table(results: dict[str, dict[str, Any]]) -> None:
    cpu = "CPU µs a row:" + "".join(f"{name:>11}" for name in PROCESSES)
    print(f"{'':<16}{'rows':>5}{'µs a turn':>11}{'µs a row':>10}{'best':>7}   {cpu}")
    for name, result in results.items():
        for rows, row_us in result["row_us"].items():
            line = f"{name:<16}{rows:>5}{row_us * rows:>11.1f}{row_us:>10.2f}"
            spent = (result["row_cpu_us"][rows].get(process, 0.0) for process in PROCESSES)
            cpu = f"{'':<13}" + "".join(f"{us:>11.2f}" for us in spent)
            print(f"{line}{result['row_us_best'][rows]:>7.2f}   {cpu}")
    print(f"\n{'':<16}{'first token, ms':>18}{'p90':>8}{'tokens/s at 32':>18}")
    for name, result in results.items():
        if "first_ms" in result:
            first = result["first_ms"]
            print(f"{name:<16}{first['median']:>18.2f}{first['p90']:>8.2f}{result['tokens_per_s']:>18,}")
    aims = f"{AIMS['turn_us']:.0f} µs a turn at 1, {AIMS['row_us']:.0f} µs a row at 32, first token "
    print(f"aim: {aims}{AIMS['first_ms']:.0f} ms, {AIMS['tokens_per_s']:,.0f} tokens/s at 32")
    mstar = f"{MSTAR['turn_us']} µs a turn at 1, {MSTAR['row_us']} µs a row at 32, first token "
    print(f"M*, quoted, not measured here: {mstar}{MSTAR['first_ms']} ms, {MSTAR['tokens_per_s']} tokens/s")


def print_profile(folder: Path, most: int) -> None:
    for role in PROCESSES:
        print(f"\n{role}, under the profiler")
        pstats.Stats(str(folder / f"{role}.pstats")).strip_dirs().sort_stats("tottime").print_stats(most)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="how often each is measured")
    parser.add_argument("--engine", choices=("null", "local", "both"), default="both")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="the N dearest functions as well")
    arguments = parser.parse_args()
    engines = ("null", "local") if arguments.engine == "both" else (arguments.engine,)
    results = {"floor": turns_summary(uvloop.run(measure_floor(arguments.repeat)))}
    for engine in engines:
        results[engine] = summary(uvloop.run(measure(engine, arguments.repeat)))
    print_table(results)
    for engine in engines if arguments.profile else ():
        with tempfile.TemporaryDirectory() as folder:
            uvloop.run(profile(engine, Path(folder)))
            print(f"\n--- {engine} engine")
            print_profile(Path(folder), arguments.profile)
    print(json.dumps({"benchmark": "control_plane", "aims": AIMS, "mstar_quoted": MSTAR, **results}))


if __name__ == "__main__":
    main()
