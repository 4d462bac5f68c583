"""What the tutorial prints stands in the example, and the example does what the tutorial says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tests.system.conftest import RunningServer

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/tutorials/plan-in-a-toy-world.md"
EXAMPLE = ROOT / "examples/plan.py"


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    import plan
    import plan_drawing

    yield SimpleNamespace(plan=plan, strip=plan_drawing.strip, animation=plan_drawing.animation)
    for name in ("plan", "plan_drawing"):
        sys.modules.pop(name, None)


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    return [block for kind, block in fenced if kind == language]


def test_the_tutorials_code_is_the_examples():
    source = EXAMPLE.read_text("utf-8")
    quoted = [block for block in blocks("python") if not block.startswith("found = ")]
    assert len(quoted) == 5
    for block in quoted:
        assert block in source


def test_a_trip_is_drawn_as_a_strip_and_as_an_animation(drawing: SimpleNamespace, tmp_path: Path):
    plan = drawing.plan
    there = (plan.START + plan.GOAL) / 2
    rounds = [plan.Round(0.5, there[[0, 1, 2, 6]][None].repeat(2, 0), [there, plan.GOAL])]
    strip = drawing.strip(plan.camera, plan.START, plan.GOAL, rounds)
    assert strip.size == (3 * 240 + 16, 288)
    drawing.animation(plan.camera, plan.START, plan.GOAL, rounds, tmp_path / "trip.gif")
    with Image.open(tmp_path / "trip.gif") as trip:
        assert trip.n_frames >= 4
        trip.seek(trip.n_frames - 1)
        last = np.asarray(trip.convert("RGB")).astype(int)
    orange, blue = (np.abs(last - ink).max(-1) < 20 for ink in ((255, 150, 60), (120, 205, 255)))
    assert orange[:, :384].any() and blue[:, :384].any()  # both are marked on the map


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_arrives(tmp_path: Path):
    server = RunningServer("vjepa2-ac:toy", "--port", "0", "--dtype", "float32", log=tmp_path / "server.log")
    try:
        server.wait_until_ready()
        ran = subprocess.run(
            [sys.executable, EXAMPLE, server.url], cwd=tmp_path, capture_output=True, text=True, timeout=240
        )
    finally:
        server.stop()
    assert ran.returncode == 0, ran.stderr
    told = re.findall(r"energy ([\d.]+), then ([\d.]+) away", ran.stdout)
    assert len(told) == 3
    assert float(told[-1][1]) < 0.04
    assert (tmp_path / "plan.png").is_file() and (tmp_path / "plan.gif").is_file()
