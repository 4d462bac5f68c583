"""A client that leaves a speech route, in each manner of answer: its pages are free within a second.

The native routes are left in every state of a request by ``tests/soak``.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.soak.wire import connection

LONG = {"model": "orpheus", "input": "call 5 5 1", "voice": "tara", "max_tokens": 6000}
MANNERS: dict[str, dict[str, Any]] = {
    "whole": {},
    "whole, in threads": {"response_format": "mp3"},
    "streamed": {"stream": True},
    "events": {"stream_format": "sse"},
    "by sentence": {"stream": True, "split": "sentence", "input": "call 5 5 1! 042"},
}


@pytest.mark.parametrize("how", [pytest.param("close", marks=pytest.mark.slow), "reset"])
@pytest.mark.parametrize("manner", MANNERS)
def test_who_leaves_while_it_is_spoken_gives_the_pages_back_within_a_second(golden_server, manner, how):
    before = golden_server.state()
    assert (before["open_requests"], _reserved(before)) == (0, 0)
    assert asyncio.run(_leave_while_it_runs(golden_server, LONG | MANNERS[manner], how)) < 1


async def _leave_while_it_runs(server, fields, how) -> float:
    async with connection(server.url, is_slow=True) as client:
        await client.send("/v1/audio/speech", fields)
        await _until(server, lambda state: state["models"][0]["running"] == 1)
        client.leave(how)
        left = time.monotonic()
        await _until(server, lambda state: state["open_requests"] == _reserved(state) == 0)
        return time.monotonic() - left


async def _until(server, wanted) -> None:
    deadline = time.monotonic() + 20
    while not wanted(state := await asyncio.to_thread(server.state)):
        assert time.monotonic() < deadline, f"never came about; now: {state}"
        await asyncio.sleep(0.01)


def _reserved(state: dict[str, Any]) -> int:
    workers = [worker for model in state["models"] for worker in model["workers"]]
    return sum(pool["reserved"] for worker in workers for pool in worker["pools"].values())
