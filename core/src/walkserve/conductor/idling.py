"""Clients that write streams and have fallen silent: which requests to look at, and what they are told.

A client is silent when all of its request waits for it, not while its last item is still worked at, however
long that takes. Nobody can see that from here, so workers are asked (``stalls.py``), once nothing was heard
of the request for a tenth of the time its client may be silent. The clock is that of ``deadlines.py``.
"""

from __future__ import annotations

from walkserve import messages as m
from walkserve.conductor.life import Life
from walkserve_sdk.errors import ClientIdle

LOOK_AFTER = 0.1
"""Of the time that a client may be silent, the part after which workers are asked."""


def idle_s(life: Life) -> float:
    """How long its client may be silent: the least that a stream which it still writes allows."""
    streams = life.served.model.spec.streams
    return min((streams[name].idle_s for name in life.open_ends), default=float("inf"))


def silent(life: Life) -> m.Fault:
    """What its client is told."""
    names = " and ".join(map(repr, life.open_ends))
    return m.Fault.of(
        ClientIdle(
            f"nothing was written to {names} for {idle_s(life):g} s, and all of the request waits for it; "
            "write within that time, or end the stream"
        )
    )
