"""What can be set about the HTTP server itself."""

from __future__ import annotations

import time

from msgspec import Struct, field


class HttpSettings(Struct, frozen=True):
    """Complete as it is.

    Args:
        body_bytes: The largest JSON body that is read; a larger one is a 413.
        media_bytes: The most media of one request: a larger multipart body is a 413. It is also what may wait
            on one WebSocket for the rest of its requests, and the largest frame.
        socket_requests: How many requests may be open on one WebSocket.
        created: When this server started, in seconds since 1970: what ``/v1/models`` says of its models.
    """

    body_bytes: int = 1024 * 1024
    media_bytes: int = 64 * 1024 * 1024
    socket_requests: int = 32
    created: int = field(default_factory=lambda: int(time.time()))
