"""After every test: whatever it asked of an Engine, its workers are sound, and nothing is left in them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from threading import Thread, current_thread
from typing import Any
from weakref import WeakKeyDictionary

import pytest

IDLE_S = 20


@pytest.fixture(scope="session", autouse=True)
def _worker_loops() -> Iterator[WeakKeyDictionary[Any, Thread]]:
    """Every loop that an engine of this process has started, and its thread."""
    loops: WeakKeyDictionary[Any, Thread] = WeakKeyDictionary()
    assemble = sys.modules.get("walkserve.worker.assemble")  # else no test here has an engine
    if assemble is None:
        yield loops
        return
    load = assemble.Worker.load

    def noted(worker: Any) -> Any:
        loop = load(worker)
        loops[loop] = current_thread()
        return loop

    assemble.Worker.load = noted
    yield loops
    assemble.Worker.load = load


@pytest.fixture(autouse=True)
def _workers_are_sound(_worker_loops: WeakKeyDictionary[Any, Thread]) -> Iterator[None]:
    yield
    for loop, thread in list(_worker_loops.items()):
        state = loop.state
        if thread.is_alive() and not state.is_stopping:
            until = time.monotonic() + IDLE_S
            while _left(loop) and time.monotonic() < until:
                time.sleep(0.005)
            assert not _left(loop), f"{state.rank} is left with {_left(loop)}"
            state.check()
        elif state.is_stopping:
            thread.join(IDLE_S)
            state.check()  # requests that were open when it was told to stop are what they were


def _left(loop: Any) -> dict[str, int]:
    """What a worker still has to do or holds for somebody."""
    state = loop.state
    counts = {
        "open requests": state.open_requests,
        "calls that are ready": state.scheduler.waiting,
        "calls that wait for room": state.room.waiting,
        "batches in flight": len(loop.submitted),
        "messages to send": len(state.outbox),
        "tensors lent": state.lending.carrier.held,
    }
    return {what: count for what, count in counts.items() if count}
