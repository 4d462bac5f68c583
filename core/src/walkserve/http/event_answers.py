"""Answers that are events as they come: one JSON object a line, or server-sent events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from walkserve.http import sse
from walkserve.http.answers import Client
from walkserve.http.problems import told
from walkserve_sdk.events import Failed

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"


def _ndjson(event: object) -> bytes:
    return msgspec.json.encode(event) + b"\n"


FRAMES: dict[str, Callable[[object], bytes]] = {NDJSON: _ndjson, SSE: sse.event}


class EventAnswer:
    """Events to one client.

    The status goes out with the first of them, so that a failure before it has one of its own.
    """

    def __init__(self, client: Client, media_type: str) -> None:
        self.is_started = False
        self._client = client
        self._media_type = media_type
        self._frame = FRAMES[media_type]

    async def send(
        self, events: Sequence[object], headers: dict[str, str] | None = None, *, more: bool
    ) -> None:
        """Send events; returns when the connection can take the next.

        Args:
            headers: Of the response, where it begins with these.
            more: Whether they are not the last.
        """
        if not self.is_started:
            self.is_started = True
            own = {"content-type": self._media_type}
            await self._client.start(200, sse.HEADERS | (headers or {}) | own)
        await self._client.send(b"".join(map(self._frame, events)), more=more)

    async def fail(self, error: Exception, where: str) -> None:
        """Tell an error as the last event; one before the first event is raised, for an error response."""
        if not self.is_started:
            raise error
        _, problem = told(error, where)
        await self.send([Failed(error=problem)], more=False)
