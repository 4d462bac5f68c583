"""How pictures leave: all in one JSON object, or each as an event of its own."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from walkserve.delivery import Done
from walkserve.http.answers import Client
from walkserve.http.calls import Item
from walkserve.http.image_reading import EDITS, Pictures
from walkserve.http.problems import told
from walkserve.http.siblings import Siblings
from walkserve.http.sse import EventStream, event
from walkserve.media.pictures import encode_picture
from walkserve.messages import RequestEnded
from walkserve_sdk.errors import ComponentError

log = logging.getLogger(__name__)


class Usage(Struct, frozen=True):
    """As OpenAI counts it. What was read for all pictures together is counted once."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class Picture(Struct, frozen=True):
    """One of them. OpenAI has ``b64_json`` only."""

    b64_json: bytes
    seed: int
    finish_reason: str


class ImagesAnswer(Struct, frozen=True):
    """All of them."""

    created: int
    data: list[Picture]
    background: str
    output_format: str
    quality: str
    size: str
    usage: Usage


class Shown(Struct, frozen=True, omit_defaults=True):
    """An event with a picture: one to look at while it is made (``partial_image``), or done (``completed``).

    ``index`` says which of several pictures it is, and ``seed`` its own; OpenAI has neither.
    """

    type: str
    b64_json: bytes
    created_at: int
    background: str
    output_format: str
    quality: str
    size: str
    index: int
    seed: int
    partial_image_index: int | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    request_id: str | None = None


async def write_pictures(pictures: Pictures, surface: str, siblings: Siblings, client: Client) -> None:
    """Send what is painted. A failure before the first byte is raised, and becomes an error response."""
    if pictures.is_streamed:
        await _write_events(pictures, surface, siblings, client)
    else:
        await _write_whole(pictures, siblings, client)


async def _write_whole(pictures: Pictures, siblings: Siblings, client: Client) -> None:
    made: dict[int, list[tuple[bytes, str]]] = {index: [] for index in range(len(pictures.requests))}
    while came := await siblings.take():
        for index, said in came:
            if not isinstance(said, Done) and said.output == pictures.output:
                made[index] += [await _encode(pictures, item) for item in said.items]
    data = [
        Picture(data, pictures.requests[index].seed, siblings.ended[index].finish_reason)
        for index, each in made.items()
        for data, _ in each
    ]
    sizes = [size for each in made.values() for _, size in each]
    if not all(made.values()):
        raise ComponentError(f"{pictures.model}: a request ended without its picture")
    answer = ImagesAnswer(
        created=int(time.time()),
        data=data,
        background="opaque",
        output_format=pictures.format.name,
        quality="auto",
        size=sizes[0],
        usage=_usage(*siblings.ended.values()),
    )
    body = msgspec.json.encode(answer)
    headers = _headers(pictures) | {"content-type": "application/json", "content-length": str(len(body))}
    await client.start(200, headers)
    await client.send(body, more=False)


async def _write_events(pictures: Pictures, surface: str, siblings: Siblings, client: Client) -> None:
    events = EventStream(client, _headers(pictures))
    prefix = "image_edit" if surface == EDITS else "image_generation"
    created = int(time.time())
    last: dict[int, tuple[bytes, str]] = {}
    partial = dict.fromkeys(range(len(pictures.requests)), 0)
    left = len(pictures.requests)

    async def send(kind: str, index: int, picture: tuple[bytes, str], **more: Any) -> None:
        data, size = picture
        name = f"{prefix}.{kind}"
        shown = Shown(
            type=name,
            b64_json=data,
            created_at=created,
            background="opaque",
            output_format=pictures.format.name,
            quality="auto",
            size=size,
            index=index,
            seed=pictures.requests[index].seed,
            **more,
        )
        await events.send(event(shown, name), more=left > 0)

    try:
        while came := await siblings.take():
            for index, said in came:
                if isinstance(said, Done):
                    if index not in last:
                        raise ComponentError(f"{pictures.model}: a request ended without its picture")
                    left -= 1
                    ended = said.ended
                    await send(
                        "completed",
                        index,
                        last.pop(index),
                        usage=_usage(ended),
                        finish_reason=ended.finish_reason,
                        request_id=siblings.record.id,
                    )
                elif said.output == pictures.output:
                    last[index] = await _encode(pictures, said.items[-1])
                elif said.output == pictures.previews:
                    for item in said.items:
                        shown = await _encode(pictures, item)
                        await send("partial_image", index, shown, partial_image_index=partial[index])
                        partial[index] += 1
    except Exception as error:  # whatever it is: a client that sees already has to be told
        if not events.is_started:
            raise
        status, problem = told(error, f"{pictures.model}: a stream that had begun")
        if status < 500:
            log.warning("%s: a stream is cut: %s", pictures.model, problem.message)
        await events.fail(problem)


async def _encode(pictures: Pictures, item: Item) -> tuple[bytes, str]:
    """The file, and how large the picture is; made in a thread, for it takes a while."""
    what = f"{pictures.model}: its output {pictures.output!r}"
    if not isinstance(item, np.ndarray):
        raise ComponentError(f"{what} is a {type(item).__name__}, not a picture")
    try:
        data = await asyncio.to_thread(encode_picture, item, pictures.format, quality=pictures.quality)
    except ValueError as error:
        raise ComponentError(f"{what}: {error}") from error
    return data, f"{item.shape[1]}x{item.shape[0]}"


def _usage(*ended: RequestEnded) -> Usage:
    read = max(one.usage.get("input_tokens", 0) for one in ended)
    wrote = sum(one.usage.get("output_tokens", 0) for one in ended)
    return Usage(read, wrote, read + wrote)


def _headers(pictures: Pictures) -> dict[str, str]:
    return {"x-seed": str(pictures.requests[0].seed)}
