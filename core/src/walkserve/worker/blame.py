"""What a client may know of an error in a worker."""

from __future__ import annotations

from walkserve.messages import Fault
from walkserve_sdk.errors import WalkserveError


def fault_of(error: BaseException, place: str) -> Fault:
    """The client's own faults in full, ours by place and kind; the log has the rest."""
    if isinstance(error, WalkserveError) and error.status < 500:
        return Fault.of(error)
    kind = type(error).__name__
    return Fault(f"{place} failed ({kind}); the server's log has the details", code="component_failed")
