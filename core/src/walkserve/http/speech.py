"""``POST /v1/audio/speech``: text in, sound out, whole or as it comes."""

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
from walkserve.http.models import having
from walkserve.http.problems import documented
from walkserve.http.settings import HttpSettings
from walkserve.http.speech_answers import write_speech
from walkserve.http.speech_docs import DESCRIPTION, speech_operation
from walkserve.http.speech_pieces import Spoken
from walkserve.http.speech_reading import SURFACE, read_speech
from walkserve.http.terms import read_terms
from walkserve_sdk import Model, Request


def speech_route(caller: Caller, models: Mapping[str, Model], settings: HttpSettings) -> BaseRouteHandler:
    """The route."""
    speaking = having(models, SURFACE)

    @post(
        "/v1/audio/speech",
        status_code=200,
        summary="Speak a text",
        description=DESCRIPTION,
        tags=["audio"],
        media_type="audio/wav",
        operation_class=speech_operation(speaking),
        responses=documented(400, 404, 408, 413, 415, 429, 500, 503, 504),
    )
    async def speak(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        speech = read_speech(models, await read_object(request, settings.body_bytes))
        terms = read_terms(request, most_s=settings.timeout_s)

        async def write(client: Client) -> None:
            def submit(piece: Request) -> Call:
                return caller.submit(speech.model, piece, on_cut=client.abort, terms=terms)

            with Spoken(speech, submit) as spoken:
                spoken.record.is_streamed = speech.manner != "whole"
                await write_speech(speech, spoken, client)

        return Answer(write)

    return speak
