"""How loading goes, on the terminal: a bar where there is one, else a line per component."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class LoadingProgress:
    """Shows which of a server's ``total`` components have been loaded."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        self._is_live = console.is_terminal
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
                print(f"walkserve: {worker} has loaded {component}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar off the terminal; nothing is shown any more."""
        if self._is_live:
            self._progress.stop()
        self._is_live = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
