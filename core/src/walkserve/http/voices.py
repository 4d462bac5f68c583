"""``GET /v1/audio/voices``: who can speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from litestar import get
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter
from msgspec import Struct

from walkserve.http import examples
from walkserve.http.models import find_model, require_surface
from walkserve.http.problems import documented
from walkserve.http.speech_reading import SURFACE
from walkserve_sdk import Model


class Voice(Struct, frozen=True):
    """One voice of one model; the default speaks where a request names none."""

    id: str
    model: str
    is_default: bool
    object: str = "voice"


class VoiceList(Struct, frozen=True):
    """All voices."""

    data: list[Voice]
    object: str = "list"


def voices_route(models: Mapping[str, Model]) -> BaseRouteHandler:
    """The route."""

    @get(
        "/v1/audio/voices",
        summary="List the voices",
        description="Of the model that is named, else of every model that speaks. A model without voices to"
        " choose from has none.",
        tags=["audio"],
        responses=documented(400, 404, 500) | examples.answered(VoiceList, "Who can speak", examples.VOICES),
    )
    async def list_voices(
        model: Annotated[
            str | None, QueryParameter(description="A model's id; all that speak if absent.")
        ] = None,
    ) -> VoiceList:
        if model is not None:
            name, found = find_model(models, model)
            require_surface(name, found, SURFACE)
            return VoiceList(_voices(name, found))
        speaking = {name: each for name, each in models.items() if SURFACE in type(each).surfaces()}
        return VoiceList([voice for name, each in speaking.items() for voice in _voices(name, each)])

    return list_voices


def _voices(name: str, model: Model) -> list[Voice]:
    return [Voice(voice, name, is_default=number == 0) for number, voice in enumerate(model.voices)]
