"""How soon a lost worker is noticed, and how soon its model is ready again.

Every round is a fresh ``walkserve serve orpheus:toy``: a worker lost twice within a minute is started again
only after a while. A request is held by stopping (SIGSTOP) the worker of the language model before it is
asked. Then, from the moment in which that worker

* is killed (SIGKILL): ``noticed`` is until the held request has its 503, ``not ready`` until ``/ready`` is
  a 503, ``ready again`` until it is a 200, its warm-up included;
* was stopped, with ``--stuck-after 1``: the same.

``loads`` is from starting the server to its first 200 of ``/ready``, in which both its workers load.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

COMMAND = [sys.executable, "-c", "import sys; from walkserve.cli import main; sys.exit(main())"]
SERVE = ["serve", "orpheus:toy", "--port", "0", "--device", "cpu", "--log-level", "error"]
STUCK_AFTER_S = 1
AIMS_S = {"killed: noticed": 1.0, "killed: not ready": 1.0, "stopped: noticed": STUCK_AFTER_S + 1.0}
ASK = json.dumps({"model": "orpheus:toy", "input": "call 5 5 1"})


class Server:
    """One server, from its start to its end."""

    def __init__(self, *arguments: str) -> None:
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [*COMMAND, *SERVE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        listening = re.search(r"http://([\d.]+):(\d+)", self.process.stdout.readline())
        if listening is None:
            raise SystemExit("the server did not start")
        self.at = listening[1], int(listening[2])
        self.asking = http.client.HTTPConnection(*self.at, timeout=30)
        self.until_ready_is(200)
        self.loads_s = time.perf_counter() - began

    def get(self, path: str) -> tuple[int, bytes]:
        self.asking.request("GET", path)
        response = self.asking.getresponse()
        return response.status, response.read()

    def until_ready_is(self, status: int) -> float:
        """When ``/ready`` was first answered so."""
        while self.get("/ready")[0] != status:
            time.sleep(0.002)
        return time.perf_counter()

    def worker_pid(self) -> int:
        state = json.loads(self.get("/v1/server")[1])
        return next(
            worker["pid"] for worker in state["models"][0]["workers"] if worker["name"].endswith("rank0")
        )

    def end(self) -> None:
        self.asking.close()
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=30)


class Held(threading.Thread):
    """A request that is answered when its worker is lost, and when that was."""

    def __init__(self, at: tuple[str, int]) -> None:
        super().__init__()
        self.at = at
        self.status, self.answered = 0, 0.0
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection(*self.at, timeout=60)
        connection.request("POST", "/v1/audio/speech", ASK, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        self.status, self.answered = response.status, time.perf_counter()
        connection.close()


def measure(how: str, *arguments: str) -> dict[str, float]:
    """One server whose worker is lost in one way."""
    server = Server(*arguments)
    try:
        pid = server.worker_pid()
        began = time.perf_counter()
        os.kill(pid, signal.SIGSTOP)
        held = Held(server.at)
        if how == "killed":
            time.sleep(0.3)  # it is on its way
            began = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
        not_ready = server.until_ready_is(503)
        again = server.until_ready_is(200)
        held.join()
        if held.status != 503:
            raise SystemExit(f"the held request was answered with {held.status}")
        return {
            "loads": server.loads_s,
            f"{how}: noticed": held.answered - began,
            f"{how}: not ready": not_ready - began,
            f"{how}: ready again": again - began,
        }
    finally:
        server.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each kind")
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for found in (measure("killed"), measure("stopped", "--stuck-after", str(STUCK_AFTER_S))):
            for name, seconds in found.items():
                times.setdefault(name, []).append(seconds)
    aims = AIMS_S | {"killed: ready again": statistics.median(times["loads"])}
    print(f"{'seconds':<24}{'median':>9}{'best':>9}{'worst':>9}{'aim':>9}")
    for name, each in times.items():
        aim = f"{aims[name]:.2f}" if name in aims else ""
        print(f"{name:<24}{statistics.median(each):>9.3f}{min(each):>9.3f}{max(each):>9.3f}{aim:>9}")
    medians = {name: round(statistics.median(each), 3) for name, each in times.items()}
    print(json.dumps({"benchmark": "restart", "median_s": medians, "aim_s": aims}))


if __name__ == "__main__":
    main()
