"""How long a request may take, as whoever asks for it may say."""

from __future__ import annotations

import math

from walkserve_sdk.errors import BadRequest, shown

LONGEST_S = 1e9
"""About thirty years: beyond that nobody waits, and clocks lose their seconds."""


def check_timeout(seconds: object, param: str, most_s: float | None = None) -> float:
    """Seconds as somebody has given them.

    Args:
        param: What it is called where it was given.
        most_s: The most that may be asked for; None for any time.

    Raises:
        BadRequest: It is no time, or more than may be asked for.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise BadRequest(f"{param}: it is a number of seconds above 0, got {shown(seconds)}", param=param)
    asked_s = float(min(seconds, LONGEST_S))
    if most_s is not None and asked_s > most_s:
        raise BadRequest(
            f"{param}: {asked_s:g} s is more than a request may take here, which is {most_s:g} s", param=param
        )
    return asked_s
