"""Routes of the family's own: what it writes as one answer or word by word, and a socket that goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from msgspec import Meta, Struct

from walkserve_sdk import Part
from walkserve_sdk.errors import BadRequest
from walkserve_sdk.hooks import hookimpl
from walkserve_sdk.serving import Exchange, Reply, Route, Running, Socket, SocketRoute


class Trying(Struct, frozen=True):
    """What is asked."""

    text: Annotated[str, Meta(min_length=1, max_length=1000, description="What to go on from.")]
    note: Annotated[bytes | None, Meta(description="A file that is said to be so large, and no more.")] = None


class Tried(Struct, frozen=True):
    """What came of it."""

    words: str
    total: float
    note_bytes: int


class Word(Struct, frozen=True, tag="word"):
    """One word of it."""

    text: str


async def try_it(exchange: Exchange[Trying]) -> object:
    outputs = ("words",) if exchange.wants_events else ("words", "total")
    request = exchange.request(parts=(Part("text", exchange.fields.text),), outputs=outputs)
    running = await exchange.start(request)
    if exchange.wants_events:
        return _words(running)
    result = await running.result()
    if exchange.media_type == "text/plain":
        return Reply(result.words.encode(), "text/plain")
    return Tried(
        result.words, float(sum(piece.sum() for piece in result.total)), len(exchange.fields.note or b"")
    )


async def _words(running: Running) -> AsyncIterator[Word]:
    async for event in running:
        yield Word(event.data)


class Say(Struct, frozen=True, tag="say"):
    """Write on from this."""

    model: str
    text: str
    max_tokens: int = 4


async def talk(socket: Socket) -> None:
    async for frame in socket:
        async with socket.answering():
            if not isinstance(frame, Say):
                raise BadRequest("a binary frame has no meaning here")
            name, model = socket.find(frame.model)
            options = {"max_tokens": frame.max_tokens}
            request = model.request(parts=(Part("text", frame.text),), outputs=("words",), options=options)
            async for event in await socket.start(name, request):
                await socket.send(Word(event.data))


@hookimpl
def walkserve_extend_app() -> list[Route[Trying] | SocketRoute]:
    return [
        Route(
            path="/v1/trials",
            surface="trials",
            handle=try_it,
            fields=Trying,
            answer=Tried,
            events=Word,
            media={"text/plain": "The words alone."},
            summary="Try what the family makes of a text",
            example={"text": "once", "max_tokens": 4},
            example_answer={"words": "more of it", "total": 0.5, "note_bytes": 0},
            example_event={"type": "word", "text": "more"},
        ),
        SocketRoute(
            path="/v1/trials/talk",
            surface="trials",
            handle=talk,
            frames=(Say,),
            summary="Go on from one text after another",
        ),
    ]
