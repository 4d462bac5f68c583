"""How the server is: alive, ready, and what runs where."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from litestar import Response, get
from litestar.handlers import BaseRouteHandler
from msgspec import Struct

from walkserve import messages as m
from walkserve.http import examples
from walkserve.http.callers import Caller
from walkserve.http.models import family_of
from walkserve.http.problems import RETRY_AFTER_S, documented

PACKAGES = ("walkserve", "walkserve-sdk", "torch", "litestar")


class Health(Struct, frozen=True):
    """The process lives."""

    status: str = "alive"


class Readiness(Struct, frozen=True):
    """Whether requests are served, and if not, what it waits for."""

    ready: bool
    phase: str
    waiting_for: str | None = None
    loading: list[str] = []


class Pool(Struct, frozen=True):
    """A cached component's pages."""

    pages: int
    reserved: int


class BudgetStep(Struct, frozen=True):
    """With up to ``context`` tokens in the cache, a long prompt gets on by so many a batch."""

    context: int
    tokens: int


class BudgetStatus(Struct, frozen=True):
    """Tokens of prompts in one batch of a method: where nobody listens, and beside rows that somebody does.

    ``beside`` is empty where the budget was given and not measured: it is ``tokens`` everywhere then.
    """

    component: str
    method: str
    tokens: int
    beside: list[BudgetStep]


class WorkerStatus(Struct, frozen=True):
    """One worker process; components with their device and backend."""

    name: str
    state: str
    pid: int
    components: dict[str, str]
    pools: dict[str, Pool]
    token_budgets: list[BudgetStatus]


class ModelStatus(Struct, frozen=True):
    """One model: where it runs, and how many requests it has."""

    id: str
    family: str
    checkpoint: str
    running: int
    waiting: int
    workers: list[WorkerStatus]


class ServerStatus(Struct, frozen=True):
    """Everything about the server at this moment."""

    phase: str
    detail: str
    http_pid: int
    conductor_pid: int
    families: list[str]
    open_requests: int
    models: list[ModelStatus]
    versions: dict[str, str | None]


def installed_versions() -> dict[str, str | None]:
    """Of what runs here, without importing any of it; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def readiness(caller: Caller) -> Readiness:
    """What ``/ready`` says."""
    state = caller.state
    is_ready = state.phase == "ready"
    loading = sorted(
        f"{component} in {worker}" for (worker, component), done in caller.loading.items() if not done
    )
    return Readiness(is_ready, state.phase, None if is_ready else state.detail or state.phase, loading)


def server_routes(caller: Caller) -> Sequence[BaseRouteHandler]:
    """``GET /health``, ``/ready`` and ``/v1/server``."""
    versions = installed_versions()

    @get(
        "/health",
        summary="Whether the process lives",
        tags=["server"],
        responses=examples.answered(Health, "It lives", examples.HEALTH),
        security=[{}],  # no key, also where the others want one
    )
    async def health() -> Health:
        return Health()

    @get(
        "/ready",
        summary="Whether requests are served",
        tags=["server"],
        responses=documented()
        | examples.answered(Readiness, "Ready", examples.READY)
        | examples.answered(Readiness, "Not ready", examples.NOT_READY, status=503),
    )
    async def ready() -> Response[Readiness]:
        now = readiness(caller)
        if now.ready:
            return Response(now)
        return Response(now, status_code=503, headers={"retry-after": str(RETRY_AFTER_S)})

    @get(
        "/v1/server",
        summary="What runs where",
        tags=["server"],
        responses=documented(500) | examples.answered(ServerStatus, "What runs where", examples.SERVER),
    )
    async def server() -> ServerStatus:
        state = await caller.refresh()
        return ServerStatus(
            phase=state.phase,
            detail=state.detail,
            http_pid=os.getpid(),
            conductor_pid=state.pid,
            families=sorted({family_of(model.name) for model in state.models}),
            open_requests=caller.open_calls,
            models=[_model(model) for model in state.models],
            versions=versions,
        )

    return [health, ready, server]


def _model(model: m.ModelInfo) -> ModelStatus:
    return ModelStatus(
        id=model.name,
        family=family_of(model.name),
        checkpoint=model.checkpoint,
        running=model.running,
        waiting=model.waiting,
        workers=[_worker(worker) for worker in model.workers],
    )


def _worker(worker: m.WorkerInfo) -> WorkerStatus:
    pools = {name: Pool(pages, reserved) for name, (pages, reserved) in worker.pools.items()}
    budgets = [
        BudgetStatus(one.component, one.method, one.tokens, [BudgetStep(*step) for step in one.beside])
        for one in worker.budgets
    ]
    return WorkerStatus(worker.name, worker.state, worker.pid, worker.components, pools, budgets)
