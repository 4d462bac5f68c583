"""Which models are served: found by name for a request, and listed at ``/v1/models``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litestar import get
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from msgspec import Struct

from walkserve.http.problems import documented
from walkserve.http.settings import HttpSettings
from walkserve_sdk import Model
from walkserve_sdk.errors import ModelNotFound, UnsupportedSurface, did_you_mean


class ModelCard(Struct, frozen=True):
    """One model, as OpenAI describes one, and what else there is to know."""

    id: str
    created: int
    family: str
    inputs: tuple[str, ...]
    outputs: dict[str, str]  # name -> kind
    surfaces: tuple[str, ...]
    object: str = "model"
    owned_by: str = "walkserve"


class ModelList(Struct, frozen=True):
    """All models."""

    data: list[ModelCard]
    object: str = "list"


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


def model_routes(models: Mapping[str, Model], settings: HttpSettings) -> Sequence[BaseRouteHandler]:
    """``GET /v1/models`` and ``GET /v1/models/{id}``."""

    def card(name: str) -> ModelCard:
        model = models[name]
        return ModelCard(
            id=name,
            created=settings.created,
            family=family_of(name),
            inputs=model.inputs,
            outputs={output.name: output.kind.kind for output in model.spec.outputs.values()},
            surfaces=type(model).surfaces(),
        )

    @get("/v1/models", summary="List the models", tags=["models"], responses=documented(500))
    async def list_models() -> ModelList:
        return ModelList([card(name) for name in models])

    # a path, because names may hold slashes
    @get(
        "/v1/models/{model_id:path}",
        summary="Describe one model",
        tags=["models"],
        responses=documented(400, 404, 500),
    )
    async def describe_model(model_id: FromPath[str]) -> ModelCard:
        name, _ = find_model(models, model_id.removeprefix("/"))
        return card(name)

    return [list_models, describe_model]
