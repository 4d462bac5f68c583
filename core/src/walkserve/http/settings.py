"""What can be set about the HTTP server itself."""

from __future__ import annotations

import time

from msgspec import Struct, field

from walkserve.http.keys import ApiKeys
from walkserve_sdk.media.limits import IMAGE_LIMITS, VIDEO_LIMITS


class HttpSettings(Struct, frozen=True):
    """Complete as it is.

    Args:
        body_bytes: The largest JSON body that is read; a larger one is a 413.
        media_bytes: The most media of one request: a larger multipart body is a 413. It is also what may wait
            on one WebSocket for the rest of its requests, and the largest frame.
        image_pixels: The most pixels of an image. Like the next two it may be smaller than what components
            decode by themselves (``walkserve_sdk.media.limits``), not larger.
        frame_pixels: The most pixels of a frame of a video.
        video_s: The longest video.
        remote_media: Whether media are fetched from public addresses that clients name.
        socket_requests: How many requests may be open on one WebSocket.
        max_open_requests: How many requests may run or wait at once; one more is a 429.
        timeout_s: How long a request may take, also where it asks for more or for nothing; None for any time.
        receive_timeout_s: How long a client may take to send its headers, and each MiB of its body.
        keys: Of whom requests are answered; None answers everybody.
        cors_origins: Whose pages may call this server; ``"*"`` is everybody's.
        created: When this server started, in seconds since 1970: what ``/v1/models`` says of its models.
    """

    body_bytes: int = 1024 * 1024
    media_bytes: int = 64 * 1024 * 1024
    image_pixels: int = IMAGE_LIMITS.pixels
    frame_pixels: int = VIDEO_LIMITS.pixels
    video_s: float = VIDEO_LIMITS.duration_s
    remote_media: bool = False
    socket_requests: int = 32
    max_open_requests: int = 512
    timeout_s: float | None = None
    receive_timeout_s: float = 30.0
    keys: ApiKeys | None = None
    cors_origins: tuple[str, ...] = ()
    created: int = field(default_factory=lambda: int(time.time()))
