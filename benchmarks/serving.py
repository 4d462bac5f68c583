"""``walkserve serve`` in processes of its own, from ready to its end: what benchmarks of a server ask."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil


@dataclass(frozen=True)
class Running:
    """A server that is ready.

    Args:
        url: Where it listens.
    """

    url: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Processor time of all its processes."""
        everybody = [self.process, *self.process.children(recursive=True)]
        return sum(sum(one.cpu_times()[:2]) for one in everybody)


@contextlib.contextmanager
def serving(
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
    starts_s: float = 120,
    ends_s: float = 30,
) -> Iterator[Running]:
    """``walkserve serve`` on a free port of this machine's CPU.

    Args:
        environ: Its variables; those of this process when left out.
        before: Called in its process before it begins.
        starts_s: How long it may take to be ready.
        ends_s: How long it may take to end.
    """
    command = [sys.executable, "-m", "walkserve", "serve", *arguments, "--port", "0", "--device", "cpu"]
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environ, preexec_fn=before
        )
        try:
            url = _ready_url(process, Path(log.name), starts_s)
            yield Running(url, psutil.Process(process.pid))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(ends_s)


def _ready_url(process: subprocess.Popen[bytes], log: Path, starts_s: float) -> str:
    deadline = time.monotonic() + starts_s
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"listening on (http://\S+)", log.read_text()):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{found[1]}/ready", timeout=5).status_code == 200:
                    return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"the server did not become ready:\n{log.read_text()}")
