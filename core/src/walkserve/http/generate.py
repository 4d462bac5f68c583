"""``POST /v1/generate``: any model's inputs in, all its outputs out as events, or one of them as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.handlers import BaseRouteHandler

from walkserve.http.accept import choose
from walkserve.http.answers import Answer, Client
from walkserve.http.bodies import read_object
from walkserve.http.callers import Caller
from walkserve.http.event_answers import NDJSON, EventAnswer
from walkserve.http.forms import FORM, is_form
from walkserve.http.generate_accept import OFFERED, RawAnswer, raw_answer
from walkserve.http.generate_ask import read_ask
from walkserve.http.generate_docs import DESCRIPTION, GenerateOperation
from walkserve.http.generate_events import Telling
from walkserve.http.generate_form import read_form
from walkserve.http.generate_run import Calls, CallsOf, Run
from walkserve.http.generate_split import Split
from walkserve.http.media_checks import check_media
from walkserve.http.problems import documented
from walkserve.http.settings import HttpSettings
from walkserve.http.terms import read_terms
from walkserve_sdk import Model
from walkserve_sdk import events as e


def generate_route(caller: Caller, models: Mapping[str, Model], settings: HttpSettings) -> BaseRouteHandler:
    """The route."""

    @post(
        "/v1/generate",
        status_code=200,
        summary="Generate with any model",
        description=DESCRIPTION,
        tags=["native"],
        media_type=NDJSON,
        operation_class=GenerateOperation,
        responses=documented(400, 404, 406, 408, 413, 415, 429, 500, 503, 504),
        request_max_body_size=None,  # a form may be larger than JSON; each is read up to a limit of its own
    )
    async def generate(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        media_type = choose(request.headers.get("accept", ""), OFFERED)
        ask = read_ask(models, await _fields(request, settings), most_s=settings.timeout_s)
        terms = read_terms(request, ask.timeout_s, most_s=settings.timeout_s)
        requests = Split(ask).each() if ask.is_split else iter((ask.request(ask.parts),))
        first = next(requests)  # a mistake in it is told at once
        await check_media(first.parts, settings)
        telling = Telling(ask.name, ask.model, first, terms)
        calls = CallsOf(chain((first,), requests))
        raw = raw_answer(media_type, telling.outputs)

        async def write(client: Client) -> None:
            if raw is None:
                await _write_events(media_type, client, caller, telling, calls)
            else:
                await _write_raw(raw, client, caller, telling, calls)

        return Answer(write)

    return generate


async def _fields(request: HttpRequest[Any, Any, Any], settings: HttpSettings) -> dict[str, Any]:
    if is_form(request):
        return await read_form(request, limit_bytes=settings.media_bytes, field_bytes=settings.body_bytes)
    body = await read_object(request, settings.body_bytes, also=FORM)
    if settings.remote_media:
        from walkserve.http.remote_media import fetch_inputs  # only here: it takes a while to import

        await fetch_inputs(body, settings.media_bytes)
    return body


# --- events -------------------------------------------------------------------------------------------


async def _write_events(
    media_type: str, client: Client, caller: Caller, telling: Telling, calls: Calls
) -> None:
    answer = EventAnswer(client, media_type)

    async def tell(events: Sequence[e.Event]) -> None:
        started = () if answer.is_started else (telling.started,)
        is_last = isinstance(events[-1], e.Done)
        await answer.send([*started, *events], _headers(telling), more=not is_last)

    try:
        await Run(caller, telling, calls, tell, on_cut=client.abort).to_its_end()
    except Exception as error:
        await answer.fail(error, f"{telling.started.model}: a stream that has begun")


# --- bytes --------------------------------------------------------------------------------------------


async def _write_raw(raw: RawAnswer, client: Client, caller: Caller, telling: Telling, calls: Calls) -> None:
    """Wait for all of it; sizes are exact, and the headers say how it went."""
    given: list[e.Event] = []

    async def keep(events: Sequence[e.Event]) -> None:
        given.extend(events)

    await Run(caller, telling, calls, keep, on_cut=client.abort).to_its_end()
    headers, body = await raw.encode([each for each in given if isinstance(each, e.Piece)])
    done = telling.done()
    told = {
        "x-finish-reason": done.finish_reason,
        "x-usage-input-tokens": str(done.usage.get("input_tokens", 0)),
        "x-usage-output-tokens": str(done.usage.get("output_tokens", 0)),
        "content-length": str(len(body)),
    }
    await client.start(200, _headers(telling) | headers | told)
    await client.send(body, more=False)


def _headers(telling: Telling) -> dict[str, str]:
    return {"x-seed": str(telling.started.seed)}
