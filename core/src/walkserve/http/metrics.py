"""``GET /metrics``: how the server is and what it has done, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from litestar import Request, Response, get
from litestar.handlers import BaseRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from walkserve import messages as m
from walkserve.http import examples
from walkserve.http.callers import CONDUCTOR, Caller
from walkserve.http.models import family_of
from walkserve.http.problems import documented

SCRAPE_S = 1.0
"""How long workers and the conductor have to answer; of who does not, the last figures known are told."""
TIME_UNIT_S = 1e-4
"""Of ``Tallied.time_up_to``."""
_MODEL = ("model", "family")
_METHOD = (*_MODEL, "component", "method")


class Runtime(Collector):
    """What the conductor and the workers have last said."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._stale: frozenset[str] = frozenset()

    async def refresh(self) -> None:
        """Ask everybody. A worker in a long step answers after it, and is not waited for."""
        known = self._caller.state
        state, self._stale = await asyncio.gather(
            self._caller.refresh(SCRAPE_S), self._caller.count_workers(SCRAPE_S)
        )
        if state is known:
            self._stale |= {CONDUCTOR}

    def describe(self) -> list[Metric]:
        """What ``collect`` gives, without values: a registry asks for names before anything is known."""
        return list(_empty().values())

    def collect(self) -> Iterator[Metric]:
        """Everything, as it was at the last ``refresh``."""
        found = _empty()
        caller = self._caller
        found["walkserve_ready"].add_metric([], float(caller.state.phase == "ready"))
        found["walkserve_requests_open"].add_metric([], caller.open_calls)
        found["walkserve_conductor_scrape_stale"].add_metric([], float(CONDUCTOR in self._stale))
        for model in caller.state.models:
            self._add_model(found, model)
        yield from found.values()

    def _add_model(self, found: dict[str, Any], model: m.ModelInfo) -> None:
        labels = [model.name, family_of(model.name)]
        found["walkserve_requests_running"].add_metric(labels, model.running)
        found["walkserve_requests_waiting"].add_metric(labels, model.waiting)
        for worker in model.workers:
            of_worker = [*labels, worker.name]
            is_stale = worker.name in self._stale or worker.state != "ready"
            found["walkserve_worker_ready"].add_metric(of_worker, float(worker.state == "ready"))
            found["walkserve_worker_scrape_stale"].add_metric(of_worker, float(is_stale))
            for component, (pages, reserved) in worker.pools.items():
                found["walkserve_cache_pages"].add_metric([*labels, component], pages)
                found["walkserve_cache_pages_reserved"].add_metric([*labels, component], reserved)
            for budget in worker.budgets:
                _add_budget(found, labels, budget)
            report = self._caller.reports.get(worker.name)
            for tallied in report.methods if report is not None else ():
                _add_method(found, labels, tallied)
            for moved in report.caches if report is not None else ():
                _add_moves(found, [*labels, moved.component], moved)
            for held in report.held if report is not None else ():
                found["walkserve_cache_pages_held"].add_metric([*labels, held.component], held.pages)
                found["walkserve_cache_pages_held_most"].add_metric([*labels, held.component], held.most)


def _add_budget(found: dict[str, Any], model: list[str], budget: m.TokenBudget) -> None:
    """By the longest context that each number holds for; the last holds for all."""
    steps = budget.beside or ((0, budget.tokens),)
    for n, (context, tokens) in enumerate(steps):
        up_to = "+Inf" if n == len(steps) - 1 else str(context)
        labels = [*model, budget.component, budget.method, up_to]
        found["walkserve_token_budget"].add_metric(labels, tokens)


def _add_method(found: dict[str, Any], model: list[str], tallied: m.Tallied) -> None:
    labels = [*model, tallied.component, tallied.method]
    rows = _buckets(tallied.rows_up_to, 1)
    found["walkserve_batch_rows"].add_metric(labels, rows, sum_value=tallied.rows)
    times = _buckets(tallied.time_up_to, TIME_UNIT_S)
    found["walkserve_batch_duration_seconds"].add_metric(labels, times, sum_value=tallied.busy_ns / 1e9)
    found["walkserve_batch_tokens"].add_metric(labels, tallied.tokens)
    found["walkserve_batches_broken"].add_metric(labels, tallied.broken)
    found["walkserve_rows_spared"].add_metric(labels, tallied.spared)


def _add_moves(found: dict[str, Any], component: list[str], moved: m.Moved) -> None:
    for name, out, back in (
        ("walkserve_cache_moves", moved.caches_out, moved.caches_back),
        ("walkserve_cache_pages_moved", moved.pages_out, moved.pages_back),
    ):
        found[name].add_metric([*component, "out"], out)
        found[name].add_metric([*component, "back"], back)


def _buckets(counts: tuple[int, ...], unit: float) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus has them, with the bounds 1, 2, 4, … units and infinity."""
    total, found = 0, []
    for n, count in enumerate(counts):
        total += count
        bound = "+Inf" if n == len(counts) - 1 else f"{unit * 2**n:g}"
        found.append((bound, float(total)))
    return found


def _empty() -> dict[str, Any]:
    """Every metric that comes from the conductor and the workers, by name."""
    gauge, counter, histogram = GaugeMetricFamily, CounterMetricFamily, HistogramMetricFamily
    worker = (*_MODEL, "worker")
    component = (*_MODEL, "component")
    families: Mapping[str, tuple[type[Any], str, tuple[str, ...]]] = {
        "walkserve_ready": (gauge, "1 when requests are served.", ()),
        "walkserve_requests_open": (gauge, "Requests that the HTTP process has under way.", ()),
        "walkserve_requests_running": (gauge, "Requests that have their caches and run.", _MODEL),
        "walkserve_requests_waiting": (gauge, "Requests that wait for room in the caches.", _MODEL),
        "walkserve_cache_pages": (gauge, "Pages of a component's cache.", component),
        "walkserve_cache_pages_reserved": (gauge, "Pages that are reserved for requests.", component),
        "walkserve_cache_pages_held": (
            gauge,
            "Pages that branches hold, one that several share once.",
            component,
        ),
        "walkserve_cache_pages_held_most": (
            gauge,
            "The most pages that were held at once since the worker started.",
            component,
        ),
        "walkserve_token_budget": (
            gauge,
            "Tokens of prompts in one batch beside rows that somebody listens to, by tokens in the cache.",
            (*_METHOD, "context"),
        ),
        "walkserve_cache_moves": (
            counter,
            "Times that a request's cache has moved to host memory, or back.",
            (*component, "direction"),
        ),
        "walkserve_cache_pages_moved": (
            counter,
            "Pages that have moved to host memory, or back.",
            (*component, "direction"),
        ),
        "walkserve_worker_ready": (gauge, "1 when the worker has loaded and lives.", worker),
        "walkserve_worker_scrape_stale": (
            gauge,
            "1 when the worker did not answer in time: its figures are the last known.",
            worker,
        ),
        "walkserve_conductor_scrape_stale": (gauge, "1 when the conductor did not answer in time.", ()),
        "walkserve_batch_rows": (histogram, "Rows of each batch; their sum is the rows run.", _METHOD),
        "walkserve_batch_duration_seconds": (
            histogram,
            "Time of each batch; the count is the number of steps, the sum the time spent in them.",
            _METHOD,
        ),
        "walkserve_batch_tokens": (
            counter,
            "Tokens in batches; 1 per row of a component without a cache.",
            _METHOD,
        ),
        "walkserve_batches_broken": (counter, "Batches that raised, and were run again row by row.", _METHOD),
        "walkserve_rows_spared": (counter, "Rows that were not run, as an equal one was.", _METHOD),
    }
    return {name: kind(name, about, labels=labels) for name, (kind, about, labels) in families.items()}


def metrics_route(caller: Caller) -> BaseRouteHandler:
    """``GET /metrics``."""
    runtime = Runtime(caller)
    registry = CollectorRegistry()
    registry.register(caller.meters)
    registry.register(runtime)
    ProcessCollector(registry=registry)

    @get(
        "/metrics",
        summary="Figures for Prometheus",
        description="In Prometheus' text format, or in OpenMetrics' for who accepts that.",
        tags=["server"],
        media_type="text/plain",
        responses=documented()
        | {
            200: ResponseSpec(
                str,
                description="Figures",
                media_type="text/plain",
                generate_examples=False,
                examples=[Example(summary="One of them", value=examples.METRICS)],
            )
        },
    )
    async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        await runtime.refresh()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type}, media_type=content_type)

    return metrics
