"""The application: every route, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from litestar import Litestar
from litestar.datastructures import MutableScopeHeaders
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import Message, Scope

from walkserve.extensions import Extensions
from walkserve.http.access import logged
from walkserve.http.callers import Caller
from walkserve.http.chat import chat_route
from walkserve.http.client_ids import labelled
from walkserve.http.cors import shared
from walkserve.http.extended import extended_routes
from walkserve.http.generate import generate_route
from walkserve.http.guard import guarded
from walkserve.http.ids import request_id
from walkserve.http.images import image_routes
from walkserve.http.metrics import metrics_route
from walkserve.http.models import model_routes
from walkserve.http.patience import patient
from walkserve.http.problems import EXCEPTION_HANDLERS
from walkserve.http.requests import request_routes
from walkserve.http.schema_page import SchemaPage
from walkserve.http.server import server_routes
from walkserve.http.settings import HttpSettings
from walkserve.http.speech import speech_route
from walkserve.http.stream import stream_route
from walkserve.http.stream_protocol import keep_refusal
from walkserve.http.voices import voices_route
from walkserve_sdk import Model

_API_KEY = "api_key"


def create_app(
    caller: Caller,
    models: Mapping[str, Model],
    settings: HttpSettings | None = None,
    extensions: Extensions | None = None,
) -> Litestar:
    """Make the application that serves ``models`` through ``caller``, with the routes of ``extensions``."""
    extensions = extensions if extensions is not None else Extensions()
    settings = settings if settings is not None else HttpSettings()
    caller.meters.know(models)
    app = Litestar(
        route_handlers=[
            *server_routes(caller),
            *model_routes(caller, models, settings, extensions.surfaces),
            *request_routes(caller.requests, caller.profiles),
            metrics_route(caller),
            speech_route(caller, models, settings),
            voices_route(models),
            *image_routes(caller, models, settings),
            chat_route(caller, models, settings),
            generate_route(caller, models, settings),
            stream_route(caller, models, settings),
            *extended_routes(extensions.routes, caller, models, settings),
        ],
        exception_handlers=caller.meters.counting(EXCEPTION_HANDLERS),
        before_send=[_name_the_request],
        after_exception=[keep_refusal],
        openapi_config=OpenAPIConfig(
            title="walkserve",
            version=_version(),
            description="A server for composite multimodal models.",
            path="/schema",
            render_plugins=[SchemaPage()],
            components=Components(security_schemes={_API_KEY: SecurityScheme(type="http", scheme="bearer")}),
            security=None if settings.keys is None else [{_API_KEY: []}],
        ),
        request_max_body_size=settings.body_bytes,
        logging_config=None,
    )
    # around the router, not among its middleware: that does not see routes which are not there
    inner = patient(app.asgi_handler, settings.receive_timeout_s)
    told = labelled(guarded(inner, settings.keys))
    app.asgi_handler = logged(shared(told, settings.cors_origins), caller.requests)
    return app


async def _name_the_request(message: Message, scope: Scope) -> None:
    """Every response has an id, errors too, so that a client and the log can speak of the same one."""
    if message["type"] in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
        MutableScopeHeaders(message).setdefault("x-request-id", request_id(scope))


def _version() -> str:
    try:
        return version("walkserve")
    except PackageNotFoundError:  # run from a checkout
        return "0"
