"""``POST /v1/chat/completions``: what was said in, an answer out, whole or as it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.handlers import BaseRouteHandler

from walkserve.http.answers import Answer, Client
from walkserve.http.bodies import read_object
from walkserve.http.callers import Caller
from walkserve.http.calls import Call
from walkserve.http.chat_answers import write_chat
from walkserve.http.chat_docs import DESCRIPTION, chat_operation
from walkserve.http.chat_reading import SURFACE, read_chat
from walkserve.http.chat_writing import Answers
from walkserve.http.media_checks import check_media
from walkserve.http.models import having
from walkserve.http.problems import documented
from walkserve.http.settings import HttpSettings
from walkserve.http.siblings import Siblings
from walkserve.http.terms import read_terms
from walkserve_sdk import Model, Request


def chat_route(caller: Caller, models: Mapping[str, Model], settings: HttpSettings) -> BaseRouteHandler:
    """The route."""
    chatting = having(models, SURFACE)

    @post(
        "/v1/chat/completions",
        status_code=200,
        summary="Answer in a conversation",
        description=DESCRIPTION,
        tags=["chat"],
        operation_class=chat_operation(chatting),
        include_in_schema=bool(chatting),
        responses=documented(400, 404, 408, 413, 415, 429, 500, 503, 504),
        request_max_body_size=None,  # it is read up to a limit of its own
    )
    async def chat(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        given = await read_object(request, settings.body_bytes, media_bytes=settings.media_bytes)
        if settings.remote_media:
            from walkserve.http.remote_media import fetch_messages  # only here: it takes a while to import

            await fetch_messages(given, settings.media_bytes)
        asked = read_chat(models, given, media_bytes=settings.media_bytes)
        terms = read_terms(request, most_s=settings.timeout_s)
        await check_media(asked.requests[0].parts, settings, place=lambda number, part: "messages")

        async def write(client: Client) -> None:
            def submit(one: Request) -> Call:
                return caller.submit(asked.model, one, on_cut=client.abort, terms=terms)

            with Siblings(asked.requests, submit, asked.called) as siblings:
                await write_chat(asked, Answers(asked, siblings), client)

        return Answer(write)

    return chat
