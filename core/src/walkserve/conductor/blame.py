"""Whose fault an error in a request is, and what its client is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from walkserve.logs import about
from walkserve.messages import Fault
from walkserve_sdk import WalkFailed, WalkserveError
from walkserve_sdk.tracks import Finished, Step, TrackRun

log = logging.getLogger(__name__)


BLAMED = (Exception, SystemExit, KeyboardInterrupt)
"""Also what would end the process: signals are left to the server, so it is a plan that has raised it."""


class Told(Exception):
    """A fault that is to reach the client as it is."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Blamed:
    """A ``with`` block whose every exception fails one request and nothing else.

    Args:
        place: What runs in it, for the log and the client.
        fail: Told the fault.
        label: Of the request, for the log.
    """

    def __init__(self, place: str, fail: Callable[[Fault], None], label: str = "") -> None:
        self._place = place
        self._fail = fail
        self._label = label

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, BLAMED):
            return False
        if not isinstance(error, Told | WalkserveError):
            log.error("%s raised", self._place, exc_info=error, extra=about(self._label))
        self._fail(fault_of(error, self._place))
        return True


def fault_of(error: BaseException, place: str) -> Fault:
    """Expected errors in their own words; of others the kind, the log has the rest."""
    match error:
        case Told():
            return error.fault
        case WalkserveError():
            return Fault.of(error)
        case _:
            return Fault(
                f"{place} raised {type(error).__name__}; the server's log has the details", code="plan_failed"
            )


def throw(track: TrackRun, fault: Fault) -> Step | Finished:
    """Tell a track that its Walk failed. Raises the fault, as it is, if the track does not take it."""
    failure = WalkFailed(fault.message, blame=fault.type, status=fault.status)
    try:
        return track.throw(failure)
    except WalkFailed as untaken:
        if untaken is failure:
            raise Told(fault) from None
        raise
