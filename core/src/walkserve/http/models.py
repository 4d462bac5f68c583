"""Which models are served: found by name for a request, and listed at ``/v1/models``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from litestar import get
from litestar.handlers import BaseRouteHandler
from litestar.openapi.spec import Example
from litestar.params import PathParameter
from msgspec import Meta, Struct

from walkserve.descriptions import (
    OptionCard,
    OutputCard,
    first_line,
    notes_of,
    option_cards,
    output_cards,
    surface_routes,
)
from walkserve.http import examples
from walkserve.http.bodies import read_fields
from walkserve.http.problems import documented
from walkserve.http.settings import HttpSettings
from walkserve_sdk import Model
from walkserve_sdk.errors import ModelNotFound, UnsupportedSurface, did_you_mean

if TYPE_CHECKING:
    from walkserve.http.callers import Caller  # whose meters ask for a model's family


class TokenLimits(Struct, frozen=True):
    """Of one cached component: tokens that one request may have, and that all may have together."""

    request: int
    pool: int


class ModelLimits(Struct, frozen=True):
    """What bounds a request."""

    body_bytes: Annotated[int, Meta(description="The largest JSON body that is read.")]
    tokens: Annotated[
        dict[str, TokenLimits], Meta(description="Of each cached component; empty until it is loaded.")
    ]


class ModelCard(Struct, frozen=True, kw_only=True):
    """One model, as OpenAI describes one, and what else there is to know."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "walkserve"
    family: str
    summary: str
    checkpoint: Annotated[str, Meta(description="A hub id, a folder's name, or a variant.")]
    variants: Annotated[tuple[str, ...], Meta(description="The checkpoints that its family has by name.")]
    inputs: Annotated[tuple[str, ...], Meta(description="Kinds of what a request may be made of.")]
    outputs: Annotated[dict[str, OutputCard], Meta(description="What a request may ask for, by name.")]
    surfaces: Annotated[dict[str, list[str]], Meta(description="The routes by which it is reached.")]
    voices: Annotated[tuple[str, ...], Meta(description="Its checkpoint's; the first is the default.")]
    options: Annotated[
        dict[str, OptionCard],
        Meta(description="What a request may set besides its route's own fields, each as JSON Schema."),
    ]
    limits: ModelLimits


class ModelList(Struct, frozen=True):
    """All models."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


def family_of(name: str) -> str:
    """``orpheus`` of ``orpheus:toy``."""
    return name.partition(":")[0]


def find_model(models: Mapping[str, Model], name: str) -> tuple[str, Model]:
    """The model of that name, or the only one of the family of that name.

    Raises:
        ModelNotFound: There is none, or the family has several.
    """
    if name in models:
        return name, models[name]
    of_family = [each for each in models if family_of(each) == name]
    if len(of_family) == 1:
        return of_family[0], models[of_family[0]]
    cure = f"; say which: {', '.join(sorted(of_family))}" if of_family else did_you_mean(name, models)
    raise ModelNotFound(f"there is no model {name!r} here{cure}", param="model")


class _ModelField(Struct, frozen=True):
    model: str


def named_model(models: Mapping[str, Model], given: dict[str, Any]) -> tuple[str, Model]:
    """The model that a body's field ``model`` names. Raises BadRequest, ModelNotFound among others."""
    return find_model(models, read_fields(_ModelField, given)[0].model)


def require_surface(name: str, model: Model, surface: str) -> None:
    """Raise UnsupportedSurface, saying what the model can do, unless it can do this."""
    surfaces = type(model).surfaces()
    if surface not in surfaces:
        makes = ", ".join(f"{output.name} ({output.kind.kind})" for output in model.spec.outputs.values())
        raise UnsupportedSurface(
            f"the model {name!r} has no {surface}; it has {', '.join(surfaces) or 'none of these routes'},"
            f" takes {', '.join(model.inputs)} and makes {makes or 'nothing'}",
            param="model",
        )


def having(models: Mapping[str, Model], surface: str) -> dict[str, Model]:
    """Those that have a surface."""
    return {name: model for name, model in models.items() if surface in type(model).surfaces()}


def model_routes(
    caller: Caller,
    models: Mapping[str, Model],
    settings: HttpSettings,
    added: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Sequence[BaseRouteHandler]:
    """``GET /v1/models`` and ``GET /v1/models/{id}``.

    Args:
        added: Surface -> routes, of those that extensions add.
    """

    def card(name: str) -> ModelCard:
        surfaces = surface_routes(type(models[name]), added)
        return _card(name, models[name], settings, surfaces, _tokens(caller, name))

    @get(
        "/v1/models",
        summary="List the models",
        tags=["models"],
        responses=documented(500) | examples.answered(ModelList, "The models served here", examples.MODELS),
    )
    async def list_models() -> ModelList:
        return ModelList([card(name) for name in models])

    # a path, because names may hold slashes
    @get(
        "/v1/models/{model_id:path}",
        summary="Describe one model",
        description="By its id, or by its family's name where one model of that family is served.",
        tags=["models"],
        responses=documented(400, 404, 500) | examples.answered(ModelCard, "One model", examples.MODEL),
    )
    async def describe_model(
        model_id: Annotated[
            str, PathParameter(description="A model's id.", examples=[Example(value="a-model:small")])
        ],
    ) -> ModelCard:
        name, _ = find_model(models, model_id.removeprefix("/"))
        return card(name)

    return [list_models, describe_model]


def _card(
    name: str,
    model: Model,
    settings: HttpSettings,
    surfaces: dict[str, list[str]],
    tokens: dict[str, TokenLimits],
) -> ModelCard:
    family = type(model)
    return ModelCard(
        id=name,
        created=settings.created,
        family=family_of(name),
        summary=first_line(family),
        checkpoint=model.checkpoint.label,
        variants=tuple(family.variants),
        inputs=model.inputs,
        outputs=output_cards(family),
        surfaces=surfaces,
        voices=tuple(model.voices),
        options=option_cards(notes_of(model)),
        limits=ModelLimits(settings.body_bytes, tokens),
    )


def _tokens(caller: Caller, name: str) -> dict[str, TokenLimits]:
    """As the workers have told it: what their caches really hold."""
    return {
        component: TokenLimits(*both)
        for model in caller.state.models
        if model.name == name
        for worker in model.workers
        for component, both in worker.tokens.items()
    }
