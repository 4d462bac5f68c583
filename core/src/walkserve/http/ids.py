"""The id of each request over HTTP: made by the server, in every response, log line and record."""

from __future__ import annotations

from typing import Any, cast
from uuid import uuid4

from litestar.types import Scope

_KEY = "walkserve.request_id"


def new_id() -> str:
    """An id that nobody can guess, so that it may be shown to whoever has it."""
    return f"req-{uuid4().hex}"


def request_id(scope: Scope) -> str:
    """The id of the request with this scope, the same whenever it is asked for."""
    place = cast(dict[str, Any], scope)
    if _KEY not in place:
        place[_KEY] = new_id()
    made: str = place[_KEY]
    return made
