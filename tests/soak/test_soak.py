"""The soak's short form; ``python -m tests.soak`` is the long one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.soak.asks import plan
from tests.soak.report import table
from tests.soak.serving import SoakingServer, soaking_server
from tests.soak.soak import Size, Soak
from tests.soak.states import STATES, cells, hold_and_leave

SHORT = Size(requests=120, in_flight=40, every_door=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SoakingServer]:
    with soaking_server(tmp_path) as soaking:
        yield soaking


@pytest.mark.timeout(300)
def test_under_load_and_faults_every_request_has_one_end_and_nothing_is_left_behind(server):
    soaked = asyncio.run(Soak(server.url, server.temporary, SHORT).run())
    print(table(soaked))
    assert soaked.wrong == []
    assert {one.state for one in soaked.held} == set(STATES)
    assert len(soaked.outages) == 2
    assert soaked.peak["in flight"] >= 32
    assert soaked.peak["waiting"] > 0 and soaked.busy_samples > 0
    assert soaked.verdict.equal >= 20
    assert sum(soaked.verdict.ends.values()) == SHORT.requests


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_request_is_left_in_every_state_by_every_door_and_gives_all_back(server):
    async def every() -> int:
        return len([await hold_and_leave(server.url, state, door) for state, door in cells(every_door=True)])

    assert asyncio.run(every()) == 29


def test_a_plan_is_its_seeds_and_has_some_of_everything():
    planned = plan(500, seed=1)
    assert planned == plan(500, seed=1) != plan(500, seed=2)
    assert len(planned) == 500
    assert {(ask.family, ask.route) for ask in planned} >= {
        ("orpheus", "speech"),
        ("orpheus", "generate"),
        ("orpheus", "socket"),
        ("trial", "generate"),
        ("trial", "socket"),
    }
    assert {ask.leaves for ask in planned} == {None, "close", "reset", "cancel"}
    assert {ask.kind for ask in planned} == {"good", "failing", "leaving"}
    assert any(ask.is_slow for ask in planned)
