"""What became of each request: kept for a while after its end, and told at ``GET /v1/requests/{id}``."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

from litestar import get
from litestar.handlers import BaseRouteHandler
from litestar.openapi.spec import Example
from litestar.params import PathParameter
from msgspec import Struct

from walkserve.http import examples
from walkserve.http.playback import Playback
from walkserve.http.problems import documented
from walkserve.http.profiles import Profiles
from walkserve.messages import Fault, RequestEnded
from walkserve.profiles.report import Notes, Profile, report
from walkserve_sdk.errors import BadRequest
from walkserve_sdk.events import Problem

KEEP = 1024
"""Requests that are remembered; of more, the oldest that has ended is forgotten."""


_RequestId = Annotated[
    str,
    PathParameter(
        description="The ``x-request-id`` of its response.", examples=[Example(value=examples.REQUEST["id"])]
    ),
]


class NoSuchRequest(BadRequest):
    """No request of that id is remembered."""

    status = 404
    code = "request_not_found"


class RequestStatus(Struct, frozen=True, kw_only=True):
    """One request: how it stands, or how it ended. Times are in seconds from when it was accepted.

    ``client_request_id`` is what its client calls it: the header of that name, or its ``id`` on a WebSocket.
    ``audio_s`` has the seconds of sound of each output that is sound; ``underruns`` counts how often a
    listener had to wait for more of it, where it is streamed. ``profile`` is there with ``--profile``.
    """

    id: str
    object: str = "request"
    client_request_id: str | None = None
    model: str
    created: float
    state: str
    seed: int
    finish_reason: str | None
    usage: dict[str, int]
    counts: dict[str, int]
    first_output_s: float | None
    took_s: float | None
    audio_s: dict[str, float]
    underruns: int
    error: Problem | None
    profile: Profile | None = None


class Record:
    """One request as the HTTP process saw it. A response that several calls make has one record."""

    def __init__(self, id: str, model: str, seed: int, client_id: str | None = None) -> None:
        self.id = id
        self.client_id = client_id
        self.model = model
        self.seed = seed
        self.created = time.time()
        self.first_output_s: float | None = None
        self.took_s: float | None = None
        self.usage: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.finish_reason: str | None = None
        self.fault: Fault | None = None
        self.was_cancelled = False
        self.is_streamed = False
        """Set by who sends its sound while it is made."""
        self.audio_s: dict[str, float] = {}
        self.began_ns = time.monotonic_ns()
        self._played: dict[str, Playback] = {}
        self._running = 0

    @property
    def state(self) -> str:
        """ "running", "done", "failed" or "cancelled"."""
        if self.fault is not None:
            return "failed"
        if self._running:
            return "running"
        return "cancelled" if self.was_cancelled else "done"

    @property
    def is_running(self) -> bool:
        return self._running > 0

    def started(self) -> None:
        """A call of this request is on its way."""
        self._running += 1
        self.took_s = None

    def more_follow(self) -> None:
        """Further calls will be made for it: it runs, also while none of them is open."""
        self._running += 1

    def all_started(self) -> None:
        """The last of those that follow is on its way."""
        self._running -= 1

    def gave(self) -> None:
        """Something of an output has come."""
        if self.first_output_s is None:
            self.first_output_s = self.age_s

    def heard(self, output: str, sound_s: float) -> float:
        """So much sound has come; how many seconds a listener to a stream of it had to wait for it."""
        self.audio_s[output] = self.audio_s.get(output, 0.0) + sound_s
        if not self.is_streamed:
            return 0.0
        return self._played.setdefault(output, Playback()).came(sound_s, time.monotonic())

    def ended(self, ended: RequestEnded) -> None:
        """A call ended well. Of several calls, the first reason other than "stop" is the request's."""
        if self.finish_reason in (None, "stop"):
            self.finish_reason = ended.finish_reason
        for total, more in ((self.usage, ended.usage), (self.counts, ended.counts)):
            for name, count in more.items():
                total[name] = total.get(name, 0) + count
        self._over()

    def failed(self, fault: Fault) -> None:
        """A call failed, and with it the request."""
        self.fault = fault
        self._over()

    def cancelled(self) -> None:
        """Its client left."""
        self.was_cancelled = True
        self._over()

    def _over(self) -> None:
        self._running -= 1
        self.took_s = self.age_s

    @property
    def age_s(self) -> float:
        """Seconds since it was accepted."""
        return (time.monotonic_ns() - self.began_ns) / 1e9

    def profile(self, notes: Sequence[Notes]) -> Profile:
        """Where its time went, as far as that has been told."""
        took_s = self.age_s if self.took_s is None else self.took_s
        return report(notes, began_ns=self.began_ns, took_s=took_s, first_output_s=self.first_output_s)

    def status(self, profile: Profile | None = None) -> RequestStatus:
        """For whoever asks."""
        fault = self.fault
        return RequestStatus(
            id=self.id,
            client_request_id=self.client_id,
            model=self.model,
            created=self.created,
            state=self.state,
            seed=self.seed,
            finish_reason=self.finish_reason,
            usage=self.usage,
            counts=self.counts,
            first_output_s=self.first_output_s,
            took_s=self.took_s,
            audio_s=self.audio_s,
            underruns=sum(played.underruns for played in self._played.values()),
            profile=profile,
            error=None if fault is None else Problem(fault.message, fault.type, fault.param, fault.code),
        )


class RequestLog:
    """The newest requests by id.

    Args:
        keep: How many; those that run are never forgotten.
    """

    def __init__(self, keep: int = KEEP) -> None:
        self._keep = keep
        self._records: OrderedDict[str, Record] = OrderedDict()

    def start(self, id: str, model: str, seed: int, client_id: str | None = None) -> Record:
        """The record of this id, for a call that starts: a new one, or that of the calls before."""
        record = self._records.get(id)
        if record is None:
            record = self._records[id] = Record(id, model, seed, client_id)
            self._forget()
        record.started()
        return record

    def get(self, id: str) -> Record | None:
        """The record of this id, where there is one."""
        return self._records.get(id)

    def find(self, id: str) -> Record:
        """Raises NoSuchRequest where none of that id is remembered."""
        record = self._records.get(id)
        if record is None:
            raise NoSuchRequest(
                f"no request {id[:100]!r} is remembered; the newest {self._keep:,} are", param="request_id"
            )
        return record

    def _forget(self) -> None:
        if len(self._records) > self._keep:
            oldest = next((id for id, one in self._records.items() if not one.is_running), None)
            if oldest is not None:
                del self._records[oldest]


def request_routes(requests: RequestLog, profiles: Profiles | None) -> list[BaseRouteHandler]:
    """``GET /v1/requests/{id}``."""

    @get(
        "/v1/requests/{request_id:str}",
        summary="Describe one request",
        tags=["requests"],
        responses=documented(400, 404, 500)
        | examples.answered(RequestStatus, "One request", examples.REQUEST),
    )
    async def describe_request(request_id: _RequestId) -> RequestStatus:
        record = requests.find(request_id)
        notes = await profiles.of(request_id, wait=not record.is_running) if profiles is not None else None
        return record.status(record.profile(notes) if notes is not None else None)

    return [describe_request]
