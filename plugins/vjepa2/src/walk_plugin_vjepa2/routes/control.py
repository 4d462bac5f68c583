"""``WS /v1/control``: a robot's control loop. A tick comes in, a plan goes out, until the client ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import Struct

from walk_plugin_vjepa2.parts import GOAL
from walk_plugin_vjepa2.routes.control_frames import (
    FRAMES,
    End,
    Ended,
    Goal,
    Plan,
    Progress,
    Start,
    Started,
    Tick,
)
from walkserve_sdk import BadRequest, Part, Request
from walkserve_sdk.events import Failed, Problem
from walkserve_sdk.serving import Running, Socket, SocketRoute

TICKS = "ticks"
Shape = tuple[int, int, int] | None


async def control(socket: Socket) -> None:
    """One session."""
    incoming = _Incoming(socket)
    start = await incoming.next()
    if start is None:
        return
    if not isinstance(start, Start):
        raise BadRequest("a session begins with a frame of type 'start'", param="type")
    goal = await incoming.picture(GOAL, start.goal, start.goal_shape)
    name, model = socket.find(start.model)
    outputs = ("plans", "refused", *(("progress",) if start.progress else ()))
    if start.options.get("task", "control") != "control":
        raise BadRequest("a session's task is control; leave 'task' out", param="task")
    part = _part_of(goal)
    request = model.request(parts=(part,), outputs=outputs, options={**start.options, "task": "control"})
    running = await socket.start(name, request, id=start.id, timeout_s=start.timeout_s, writes=(TICKS,))
    await socket.send(_started(running, name, request, start.id))
    await _Session(socket, incoming, running, drop_late=start.drop_late).run()


ROUTE = SocketRoute(
    path="/v1/control",
    surface="control",
    handle=control,
    frames=FRAMES,
    summary="Control a robot: a frame and its state per tick in, the next plan out",
)


def _started(running: Running, name: str, request: Request, id: str | None) -> Started:
    options: Any = request.options
    return Started(running.request_id, name, request.seed, options.horizon, options.context_frames, id)


# --- what comes -------------------------------------------------------------------------------------------


class _Incoming:
    """Frames of the client, each with the picture that follows it."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._next: Struct | None = None
        """Came where a picture was due."""

    async def next(self) -> Struct | None:
        """The next frame that is no picture; None when there is no more."""
        if self._next is not None:
            frame, self._next = self._next, None
            return frame
        while isinstance(received := await self._socket.receive(), bytes):
            async with self._socket.answering():
                raise BadRequest("a binary frame came that no other has announced; it is left out")
        return received

    async def picture(self, name: str, image: bytes | None, shape: Shape) -> np.ndarray[Any, Any]:
        """What a frame came with: pixels, or the bytes of a file, in one axis; checked by its header."""
        if image is None:
            received = await self._socket.receive()
            if not isinstance(received, bytes):
                self._next = received
                raise BadRequest(f"{name}: no picture; send it in the next, binary frame", param=name)
            image = received
        data = np.frombuffer(image, np.uint8)
        if shape is None:
            await self._socket.check([Part("image", image, name)])
            return data
        if min(shape) < 1 or shape[2] != 3 or len(image) != shape[0] * shape[1] * shape[2]:
            raise BadRequest(
                f"{name}: {len(image):,} bytes are no uint8 pixels [height, width, 3] of shape {list(shape)}",
                param=name,
            )
        return data.reshape(shape)


def _part_of(goal: np.ndarray[Any, Any]) -> Part:
    if goal.ndim == 1:
        return Part("image", goal.tobytes(), GOAL)
    from walkserve_sdk.arrays import write_safetensors

    return Part("tensor", write_safetensors({"goal_frame": goal}))


# --- the session ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """A tick on its way.

    Args:
        number: Of all that came.
        item: What the model's stream takes.
        came_s: When it was there.
        dropped: How many gave way to it.
    """

    number: int
    id: str | None
    item: Mapping[str, Any]
    came_s: float = 0.0
    dropped: int = 0

    def instead_of(self, late: _Asked) -> _Asked:
        """It is planned for in place of one that waited. What was done since is then told by the states."""
        item = {**{name: value for name, value in late.item.items() if name == GOAL}, **self.item}
        item.pop("executed", None)
        return replace(self, item=item, dropped=late.dropped + 1)


class _Session:
    """From the first tick to the last.

    Args:
        drop_late: While a plan is made, only the newest of the ticks that come is kept. Otherwise all are
            planned for, and whoever sends them too fast has to wait.
    """

    def __init__(self, socket: Socket, incoming: _Incoming, running: Running, *, drop_late: bool) -> None:
        self._socket = socket
        self._incoming = incoming
        self._running = running
        self._drop_late = drop_late
        self._late: _Asked | None = None
        self._asked: dict[int, _Asked] = {}
        """By their places in the model's stream, those that have no answer yet."""
        self._written = 0
        self._goal: np.ndarray[Any, Any] | None = None
        """It goes with the next tick."""
        self._is_gap = False
        """A tick could not be used: what the next says was done, was done since that one."""
        self._is_ending = False
        self._ticks = self._planned = self._refused = self._dropped = 0

    async def run(self) -> None:
        """Until the client ends it. Raises what it failed with."""
        tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._answer())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._socket.send(Ended(self._ticks, self._planned, self._refused, self._dropped))

    async def _read(self) -> None:
        while True:
            match await self._incoming.next():
                case Tick() as tick:
                    await self._take(tick)
                case Goal() as goal:
                    async with self._socket.answering(GOAL):
                        self._goal = await self._incoming.picture(GOAL, goal.image, goal.shape)
                case End() | None:  # or the server stops
                    break
                case _:
                    async with self._socket.answering():
                        raise BadRequest(
                            "this session has begun; open another socket for a second", param="type"
                        )
        self._is_ending = True
        self._end_if_done()

    async def _take(self, tick: Tick) -> None:
        item: dict[str, Any] = {"state": tick.state}
        asked = _Asked(self._ticks, tick.id, item)
        self._ticks += 1
        try:
            item["frame"] = await self._incoming.picture("image", tick.image, tick.shape)
        except BadRequest as error:
            self._is_gap = True
            await self._refuse(asked, str(error), error.param, error.code)
            return
        asked = replace(asked, came_s=time.monotonic())
        if tick.executed is not None and not self._is_gap:
            item["executed"] = tick.executed
        if self._goal is not None:
            item[GOAL] = self._goal
        self._goal, self._is_gap = None, False
        if not (self._drop_late and self._asked):
            await self._write(asked)
            return
        if self._late is not None:
            self._dropped += 1
            asked = asked.instead_of(self._late)
        self._late = asked

    async def _write(self, asked: _Asked) -> None:
        self._asked[self._written] = asked
        self._written += 1
        await self._running.send(TICKS, asked.item)

    async def _answer(self) -> None:
        async for event in self._running:
            told = event.data
            if event.output == "progress":
                await self._socket.send(_progress(told, self._asked[told["tick"]]))
                continue
            asked = self._asked[told["tick"]]
            if event.output == "plans":
                self._planned += 1
                await self._socket.send(_plan(told, asked))
            else:
                self._keep_goal(asked, told["param"])
                await self._refuse(asked, told["message"], told["param"] or None)
            del self._asked[told["tick"]]  # not before it is told: until then a newer one waits
            if self._late is not None:
                late, self._late = self._late, None
                await self._write(late)
            self._end_if_done()

    def _keep_goal(self, asked: _Asked, param: str) -> None:
        """A tick was refused; its goal, unless that was the reason, comes with the next one."""
        goal = asked.item.get(GOAL)
        if goal is None or param == GOAL:
            return
        if self._late is not None:
            self._late = replace(self._late, item={GOAL: goal, **self._late.item})
        elif self._goal is None:
            self._goal = goal

    def _end_if_done(self) -> None:
        if self._is_ending and self._late is None:
            self._running.end(TICKS)

    async def _refuse(self, asked: _Asked, message: str, param: str | None, code: str | None = None) -> None:
        self._refused += 1
        problem = Problem(f"tick {asked.number}: {message}", BadRequest.type, param, code)
        await self._socket.send(
            Failed(id=asked.id if asked.id is not None else str(asked.number), error=problem)
        )


def _plan(told: Mapping[str, Any], asked: _Asked) -> Plan:
    return Plan(
        tick=asked.number,
        id=asked.id,
        actions=told["actions"].tolist(),
        energy=told["energy"],
        seed=told["seed"],
        context_frames=told["context_frames"],
        restarted=told["restarted"],
        dropped=asked.dropped,
        latency_s=round(time.monotonic() - asked.came_s, 6),
    )


def _progress(told: Mapping[str, Any], asked: _Asked) -> Progress:
    return Progress(
        tick=asked.number,
        id=asked.id,
        iteration=told["iteration"],
        best_energy=told["best_energy"],
        mean_energy=told["mean_energy"],
        mean=told["mean"].tolist(),
        std=told["std"].tolist(),
    )
