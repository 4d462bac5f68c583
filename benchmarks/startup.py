"""How long a user waits: for a command that only tells, for a server that is ready, and for its first sound.

Every run is a fresh process, interpreter and imports included. ``ready`` is from starting
``walkserve serve orpheus:toy`` to a 200 of ``/ready``, its warm-up included; the rows above it are what the
server has said on the way. CPU time is of the server and its children until then: it is the figure to
compare where a machine has other load.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

COMMAND = [sys.executable, "-c", "import sys; from walkserve.cli import main; sys.exit(main())"]
AIMS_S = {"list-models": 0.3, "--help": 0.3, "ready": 5.0}
MSTAR_S = {"ready": "16-35"}
"""M* on such a machine, as its measurers told; not measured here."""
ASK = json.dumps({"model": "orpheus:toy", "input": "call 5 5 1", "response_format": "pcm", "stream": True})


def command_s(*arguments: str) -> dict[str, float]:
    """One command that only tells, to its end."""
    began = time.perf_counter()
    subprocess.run([*COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL)
    return {arguments[0]: time.perf_counter() - began}


def server_s() -> dict[str, float]:
    """One server: until it listens, has loaded each component and is ready; its sound; until it has left."""
    began = time.perf_counter()
    times: dict[str, float] = {}
    arguments = ["serve", "orpheus:toy", "--port", "0", "--device", "cpu"]
    server = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        host, port = "", 0
        for line in server.stdout:
            said = time.perf_counter() - began
            if listening := re.search(r"listening on http://([\d.]+):(\d+)", line):
                times["listens"], host, port = said, listening[1], int(listening[2])
            elif loaded := re.search(r"has loaded (\w+)", line):
                times[f"has loaded {loaded[1]}"] = said
            elif "ready: " in line:
                break
        else:
            raise SystemExit("the server ended before it was ready")
        while not is_ready(host, port):
            time.sleep(0.01)
        times["ready"] = time.perf_counter() - began
        times["CPU until ready"] = sum(map(cpu_s, family_of(server.pid)))
        times["first sound"] = first_sound_s(host, port)
        times["next sound"] = first_sound_s(host, port)
        leaving = time.perf_counter()
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
        times["leaves"] = time.perf_counter() - leaving
        return times
    finally:
        server.kill()
        server.communicate()


def is_ready(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    connection.request("GET", "/ready")
    status = connection.getresponse().status
    connection.close()
    return status == 200


def first_sound_s(host: str, port: int) -> float:
    """From asking to the first byte of sound; the rest is read as well."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    began = time.perf_counter()
    connection.request("POST", "/v1/audio/speech", ASK, {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"no sound: {response.status} {response.read()!r}")
    response.read(1)
    first = time.perf_counter() - began
    response.read()
    connection.close()
    return first


def family_of(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended in between
        if parent == pid:
            found.append(int(stat.parent.name))
    return found


def cpu_s(pid: int) -> float:
    """What another process has used so far, all its threads: its CPU clock, by Linux's numbering."""
    return time.clock_gettime((~pid << 3) | 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="of each command")
    parser.add_argument("--servers", type=int, default=5, metavar="N", help="that are started")
    arguments = parser.parse_args()
    measures: list[tuple[int, Callable[[], dict[str, float]]]] = [
        (arguments.runs, lambda: command_s("list-models")),
        (arguments.runs, lambda: command_s("--help")),
        (arguments.servers, server_s),
    ]
    times: dict[str, list[float]] = {}
    for runs, measure in measures:
        measure()  # the first one fills the file system's cache
        for _ in range(runs):
            for name, seconds in measure().items():
                times.setdefault(name, []).append(seconds)
    print(f"{'seconds':<22}{'median':>9}{'best':>9}{'worst':>9}{'aim':>8}   M*, quoted")
    for name, each in times.items():
        aim = f"{AIMS_S[name]:.1f}" if name in AIMS_S else ""
        line = f"{name:<22}{statistics.median(each):>9.3f}{min(each):>9.3f}{max(each):>9.3f}{aim:>8}"
        print(f"{line}   {MSTAR_S.get(name, '')}".rstrip())
    medians = {name: round(statistics.median(each), 3) for name, each in times.items()}
    best = {name: round(min(each), 3) for name, each in times.items()}
    print(json.dumps({"benchmark": "startup", "median_s": medians, "best_s": best, "aim_s": AIMS_S}))


if __name__ == "__main__":
    main()
