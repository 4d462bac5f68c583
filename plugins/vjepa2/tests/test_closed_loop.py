"""Plans lead to goals: the toy model drives a disc in a simulator that knows nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import local

import pytest
from closed_loop import PLANNING, at_random, trips
from tests.system.conftest import RunningServer

from walkserve import Engine
from walkserve_sdk.client import Client


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
    def plan(seen):
        return engine.generate(parts=[seen], **PLANNING).plan.actions[0]

    for trip in trips(plan, 4):
        assert trip.is_reached, f"{trip.left:.3f} away from {trip.goal}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_goals_are_reached_by_one_request_to_a_running_server_each_tick(server: RunningServer):
    connections = local()

    def plan(seen):
        if not hasattr(connections, "client"):
            connections.client = Client(server.url)
        return connections.client.generate("vjepa2-ac", inputs=[seen], **PLANNING).plan.actions[0]

    reached = sum(trip.is_reached for trip in trips(plan, 20, seed=1))
    assert reached >= 18
