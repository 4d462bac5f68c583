"""The server that is soaked: two families, small caches, a folder of its own for temporary files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.families import trial
from tests.soak.soak import SERVE
from tests.system.conftest import RunningServer


@dataclass(frozen=True)
class SoakingServer:
    """A server, and where its processes put temporary files."""

    url: str
    temporary: Path


@contextmanager
def soaking_server(folder: Path, *, log: Path | None = None) -> Iterator[SoakingServer]:
    """A server that is ready, and told to leave at the end.

    Raises:
        AssertionError: It did not leave by itself, or left something behind.
    """
    temporary = folder / "temporary"
    temporary.mkdir()
    environ = {
        "PYTHONPATH": trial.install(folder / "site"),
        "TMPDIR": str(temporary),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),  # it makes one on import, and means to keep it
    }
    server = RunningServer(*SERVE, log=log or folder / "log", environ=environ)
    try:
        yield SoakingServer(server.wait_until_ready().url, temporary)
    finally:
        code = server.stop()
    assert code == 0, server.printed
    left = [*temporary.iterdir(), *Path("/dev/shm").glob(f"walkserve-{server.process.pid}-*")]
    assert left == [], f"the server left {left}"
