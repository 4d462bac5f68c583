"""A client of a real server that writes while its request runs: over sockets, tensors in shared memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.families import trial
from tests.families.robot_family import Robot
from tests.system.conftest import RunningServer
from websockets.asyncio.client import connect

from walkserve import messages as m
from walkserve.delivery import Done
from walkserve.http.callers import Caller
from walkserve.http.calls import Call, Items
from walkserve.transport.rundir import run_root
from walkserve.transport.shm import ArenaReader
from walkserve.transport.sockets import AsyncSocketMailbox
from walkserve_sdk import Request
from walkserve_sdk.errors import Unavailable

SOON_S = 20


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_server) -> RunningServer:
    monkeypatch.setenv("PYTHONPATH", trial.install(tmp_path / "installed", "robot"))
    return start_server("robot", "--port", "0").wait_until_ready()


def lent(server: RunningServer) -> int:
    """Bytes of shared memory that its workers have."""
    (folder,) = run_root().glob(f"walkserve-{server.process.pid}-*")
    return sum(path.stat().st_size for path in folder.glob("*.arena"))


@asynccontextmanager
async def client_of(server: RunningServer) -> AsyncIterator[Caller]:
    """A second client beside the server's own HTTP process, which speaks to its conductor and its workers."""
    (folder,) = run_root().glob(f"walkserve-{server.process.pid}-*")
    reader = ArenaReader(folder)
    try:
        with AsyncSocketMailbox("robotics", folder, receives=m.ToClient) as mailbox:
            async with Caller(mailbox, reader, address="robotics") as caller:
                await asyncio.wait_for(caller.wait_until(lambda: caller.state.phase == "ready"), SOON_S)
                yield caller
    finally:
        reader.close()


def submit(caller: Caller) -> Call:
    options = Robot.Options()
    request = Request(parts=(), outputs=("moves",), options=options, seed=1, given=frozenset())
    return caller.submit("robot", request, writes=[Robot.ticks])


async def next_move(call: Call) -> object:
    """The first of those that have come."""
    items = (await asyncio.wait_for(call.take(most_bytes=1), SOON_S))[0]
    assert isinstance(items, Items), items
    return items.items[0]


def test_each_tick_is_answered_and_nothing_grows(server: RunningServer) -> None:
    async def drive() -> None:
        async with client_of(server) as caller:
            with submit(caller) as call:
                image = np.ones((64, 64, 3), np.uint8)
                await call.send("ticks", [image.tobytes(), "left", 0.5, image])
                assert await next_move(call) == "0: 12288 bytes left 0.5 sum 12288"
                memory = 0
                for tick in range(1, 500):
                    await call.send("ticks", tick)
                    assert await next_move(call) == f"{tick}: {tick}"
                    memory = memory or lent(server)
                assert lent(server) == memory, "each Walk hands 40 kB to the next"
                call.end("ticks")
                (done,) = await asyncio.wait_for(call.take(), SOON_S)
                assert isinstance(done, Done) and done.ended.finish_reason == "500 ticks"

    asyncio.run(drive())
    assert server.stop() == 0, server.printed


@pytest.mark.parametrize("worker", ["robot.host", "robot.rank0"])
def test_when_a_worker_is_lost_whoever_writes_is_told_and_may_ask_again(
    server: RunningServer, worker: str
) -> None:
    async def write_on(call: Call) -> None:
        for tick in range(10**6):
            await call.send("ticks", tick)

    async def drive() -> None:
        async with client_of(server) as caller:
            with submit(caller) as call:
                writing = asyncio.create_task(write_on(call))
                assert await next_move(call) == "0: 0"
                workers = caller.state.models[0].workers
                os.kill(next(one.pid for one in workers if one.name == worker), signal.SIGKILL)
                with pytest.raises(Unavailable, match="robot lost a worker; try again"):
                    await asyncio.wait_for(writing, SOON_S)
            await asyncio.wait_for(caller.wait_until(lambda: caller.state.phase == "ready"), 60)
            with submit(caller) as call:
                await call.send("ticks", "again")
                assert await next_move(call) == "0: again"

    asyncio.run(drive())
    assert server.stop() == 0, server.printed


def test_a_plugins_routes_write_the_ticks_that_come_in_frames_or_in_a_body(server: RunningServer) -> None:
    async def drive() -> None:
        async with connect(server.url.replace("http", "ws") + "/v1/robots/drive") as socket:

            async def ask(frame: bytes | str) -> object:
                await socket.send(frame)
                return json.loads(await asyncio.wait_for(socket.recv(), SOON_S))

            assert await ask(bytes(70)) == {"type": "move", "text": "0: 70 bytes"}
            for tick in range(1, 20):
                seen = json.dumps({"type": "tick", "seen": f"bend {tick}"})
                assert await ask(seen) == {"type": "move", "text": f"{tick}: bend {tick}"}
            assert await ask('{"type": "end"}') == {"type": "end", "finish_reason": "20 ticks"}
            await asyncio.wait_for(socket.wait_closed(), SOON_S)
            assert socket.close_code == 1000

    asyncio.run(drive())
    toured = httpx.post(f"{server.url}/v1/robots/tour", json={"model": "robot", "ticks": ["a", "b"] * 5})
    assert toured.json() == {"moves": "".join(f"{n}: {'ab'[n % 2]}" for n in range(10))}
    assert server.stop() == 0, server.printed


def test_a_socket_that_is_lost_ends_the_request_it_writes(server: RunningServer) -> None:
    async def leave() -> None:
        socket = await connect(server.url.replace("http", "ws") + "/v1/robots/drive")
        await socket.send(bytes(3))
        assert json.loads(await socket.recv())["text"] == "0: 3 bytes"
        assert server.state()["open_requests"] == 1
        socket.transport.abort()

    asyncio.run(leave())
    server.wait_for(lambda state: state["open_requests"] == 0)
    assert server.stop() == 0, server.printed
