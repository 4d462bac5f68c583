"""WS /v1/control of a running server: a robot drives to goals in one session each, and what may go wrong."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import dot_world as world
import numpy as np
import pytest
from closed_loop import TICKS, Trip
from PIL import Image
from tests.system.conftest import RunningServer
from websockets.asyncio.client import ClientConnection, connect

SEARCH = {"horizon": 1, "samples": 64, "iterations": 6, "topk": 8, "maxnorm": 0.075, "seed": 0}
QUICK = SEARCH | {"samples": 2, "topk": 2, "iterations": 1}
SLOW = SEARCH | {"samples": 400, "iterations": 10}
SOON_S = 60
START = np.array([0.1, -0.1, 0.1, 0, 0, 0, 0.2])
GOAL = np.array([-0.1, 0.1, 0.2, 0, 0, 0, 0.8])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    log = tmp_path_factory.mktemp("control") / "log"
    server = RunningServer("vjepa2-ac:toy", "--port", "0", "--dtype", "float32", log=log)
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed


def png(state: world.State) -> bytes:
    file = BytesIO()
    Image.fromarray(world.render(state)).save(file, "PNG")
    return file.getvalue()


class Session:
    """A client of one control loop."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, data: bytes | None = None, **frame: Any) -> None:
        await self.socket.send(json.dumps(frame))
        if data is not None:
            await self.socket.send(data)

    async def hear(self) -> dict[str, Any]:
        return json.loads(await asyncio.wait_for(self.socket.recv(), SOON_S))

    async def tick(self, state: world.State, **more: Any) -> None:
        await self.say(png(state), type="tick", state=state.tolist(), **more)

    async def closed(self) -> int | None:
        await asyncio.wait_for(self.socket.wait_closed(), SOON_S)
        return self.socket.close_code


@asynccontextmanager
async def session(server: RunningServer, goal: world.State, **more: Any) -> AsyncIterator[Session]:
    """One that has begun."""
    async with connect(server.url.replace("http", "ws") + "/v1/control") as socket:
        one = Session(socket)
        start = {"type": "start", "model": "vjepa2-ac", "options": SEARCH} | more
        await one.say(png(goal), **start)
        told = await one.hear()
        assert told["type"] == "started", told
        yield one


def run(talk: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(talk(), 100))


async def travel(server: RunningServer, start: world.State, goal: world.State) -> Trip:
    """Go to one goal in one session, an action per tick."""
    states = [start]
    async with session(server, goal) as one:
        for number in range(TICKS):
            await one.tick(states[-1])
            plan = await one.hear()
            assert (plan["type"], plan["tick"], plan["seed"]) == ("plan", number, number)
            states.append(world.step(states[-1], np.array(plan["actions"][0])))
        await one.say(type="end")
        ended = {"type": "ended", "ticks": TICKS, "planned": TICKS, "refused": 0, "dropped": 0}
        assert await one.hear() == ended
        assert await one.closed() == 1000
    return Trip(goal, states)


def test_goals_are_reached_in_one_session_each_and_nothing_is_left(server: RunningServer) -> None:
    random = np.random.default_rng(3)
    ends = [(world.some_state(random), world.some_state(random)) for _ in range(3)]

    async def drive() -> None:
        for trip in await asyncio.gather(*(travel(server, *pair) for pair in ends)):
            assert trip.is_reached, f"{trip.left:.3f} away from {trip.goal}"

    run(drive)
    server.wait_for(lambda state: state["open_requests"] == 0 and reserved(state) == 0)


def reserved(state: dict[str, Any]) -> int:
    workers = [worker for model in state["models"] for worker in model["workers"]]
    return sum(pool["reserved"] for worker in workers for pool in worker["pools"].values())


def test_pictures_come_as_files_or_pixels_in_binary_frames_or_base64(server: RunningServer) -> None:
    pixels = world.render(START)
    shape = list(pixels.shape)
    b64 = {
        name: base64.b64encode(data).decode()
        for name, data in (("png", png(START)), ("raw", pixels.tobytes()))
    }
    goal = base64.b64encode(png(GOAL)).decode()

    async def talk() -> None:
        async with connect(server.url.replace("http", "ws") + "/v1/control") as socket:
            one = Session(socket)
            await one.say(type="start", model="vjepa2-ac", goal=goal, options=SEARCH | {"seed": 9}, id="mine")
            started = await one.hear()
            del started["request_id"]
            asked = {"model": "vjepa2-ac:toy", "seed": 9, "horizon": 1, "context_frames": 1, "id": "mine"}
            assert started == {"type": "started"} | asked
            plans = []
            state = {"type": "tick", "state": START.tolist()}
            for data, more in [
                (png(START), {}),
                (pixels.tobytes(), {"shape": shape}),
                (None, {"image": b64["png"]}),
                (None, {"image": b64["raw"], "shape": shape}),
            ]:
                await one.say(data, **state, **more)
                plans.append(await one.hear())
            assert [plan["tick"] for plan in plans] == [0, 1, 2, 3]
            for plan in plans:  # of one picture; only the seeds differ
                assert plan["energy"] == pytest.approx(plans[0]["energy"], abs=0.03)

    run(talk)


def test_progress_a_new_goal_and_a_full_context_are_told(server: RunningServer) -> None:
    async def talk() -> None:
        options = SEARCH | {"context_frames": 2, "iterations": 2}
        async with session(server, GOAL, options=options, progress=True) as one:
            told = []
            for number in range(3):
                if number == 2:
                    await one.say(png(START), type="goal")
                await one.tick(START, id=f"t{number}")
                told += [await one.hear() for _ in range(3)]
            kinds = [(each["type"], each["tick"], each["id"]) for each in told]
            assert kinds == [
                (kind, number, f"t{number}")
                for number in range(3)
                for kind in ("progress", "progress", "plan")
            ]
            plans = told[2::3]
            assert [plan["context_frames"] for plan in plans] == [1, 2, 2]
            assert [plan["restarted"] for plan in plans] == [False, False, True]
            assert plans[2]["energy"] < plans[1]["energy"] / 2  # it stands where it is to go now
            assert plans[0]["energy"] > told[0]["best_energy"] * 0.5 and len(told[0]["mean"][0]) == 4

    run(talk)


def test_a_bad_tick_is_told_by_its_name_and_the_session_goes_on(server: RunningServer) -> None:
    async def talk() -> None:
        async with session(server, GOAL, options=QUICK) as one:
            bad = [
                ({"state": [0.0] * 6}, png(START), "state", "of shape [6]"),
                ({"state": [0.0] * 7}, b"no picture", "image", "an image is PNG"),
                ({"state": [0.0] * 7}, png(START)[:-30], "frame", "broken"),
                (
                    {"state": [0.0] * 7, "shape": [2, 2, 3]},
                    bytes(11),
                    "image",
                    "11 bytes are no uint8 pixels",
                ),
            ]
            for number, (fields, data, param, said) in enumerate(bad):
                await one.say(data, type="tick", id=f"bad {number}", **fields)
                told = await one.hear()
                assert (told["type"], told["id"], told["error"]["param"]) == ("error", f"bad {number}", param)
                assert said in told["error"]["message"] and f"tick {number}:" in told["error"]["message"]
            await one.say(type="tick", state=START.tolist())  # and no picture
            await one.tick(START)
            assert "send it in the next, binary frame" in (await one.hear())["error"]["message"]
            plan = await one.hear()
            assert (plan["type"], plan["tick"]) == ("plan", 5)
            await one.say(type="start", model="vjepa2-ac")
            assert "this session has begun" in (await one.hear())["error"]["message"]
            await one.say(type="end")
            assert await one.hear() == {"type": "ended", "ticks": 6, "planned": 1, "refused": 5, "dropped": 0}
            assert await one.closed() == 1000

    run(talk)


@pytest.mark.parametrize(
    ("start", "param", "said"),
    [
        ({"model": "nobody"}, "model", "there is no model"),
        ({"options": {"horizont": 1}}, "horizont", "did you mean 'horizon'?"),
        ({"options": {"task": "plan"}}, "task", "leave 'task' out"),
        ({"options": {"context_frames": 9}}, "context_frames", "9 observed frames and a horizon of 2"),
        ({"goal_shape": [1, 1, 3]}, "goal", "are no uint8 pixels"),
    ],
)
def test_a_session_that_cannot_begin_is_told_why_and_closed(server, start, param, said) -> None:
    async def talk() -> None:
        async with connect(server.url.replace("http", "ws") + "/v1/control") as socket:
            one = Session(socket)
            await one.say(png(GOAL), **({"type": "start", "model": "vjepa2-ac"} | start))
            told = await one.hear()
            while told["type"] == "started":
                told = await one.hear()
            assert (told["type"], told["error"]["param"]) == ("error", param)
            assert said in told["error"]["message"]
            assert await one.closed() == 1008

    run(talk)


@pytest.mark.parametrize("drop_late", [True, False])
def test_of_ticks_that_come_too_fast_the_newest_counts_or_all_do(
    server: RunningServer, drop_late: bool
) -> None:
    async def talk() -> None:
        options = (SLOW if drop_late else QUICK) | {"context_frames": 2}
        async with session(server, GOAL, options=options, drop_late=drop_late) as one:
            for _ in range(12):
                await one.tick(START, executed=[0.05] * 7)
            await one.say(type="end")
            told = [await one.hear()]
            while told[-1]["type"] != "ended":
                told.append(await one.hear())
            *plans, ended = told
            assert {plan["type"] for plan in plans} == {"plan"}
            assert (plans[0]["tick"], plans[-1]["tick"]) == (0, 11)  # the newest is never lost
            assert ended["ticks"] == 12 == ended["planned"] + ended["dropped"]
            assert ended["dropped"] == sum(plan["dropped"] for plan in plans)
            if drop_late:
                assert ended["dropped"] > 0
            else:
                assert [plan["tick"] for plan in plans] == list(range(12))
            assert await one.closed() == 1000

    run(talk)


def test_a_socket_that_is_lost_gives_everything_back(server: RunningServer) -> None:
    async def leave() -> None:
        async with session(server, GOAL, options=SLOW | {"context_frames": 3}) as one:
            await one.tick(START)
            await asyncio.to_thread(server.wait_for, lambda state: reserved(state) > 0)
            one.socket.transport.abort()

    run(leave)
    server.wait_for(lambda state: state["open_requests"] == 0 and reserved(state) == 0)
