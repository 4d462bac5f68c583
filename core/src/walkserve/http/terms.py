"""On what terms a request is served: under which id, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from litestar import Request

from walkserve.http.client_ids import client_request_id
from walkserve.http.ids import new_id, request_id
from walkserve.timeouts import check_timeout

HEADER = "x-timeout-s"


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all calls of one request.

    Args:
        id: The server's, as the log and ``GET /v1/requests/{id}`` know it.
        client_id: What its client calls it; a label and no more.
        timeout_s: How long it may take in all; None for as long as it takes.
    """

    id: str = field(default_factory=new_id)
    client_id: str | None = None
    timeout_s: float | None = None


def read_terms(
    request: Request[Any, Any, Any], asked_s: float | None = None, *, most_s: float | None = None
) -> Terms:
    """The terms of what came over HTTP.

    Args:
        asked_s: A time that its body asks for.
        most_s: What the server allows, and what holds where nothing is asked for.

    Raises:
        BadRequest: The header is no time, or more than the server allows.
    """
    text = request.headers.get(HEADER)
    header_s = None if text is None else read_seconds(text, HEADER, most_s)
    return Terms(
        request_id(request.scope), client_request_id(request.scope), shortest(header_s, asked_s, most_s)
    )


def shortest(*each_s: float | None) -> float | None:
    """The least of several times, of which each may be none."""
    return min((one for one in each_s if one is not None), default=None)


def read_seconds(text: str, param: str, most_s: float | None = None) -> float:
    """A time that came as text. Raises BadRequest where it is none, or more than may be."""
    try:
        seconds: object = msgspec.json.decode(text, type=float)
    except msgspec.MsgspecError:
        seconds = text
    return check_timeout(seconds, param, most_s)
