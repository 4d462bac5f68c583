"""What can be set about the HTTP server itself."""

from __future__ import annotations

import time

from msgspec import Struct, field


class HttpSettings(Struct, frozen=True):
    """Complete as it is.

    Args:
        body_bytes: The largest JSON body that is read; a larger one is a 413.
        created: When this server started, in seconds since 1970: what ``/v1/models`` says of its models.
    """

    body_bytes: int = 1024 * 1024
    created: int = field(default_factory=lambda: int(time.time()))
