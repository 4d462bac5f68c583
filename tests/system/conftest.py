"""Real servers for tests: the command a user types, in processes of its own, on a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from tests.families import trial

START_S = 90
GOLDEN = Path(__file__).parents[2] / "plugins/orpheus/tests/data/golden"
"""A checkpoint of random weights that goes on speaking until it runs out of tokens."""


class RunningServer:
    """``walkserve serve …``, ready, with its address and what it printed."""

    def __init__(self, *arguments: str, log: Path, environ: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "walkserve", "serve", *arguments, "--device", "cpu"],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environ is None else {**os.environ, **environ},
            )
        self.url = ""

    @property
    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until_ready(self) -> RunningServer:
        """Until ``/ready`` says so; what the server printed is the message if it never does."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"listening on (http://\S+)", self.printed)
            if found:
                self.url = found.group(1)
                if self.is_ready():
                    return self
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"the server did not become ready:\n{self.printed}")

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def state(self) -> dict:
        return httpx.get(f"{self.url}/v1/server", timeout=10).json()

    def wait_for(self, wanted, seconds: float = 30) -> dict:
        """Ask for the state until it is as wanted."""
        deadline = time.monotonic() + seconds
        while not wanted(state := self.state()):
            assert time.monotonic() < deadline, f"never came about; now: {state}"
            time.sleep(0.05)
        return state

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def stop(self) -> int:
        """Ctrl-C, and the exit code."""
        if self.process.poll() is None:
            self.interrupt()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def toy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server of the toy voice for all tests that leave it as they found it."""
    server = RunningServer("orpheus:toy", "--port", "0", log=tmp_path_factory.mktemp("server") / "log")
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed


@pytest.fixture(scope="session")
def golden_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server whose requests last as long as they are asked to."""
    server = RunningServer(f"orpheus={GOLDEN}", "--port", "0", log=tmp_path_factory.mktemp("golden") / "log")
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator:
    """Start servers of a test's own; they are killed with it if it leaves them running."""
    started: list[RunningServer] = []

    def start(*arguments: str) -> RunningServer:
        server = RunningServer(*arguments, log=tmp_path / f"log{len(started)}")
        started.append(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture(scope="session")
def easel_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server of the family that writes and paints, beside a voice that does neither."""
    folder = tmp_path_factory.mktemp("easel")
    environ = {"PYTHONPATH": trial.install(folder / "site", "easel")}
    arguments = ("easel", "orpheus:toy", "--port", "0", "--max-image-pixels", "1000000", "--deterministic")
    server = RunningServer(*arguments, log=folder / "log", environ=environ)
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed
