"""Server-sent events: a stream of small JSON messages on one response, as OpenAI sends them."""

from __future__ import annotations

from typing import Any

import msgspec

from walkserve.http.answers import Client
from walkserve.http.problems import Problem, ProblemBody

HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would keep events until it has 4 KiB of them
}


def event(data: Any, name: str | None = None) -> bytes:
    """One event on the wire. JSON has no line break of its own, so its data is one line.

    Args:
        data: What msgspec can encode.
        name: Where absent, browsers call it ``message``.
    """
    line = b"data: " + msgspec.json.encode(data) + b"\n\n"
    return line if name is None else b"event: " + name.encode() + b"\n" + line


class EventStream:
    """Events to one client.

    The status goes out with the first event, so that a failure before it is an ordinary error response.
    """

    def __init__(self, client: Client, headers: dict[str, str]) -> None:
        self.is_started = False
        self._client = client
        self._headers = headers | HEADERS

    async def send(self, *events: bytes, more: bool = True) -> None:
        """Send what ``event`` made; these are the last where no ``more`` follow."""
        if not self.is_started:
            self.is_started = True
            await self._client.start(200, self._headers)
        await self._client.send(b"".join(events), more=more)

    async def fail(self, problem: Problem) -> None:
        """End it with an event named ``error``, whose data is the body of an error response."""
        await self.send(event(ProblemBody(problem), "error"), more=False)
