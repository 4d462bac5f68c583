"""What the terminal is told: lines, and how loading goes, as a bar where there can be one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from walkserve.logs import is_json

log = logging.getLogger(__name__)


def say(line: str) -> None:
    """A line for whoever started the server; what a program would read goes to stdout instead."""
    if is_json():
        log.info("%s", line)
        return
    print(f"walkserve: {line}", file=sys.stderr, flush=True)


class LoadingProgress:
    """Shows which of a server's ``total`` components have been loaded: a bar, or else a line for each."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        self._is_live = console.is_terminal and not is_json()
        self._progress = Progress(
            TextColumn("loading {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("components", total=total, start=self._is_live)
        self._said: set[tuple[str, str]] = set()

    def show(self, loading: Mapping[tuple[str, str], bool]) -> None:
        """The newest: (worker, component) -> whether it has been loaded."""
        if self._is_live and loading:
            waiting = [component for (_, component), is_done in loading.items() if not is_done]
            self._progress.start()
            self._progress.update(
                self._task,
                total=len(loading),
                completed=sum(loading.values()),
                description=", ".join(waiting),
            )
        for (worker, component), is_done in loading.items():
            if is_done and not self._is_live and (worker, component) not in self._said:
                self._said.add((worker, component))
                say(f"{worker} has loaded {component}")

    def close(self) -> None:
        """Take the bar off the terminal; nothing is shown any more."""
        if self._is_live:
            self._progress.stop()
        self._is_live = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
