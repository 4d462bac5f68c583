"""Routes of the robot's own: a socket that writes its ticks one by one, and a body that has all of them."""

from __future__ import annotations

from msgspec import Struct

from walkserve_sdk.errors import BadRequest
from walkserve_sdk.hooks import hookimpl
from walkserve_sdk.serving import Exchange, Route, Socket, SocketRoute


class Tick(Struct, frozen=True, tag="tick"):
    """One of them."""

    seen: str


class End(Struct, frozen=True, tag="end"):
    """The last was sent."""


async def drive(socket: Socket) -> None:
    """A move for each tick, a binary frame or one of text."""
    name, model = socket.find("robot")
    running = await socket.start(name, model.request(), writes=("ticks",))
    moves = aiter(running)
    async for frame in socket:
        if isinstance(frame, End):
            break
        await running.send("ticks", frame if isinstance(frame, bytes) else frame.seen)
        await socket.send({"type": "move", "text": (await anext(moves)).data})
    running.end("ticks")
    result = await running.result()
    await socket.send({"type": "end", "finish_reason": result.finish_reason})


class Tour(Struct, frozen=True):
    """What is asked."""

    ticks: list[str]


class Moved(Struct, frozen=True):
    """What came of it."""

    moves: str


async def tour(exchange: Exchange[Tour]) -> Moved:
    if not exchange.fields.ticks:
        raise BadRequest("a tour has ticks", param="ticks")
    running = await exchange.start(exchange.request(), writes=("ticks",))
    for tick in exchange.fields.ticks:
        await running.send("ticks", tick)
    running.end("ticks")
    return Moved((await running.result()).moves)


@hookimpl
def walkserve_extend_app() -> list[Route[Tour] | SocketRoute]:
    return [
        Route(
            path="/v1/robots/tour",
            surface="robots",
            handle=tour,
            fields=Tour,
            answer=Moved,
            summary="Drive by a list",
            example={"ticks": ["left"]},
            example_answer={"moves": "0: left"},
        ),
        SocketRoute(
            path="/v1/robots/drive",
            surface="robots",
            handle=drive,
            frames=(Tick, End),
            summary="Drive tick by tick",
        ),
    ]
