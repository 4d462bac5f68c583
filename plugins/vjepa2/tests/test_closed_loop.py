"""Plans lead to goals: the toy model drives a disc in a simulator that knows nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from closed_loop import SEARCH, at_random, by_plans, seen, trips
from safetensors.numpy import save
from tests.system.conftest import RunningServer

from walkserve import Engine
from walkserve_sdk import Part


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("vjepa2-ac:toy", device="cpu", dtype="float32") as engine:
        yield engine


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    log = tmp_path / "server.log"
    server = RunningServer("vjepa2-ac:toy", "--port", "0", "--dtype", "float32", log=log)
    try:
        yield server.wait_until_ready()
    finally:
        server.stop()


def test_random_actions_reach_next_to_nothing():
    assert sum(trip.is_reached for trip in trips(at_random(), 100, at_once=1)) <= 2


def test_planned_actions_reach_their_goals(engine: Engine):
    def plan(state, goal):
        scene = seen(state, goal)
        scene["goal_frame"] = scene.pop("goal")
        part = Part("tensor", save(scene))
        return engine.generate(parts=[part], task="plan", outputs=["plan"], **SEARCH).plan.actions[0]

    for trip in trips(plan, 4):
        assert trip.is_reached, f"{trip.left:.3f} away from {trip.goal}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_goals_are_reached_by_one_request_to_a_running_server_each_tick(server: RunningServer):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        reached = sum(trip.is_reached for trip in trips(by_plans(client), 20, seed=1))
    assert reached >= 18
