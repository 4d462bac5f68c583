"""Walking a request's tracks again, without weights: its journal says what the workers said.

It is the conductor itself that hears it, with one request and a worker that is not there. What it writes
down this time is held against what it wrote then, entry by entry.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from walkserve import messages as m
from walkserve.conductor.life import Life
from walkserve.conductor.served import Served
from walkserve.conductor.state import ConductorState
from walkserve.errors import SettingError
from walkserve.journal import entries as e
from walkserve.journal.notes import value_of, values_of
from walkserve.journal.reading import Recorded
from walkserve.journal.recorder import Recorder
from walkserve_sdk import Model, Request

CLIENT, TAG = "replay", 0
WORKER = "replay.rank0"


@dataclass(frozen=True)
class Parting:
    """Where a plan and a journal part.

    Args:
        line: Of the journal.
        journal: What stands there; None where it has ended, and this plan goes on.
        plan: What this plan does in its place; None where it does nothing more.
    """

    line: int
    journal: e.Line | None
    plan: e.Line | None


@dataclass(frozen=True)
class Replay:
    """How a replay went.

    Args:
        agreed: Entries, from the first, in which plan and journal agree.
        parting: Where they part, or None.
        errors: What the plan raised on the way, as in the journal or not.
    """

    agreed: int
    parting: Parting | None
    errors: tuple[BaseException, ...]


_ASKED = (e.Sized, e.WalkStarted, e.ForkStarted, e.TrackFinished, e.Ended)
"""What follows from a plan. Everything else it is told."""


def replay(recorded: Recorded, model: Model, media: Mapping[str, bytes] | None = None) -> Replay:
    """Walk the tracks of a recorded request by a family's plan.

    Args:
        model: The family, which may have changed since.
        media: What the request brought besides text, by its SHA-256, for plans that look into it.

    Raises:
        SettingError: What the journal has of caches or options is not this family's.
    """
    desk = _Desk(recorded, model, media or {})
    with _Errors() as errors:
        try:
            parting, agreed = _walk_along(recorded, desk)
            return Replay(agreed, parting, tuple(errors.raised))
        finally:
            desk.close()


def _walk_along(recorded: Recorded, desk: _Desk) -> tuple[Parting | None, int]:
    """Where they part, and how many entries stand before that."""
    entries = recorded.entries
    for index, entry in enumerate(entries):
        if isinstance(entry, e.BrokenOff):
            return None, index
        if not desk.said and not isinstance(entry, _ASKED):
            desk.tell(entry)
        plan = desk.said.popleft() if desk.said else None
        if plan is None or not _agree(entry, plan):
            return Parting(index + 1, entry, plan), index
    if desk.said and not recorded.cut:
        return Parting(len(entries) + 1, None, desk.said[0]), len(entries)
    return None, len(entries)


def _agree(journal: e.Line, plan: e.Line) -> bool:
    """Whether two entries say the same, whenever it was; what the request is follows from no plan."""
    if isinstance(journal, e.Opened):
        return isinstance(plan, e.Opened)
    return _settled(journal) == _settled(plan)


def _settled(entry: e.Line) -> bytes:
    """As JSON, because 1, 1.0 and True are three things for a component."""
    return _encode(msgspec.structs.replace(entry, at_ms=0.0))


_encode = msgspec.json.Encoder(order="deterministic").encode


class _Line(deque[Life]):
    """A queue from which nobody is admitted before the journal says so: then others stood before it."""

    is_open = False

    def __bool__(self) -> bool:
        return self.is_open and len(self) > 0


class _Desk:
    """A conductor with one request, whose journal is ``said``."""

    def __init__(self, recorded: Recorded, model: Model, media: Mapping[str, bytes]) -> None:
        self.said: deque[e.Line] = deque()
        self._recorded = recorded
        self._media = media
        opened = recorded.opened
        self._served = served = Served(opened.model, model, dict.fromkeys(model.spec.components, WORKER))
        for worker in served.workers.values():
            worker.address, worker.state = f"{WORKER}.0", "ready"
        served.is_warm = True
        served.queue = self._line = _Line()
        served.pools = dict(opened.pools)
        missing = [
            name for name, part in model.spec.components.items() if part.kv and name not in served.pools
        ]
        if missing:
            raise SettingError(
                f"{type(model).__name__} has caches of which this journal knows nothing: "
                f"{', '.join(missing)}; replay it with the family that it was written with"
            )
        self._state = ConductorState({opened.model: served}, journals=self)

    def begin(
        self, number: int, submit: m.Submit, request: Request, pools: Mapping[str, m.PoolInfo]
    ) -> Recorder:
        """In a folder's place."""
        recorder = Recorder(self.said.append, clock=lambda: 0)
        recorder.opened(number, submit, request, pools, self._recorded.opened.origin)
        return recorder

    def flush(self) -> None:
        """There is no folder."""

    def tell(self, entry: e.Line) -> None:
        """Let the conductor hear what an entry says that it heard."""
        match entry:
            case e.Opened():
                self._open(entry)
            case e.Admitted():
                self._line.is_open = True
                self._state.lives.admit(self._served)
            case e.WalkEnded():
                ended = msgspec.structs.asdict(entry) | {"values": values_of(entry.values), "number": 0}
                del ended["at_ms"]
                self._state.hear(m.WalkEnded(**ended))
            case e.WalkBroke():
                broke = m.WalkBroke(0, entry.track, entry.walk, entry.fault, entry.wrote, entry.emitted)
                self._state.hear(broke)
            case e.Forked():
                self._state.hear(m.BranchForked(0, entry.track, entry.walk))
            case e.ClientWrote():
                items = [value_of(note) for note in entry.items]
                self._state.hear(m.WriteStream(CLIENT, TAG, entry.stream, entry.first, items))
                self._read(entry.stream)
            case e.ClientFinished():
                self._state.hear(m.FinishStream(CLIENT, TAG, entry.stream, entry.total))
            case e.Failed():
                self._state.fail_number(0, entry.fault)
            case e.Cancelled():
                self._state.hear(m.Cancel(CLIENT, TAG))
            case _:
                raise AssertionError(f"{entry!r} follows from something else")

    def _read(self, stream: str) -> None:
        """There is no worker that would; what was written once had room then."""
        for life in self._state.lives:
            if stream in life.client_ends:
                end = life.client_ends[stream]
                end.took(end.written)

    def _open(self, opened: e.Opened) -> None:
        submit = m.Submit(
            CLIENT,
            TAG,
            opened.model,
            self._recorded.parts(self._media),
            opened.outputs,
            self._recorded.options,
            opened.seed,
            opened.given,
            writes=opened.writes,
        )
        self._state.hear(submit)
        refusals = [one for one in self._state.outbox[CLIENT] if isinstance(one, m.RequestFailed)]
        if not self.said and refusals:
            raise SettingError(
                f"this family does not take the request of the journal: {refusals[0].fault.message}"
            )

    def close(self) -> None:
        """Where the journal ends before its request, tracks are in the middle of something."""
        self._state.hear(m.Cancel(CLIENT, TAG))


class _Errors(logging.Handler):
    """Within, what the conductor logs of a plan that raises is kept instead of shown."""

    def __init__(self) -> None:
        super().__init__()
        self.raised: list[BaseException] = []
        self._log = logging.getLogger("walkserve.conductor")

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.raised.append(record.exc_info[1])

    def __enter__(self) -> _Errors:
        self._propagates, self._log.propagate = self._log.propagate, False
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: Any) -> None:
        self._log.propagate = self._propagates
        self._log.removeHandler(self)
