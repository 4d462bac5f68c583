"""Plugins in folders of their own, as pip would leave them, and the command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

HEAVY = ("torch", "transformers", "litestar", "zmq")

PROGRAM = f"""
import sys
from walkserve.cli import main
code = main()
print("heavy:", *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""

GOOD = """
from dataclasses import dataclass
from typing import Annotated, Literal
from msgspec import Meta
from walkserve_sdk import Audio, Component, Model, Node, Output, PagedKV, SamplingParams, WalkGraph, track

class {name}(Model):
    \"\"\"It hums. And more.\"\"\"

    @dataclass(frozen=True)
    class Options(Model.Options):
        \"\"\"What it may hum.

        Args:
            tune: Which of
                the tunes.
            pace, pitch: Told once for both.
        \"\"\"
        tune: Literal["slow", "quick"] = "slow"
        pace: Annotated[float, Meta(gt=0, lt=4)] = 1.5
        pitch: Annotated[int, Meta(ge=-5, le=5)] = 0
        alone: bool = True
        sampling: SamplingParams = SamplingParams()

    voice = Component("nowhere:Voice", kv=PagedKV(page_size=8))
    sound = Output(Audio(rate=8_000, channels=2))
    speak = WalkGraph(Node(voice, "say", takes="text", gives="pcm", to=sound))

    @track
    def speaking(self, request, prepared):
        yield self.speak(text=request.one("text"))
"""


class Shelf:
    """A folder for sys.path, to which distributions are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        name: str,
        source: str | None,
        *,
        target: str | None = None,
        model: str | None = None,
        descriptor: object = None,
        requires: tuple[str, ...] = (),
        group: str = "walkserve.models",
    ) -> None:
        """``walk-plugin-NAME 2.0``, with the class ``Name`` and the model ``name`` unless told otherwise."""
        package = f"walk_plugin_{name}"
        info = self.folder / f"{package}-2.0.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: walk-plugin-{name}\nVersion: 2.0\n{needs}"
        )
        point = target or f"{package}:{name.capitalize()}"
        (info / "entry_points.txt").write_text(f"[{group}]\n{model or name} = {point}\n")
        if descriptor is not None:
            (info / "extra_metadata").mkdir()
            (info / "extra_metadata" / "walkserve.json").write_text(json.dumps(descriptor))
        if source is not None:
            (self.folder / package).mkdir()
            (self.folder / package / "__init__.py").write_text(source)

    def run(self, *arguments: str | Path, **env: str) -> SimpleNamespace:
        """``walkserve ...`` with the shelf before everything else on sys.path."""
        paths = [str(self.folder), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | env,
            timeout=120,
        )
        *errors, heavy = done.stderr.splitlines() or [""]
        return SimpleNamespace(
            code=done.returncode, out=done.stdout, errors="\n".join(errors), heavy=heavy.split()[1:]
        )

    def json(self, *arguments: str, **env: str):
        """What a command prints for programs."""
        return json.loads(self.run(*arguments, "--json", **env).out)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    folder = tmp_path / "shelf"
    folder.mkdir()
    yield Shelf(folder)


@pytest.fixture
def good() -> Callable[[str], str]:
    return lambda name: GOOD.format(name=name)
