"""What is counted of requests while they run and when they end, and of the errors that clients are given."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from litestar import Request, Response
from litestar.types import ExceptionHandler, ExceptionHandlersMap
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.registry import Collector

from walkserve.http.models import family_of
from walkserve.http.problems import ProblemBody
from walkserve.messages import Fault, RequestEnded
from walkserve_sdk import Audio, Model

if TYPE_CHECKING:
    from walkserve.http.calls import Items
    from walkserve.http.requests import Record

OUTCOMES = ("done", "failed", "cancelled")
DURATIONS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
FIRST_OUTPUTS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
SPEEDS = (0.25, 0.5, 0.8, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100)
TOO_SLOW = "too_slow"
_MODEL = ("model", "family")


class Meters(Collector):
    """Counters and histograms of the HTTP process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(name, about, labels, registry=registry)

        def histogram(
            name: str, about: str, labels: tuple[str, ...], buckets: tuple[float, ...]
        ) -> Histogram:
            return Histogram(name, about, labels, buckets=buckets, registry=registry)

        self.requests = counter(
            "walkserve_requests",
            "Requests that have ended, by how: done, failed or cancelled.",
            *_MODEL,
            "outcome",
        )
        self.duration = histogram(
            "walkserve_request_duration_seconds",
            "From when a request was accepted to its end, by outcome.",
            (*_MODEL, "outcome"),
            DURATIONS_S,
        )
        self.first_output = histogram(
            "walkserve_time_to_first_output_seconds",
            "From when a request was accepted to its first output.",
            _MODEL,
            FIRST_OUTPUTS_S,
        )
        self.errors = counter(
            "walkserve_request_errors",
            "Accepted requests that failed, by the error's code and status.",
            *(*_MODEL, "code", "status"),
        )
        self.refusals = counter(
            "walkserve_http_errors",
            "Responses that were errors, by the error's code and status.",
            "code",
            "status",
        )
        self.input_tokens = counter("walkserve_input_tokens", "Tokens of requests that ended well.", *_MODEL)
        self.output_tokens = counter(
            "walkserve_output_tokens", "Tokens that requests which ended well have drawn.", *_MODEL
        )
        self.sound = counter("walkserve_audio_seconds", "Seconds of sound made.", *_MODEL, "output")
        self.speed = histogram(
            "walkserve_audio_speed_ratio",
            "Seconds of sound per second of wall time, of requests that ended well.",
            (*_MODEL, "output"),
            SPEEDS,
        )
        self.underruns = counter(
            "walkserve_stream_underruns",
            "Times that a listener to streamed sound had played all that had come while more was to come.",
            *(*_MODEL, "output"),
        )
        self.silence = counter(
            "walkserve_stream_silence_seconds", "Seconds that such a listener had to wait.", *_MODEL, "output"
        )
        self.cut = counter(
            "walkserve_slow_clients_cut", "Requests given up because their client read too slowly.", *_MODEL
        )
        self.losses = counter("walkserve_worker_losses", "Times that a worker was lost.", *_MODEL, "worker")
        self._models: dict[str, _OfModel] = {}

    def collect(self) -> Iterator[Metric]:
        """All of them, without the time at which each series began: restarts show in the counters."""
        for metric in self.registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric

    def know(self, models: Mapping[str, Model]) -> None:
        """These are served: their series exist from now on, and their outputs are known."""
        for name, model in models.items():
            outputs = model.spec.outputs.items()
            rates = {output: port.kind.rate for output, port in outputs if isinstance(port.kind, Audio)}
            self._models[name] = _OfModel(self, name, rates)

    def start(self, model: str, record: Record) -> Meter:
        """For a call that starts."""
        of_model = self._models.get(model)
        if of_model is None:
            of_model = self._models[model] = _OfModel(self, model, {})
        return Meter(of_model, record)

    def lost(self, model: str, worker: str) -> None:
        """A worker is gone."""
        self.losses.labels(model, family_of(model), worker).inc()

    def counting(self, handlers: ExceptionHandlersMap) -> ExceptionHandlersMap:
        """The same handlers; what they answer is counted."""
        return {kind: self._counted(handler) for kind, handler in handlers.items()}

    def _counted(self, handler: ExceptionHandler[Any]) -> ExceptionHandler[Any]:
        def answer(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
            response = handler(request, error)
            if isinstance(response.content, ProblemBody):
                problem = response.content.error
                self.refusals.labels(problem.code or problem.type, response.status_code).inc()
            return response

        return answer


class _OfModel:
    """Everything of one model, with its labels filled in."""

    def __init__(self, meters: Meters, name: str, rates: Mapping[str, int]) -> None:
        self.rates = rates  # of outputs that are sound
        self._labels = (name, family_of(name))
        self._meters = meters
        self.requests = {one: meters.requests.labels(*self._labels, one) for one in OUTCOMES}
        self.duration = {one: meters.duration.labels(*self._labels, one) for one in OUTCOMES}
        self.first_output = meters.first_output.labels(*self._labels)
        self.input_tokens = meters.input_tokens.labels(*self._labels)
        self.output_tokens = meters.output_tokens.labels(*self._labels)
        self.cut = meters.cut.labels(*self._labels)
        self.sound = {output: meters.sound.labels(*self._labels, output) for output in rates}
        self.speed = {output: meters.speed.labels(*self._labels, output) for output in rates}
        self.underruns = {output: meters.underruns.labels(*self._labels, output) for output in rates}
        self.silence = {output: meters.silence.labels(*self._labels, output) for output in rates}

    def failed(self, fault: Fault) -> None:
        self._meters.errors.labels(*self._labels, fault.code or fault.type, fault.status).inc()
        if fault.code == TOO_SLOW:
            self.cut.inc()


class Meter:
    """One call: told what happens to it, adds it to what is counted."""

    __slots__ = ("_began", "_has_given", "_model", "_record", "_sound_s")

    def __init__(self, model: _OfModel, record: Record) -> None:
        self._model = model
        self._record = record
        self._began = time.monotonic()
        self._has_given = False
        self._sound_s: dict[str, float] = {}

    def gave(self, items: Items) -> None:
        """Items of an output have come."""
        if not self._has_given:
            self._has_given = True
            self._model.first_output.observe(time.monotonic() - self._began)
        rate = self._model.rates.get(items.output)
        if rate is not None:
            self._heard(items.output, _frames(items) / rate)

    def _heard(self, output: str, sound_s: float) -> None:
        self._sound_s[output] = self._sound_s.get(output, 0.0) + sound_s
        self._model.sound[output].inc(sound_s)
        silent_s = self._record.heard(output, sound_s)
        if silent_s:
            self._model.underruns[output].inc()
            self._model.silence[output].inc(silent_s)

    def ended(self, ended: RequestEnded) -> None:
        """It ended well."""
        took_s = self._over("done")
        self._model.input_tokens.inc(ended.usage.get("input_tokens", 0))
        self._model.output_tokens.inc(ended.usage.get("output_tokens", 0))
        for output, sound_s in self._sound_s.items():
            if took_s > 0:
                self._model.speed[output].observe(sound_s / took_s)

    def failed(self, fault: Fault) -> None:
        """It failed, after it had been accepted."""
        self._over("failed")
        self._model.failed(fault)

    def cancelled(self) -> None:
        """Its client left."""
        self._over("cancelled")

    def _over(self, outcome: str) -> float:
        took_s = time.monotonic() - self._began
        self._model.requests[outcome].inc()
        self._model.duration[outcome].observe(took_s)
        return took_s


def _frames(items: Items) -> int:
    return sum(item.shape[0] for item in items.items if isinstance(item, np.ndarray) and item.ndim)
