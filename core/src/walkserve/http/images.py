"""``POST /v1/images/generations`` and ``POST /v1/images/edits``: pictures out of words and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.handlers import BaseRouteHandler

from walkserve.http.answers import Answer, Client
from walkserve.http.bodies import read_object
from walkserve.http.callers import Caller
from walkserve.http.calls import Call
from walkserve.http.extended_reading import BodyReader
from walkserve.http.forms import FORM, is_form
from walkserve.http.image_answers import write_pictures
from walkserve.http.image_docs import EDIT, GENERATE, image_operation
from walkserve.http.image_reading import EDITS, FIELDS, GENERATIONS, EditFields, Pictures, read_pictures
from walkserve.http.media_checks import check_media
from walkserve.http.models import having
from walkserve.http.problems import UnsupportedMediaType, documented
from walkserve.http.settings import HttpSettings
from walkserve.http.siblings import Siblings
from walkserve.http.terms import Terms, read_terms
from walkserve_sdk import Model, Request

_ERRORS = documented(400, 404, 408, 413, 415, 429, 500, 503, 504)


def image_routes(
    caller: Caller, models: Mapping[str, Model], settings: HttpSettings
) -> Sequence[BaseRouteHandler]:
    """Both routes."""
    painting, editing = having(models, GENERATIONS), having(models, EDITS)
    edit_bodies = BodyReader(EditFields, editing, settings)

    @post(
        "/v1/images/generations",
        status_code=200,
        summary="Paint pictures",
        description=GENERATE,
        tags=["images"],
        operation_class=image_operation(GENERATIONS, painting),
        include_in_schema=bool(painting),
        responses=_ERRORS,
    )
    async def paint(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        given = await read_object(request, settings.body_bytes)
        terms = read_terms(request, most_s=settings.timeout_s)
        return answer(read_pictures(models, GENERATIONS, given), GENERATIONS, terms)

    @post(
        "/v1/images/edits",
        status_code=200,
        summary="Edit pictures",
        description=EDIT,
        tags=["images"],
        operation_class=image_operation(EDITS, editing),
        include_in_schema=bool(editing),
        responses=_ERRORS,
        request_max_body_size=None,  # it is read up to a limit of its own
    )
    async def edit(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        if not is_form(request):
            raise UnsupportedMediaType(f"this route reads {FORM}: send the images as files of a form")
        given = await edit_bodies.read(request)
        terms = read_terms(request, most_s=settings.timeout_s)
        pictures = read_pictures(models, EDITS, given)
        await check_media(pictures.requests[0].parts, settings, place=lambda number, part: part.kind)
        return answer(pictures, EDITS, terms)

    def answer(pictures: Pictures, surface: str, terms: Terms) -> Response[bytes]:
        async def write(client: Client) -> None:
            def submit(request: Request) -> Call:
                return caller.submit(pictures.model, request, on_cut=client.abort, terms=terms)

            with Siblings(pictures.requests, submit, FIELDS) as siblings:
                await write_pictures(pictures, surface, siblings, client)

        return Answer(write)

    return [paint, edit]
