"""Routes that plugins add: each as a route of this server, with all that every route has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.handlers import BaseRouteHandler

from walkserve.extensions import AnyRoute
from walkserve.http.accept import choose
from walkserve.http.answers import Answer, Client
from walkserve.http.callers import Caller
from walkserve.http.event_answers import NDJSON, SSE, EventAnswer
from walkserve.http.extended_docs import JSON, extended_operation
from walkserve.http.extended_reading import Asked, BodyReader, read_asked
from walkserve.http.extended_sockets import extended_socket
from walkserve.http.media_checks import by_name, check_media
from walkserve.http.models import having
from walkserve.http.problems import documented
from walkserve.http.running import Running, written
from walkserve.http.settings import HttpSettings
from walkserve.http.terms import Terms, read_terms
from walkserve_sdk import Model, Output, Part, Request, Stream
from walkserve_sdk.errors import PluginError
from walkserve_sdk.serving import Reply, Route, SocketRoute


def extended_routes(
    routes: Sequence[AnyRoute], caller: Caller, models: Mapping[str, Model], settings: HttpSettings
) -> list[BaseRouteHandler]:
    """All of them."""
    return [
        extended_socket(route, caller, models, settings)
        if isinstance(route, SocketRoute)
        else _posted(route, caller, models, settings)
        for route in routes
    ]


def _posted(
    route: Route[Any], caller: Caller, models: Mapping[str, Model], settings: HttpSettings
) -> BaseRouteHandler:
    served = having(models, route.surface)
    reader = BodyReader(route.fields, served, settings)
    offered = (JSON, *route.media, *((SSE, NDJSON) if route.events is not None else ()))

    @post(
        route.path,
        status_code=200,
        summary=route.summary,
        description=route.description,
        tags=[route.surface],
        media_type=JSON,
        operation_class=extended_operation(route, served),
        include_in_schema=bool(served),
        responses=documented(400, 404, 406, 408, 413, 415, 429, 500, 503, 504),
        request_max_body_size=None,  # a form may be larger than JSON; each is read up to a limit of its own
    )
    async def answer(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        media_type = choose(request.headers.get("accept", ""), offered)
        asked = read_asked(models, route.surface, route.fields, await reader.read(request))
        terms = read_terms(request, most_s=settings.timeout_s)

        async def write(client: Client) -> None:
            with Exchange(asked, media_type, caller, settings, terms, on_cut=client.abort) as exchange:
                await _write(route, exchange, client)

        return Answer(write)

    return answer


class Exchange:
    """As ``walkserve_sdk.serving.Exchange`` has it. Leaving a ``with`` block of it cancels what runs."""

    def __init__(
        self,
        asked: Asked,
        media_type: str,
        caller: Caller,
        settings: HttpSettings,
        terms: Terms,
        *,
        on_cut: Callable[[], None],
    ) -> None:
        self.name, self.model = asked.name, asked.model
        self.fields: Any = asked.fields
        self.options = asked.options
        self.media_type = media_type
        self._caller = caller
        self._settings = settings
        self._terms = terms
        self._on_cut = on_cut
        self._started: list[Running] = []

    @property
    def wants_events(self) -> bool:
        return self.media_type in (SSE, NDJSON)

    def request(
        self,
        *,
        parts: Sequence[Part] = (),
        outputs: Sequence[str | Output] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Request:
        given = {**self.options, **(options or {})}
        return self.model.request(parts=parts, outputs=outputs, options=given)

    async def start(self, request: Request, *, writes: Iterable[str | Stream] = ()) -> Running:
        streams = written(self.model, writes)
        await check_media(request.parts, self._settings, by_name)
        call = self._caller.submit(self.name, request, self._on_cut, terms=self._terms, writes=streams)
        running = Running(self.model, request, call)
        self._started.append(running)
        return running

    def headers(self) -> dict[str, str]:
        """What a response says of the calls that it took, as far as they have come."""
        if not self._started:
            return {}
        seed = {"x-seed": str(self._started[0].request.seed)}
        ended = [each.ended for each in self._started if each.ended is not None]
        if len(ended) < len(self._started):
            return seed
        reasons = [each.finish_reason for each in ended]
        return seed | {
            "x-finish-reason": next((reason for reason in reasons if reason != "stop"), "stop"),
            "x-usage-input-tokens": str(sum(each.usage.get("input_tokens", 0) for each in ended)),
            "x-usage-output-tokens": str(sum(each.usage.get("output_tokens", 0) for each in ended)),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self._started:
            running.cancel()


async def _write(route: Route[Any], exchange: Exchange, client: Client) -> None:
    answer = await route.handle(exchange)
    if exchange.wants_events is not isinstance(answer, AsyncIterator):
        said = "events" if exchange.wants_events else "no events"
        raise PluginError(f"{route}: the client wants {said}, and the handler gave {type(answer).__name__}")
    if isinstance(answer, AsyncIterator):
        await _write_events(route, exchange, answer, client)
        return
    reply = answer if isinstance(answer, Reply) else Reply(msgspec.json.encode(answer), JSON)
    if reply.media_type != exchange.media_type:
        raise PluginError(
            f"{route}: the client wants {exchange.media_type}, and the handler gave {reply.media_type}"
        )
    told = {"content-type": reply.media_type, "content-length": str(len(reply.data))}
    await client.start(200, exchange.headers() | dict(reply.headers) | told)
    await client.send(reply.data, more=False)


async def _write_events(
    route: Route[Any], exchange: Exchange, events: AsyncIterator[object], client: Client
) -> None:
    answer = EventAnswer(client, exchange.media_type)
    try:
        async for event in events:
            await answer.send([event], exchange.headers(), more=True)
    except Exception as error:
        await answer.fail(error, f"{route}: a stream that has begun")
    else:
        await answer.send([], exchange.headers(), more=False)
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
