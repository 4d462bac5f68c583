"""One line in the log for each request that has been answered: what was asked, how it ended, how long."""

from __future__ import annotations

import logging
import time
from typing import Any, cast
from urllib.parse import quote

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from walkserve.http.client_ids import client_request_id
from walkserve.http.ids import request_id
from walkserve.http.requests import Record, RequestLog
from walkserve.logs import REQUEST_ID, about

log = logging.getLogger(__name__)

QUIET = ("/health", "/ready", "/metrics")
"""What is asked every few seconds by whoever watches a server: logged as debug."""
CLIENT_LEFT = 499
LONGEST_PATH = 200


def logged(app: ASGIApp, requests: RequestLog) -> ASGIApp:
    """Log what passes, without queries, headers and bodies: they may hold what is nobody's business."""

    async def watch(scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        id = request_id(scope)
        REQUEST_ID.set(id)  # of this task; uvicorn has one for each request
        seen = _Seen(send)
        try:
            await app(scope, receive, seen)
        finally:
            _write(scope, id, seen, time.perf_counter() - began, requests.get(id))

    return watch


class _Seen:
    """A ``send`` that counts."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = CLIENT_LEFT
        self.size_bytes = 0

    async def __call__(self, message: Message) -> None:
        said = cast(dict[str, Any], message)
        match said["type"]:
            case "http.response.start" | "websocket.http.response.start":
                self.status = said["status"]
            case "websocket.accept":
                self.status = 101
            case "websocket.close" if self.status == CLIENT_LEFT:
                self.status = 403  # refused before it was open
        self.size_bytes += len(said.get("body") or said.get("bytes") or said.get("text") or b"")
        await self._send(message)


def _write(scope: Scope, id: str, seen: _Seen, took_s: float, record: Record | None) -> None:
    method = "WEBSOCKET" if scope["type"] == ScopeType.WEBSOCKET else scope["method"]
    path = quote(scope["path"][:LONGEST_PATH])  # of a client's own making: it may hold ends of lines
    fields: dict[str, Any] = {
        "method": method,
        "path": path,
        "status": seen.status,
        "duration_s": round(took_s, 6),
        "bytes": seen.size_bytes,
    }
    line = f"{method} {path} {seen.status} in {took_s:.3f} s, {seen.size_bytes:,} bytes"
    client_id = client_request_id(scope)
    if client_id is not None:
        fields["client_request_id"] = client_id
        line += f", {client_id}"
    if record is not None:
        fields |= {"model": record.model, "finish_reason": _finish(record)}
        line += f", {record.model}: {_finish(record)}"
    level = logging.DEBUG if scope["path"] in QUIET else logging.INFO
    log.log(level, "%s", line, extra=about(id, **fields))


def _finish(record: Record) -> str:
    """``"stop"``, ``"length"``, …; for what did not end well, how it is instead."""
    if record.fault is not None:
        return record.fault.code or "failed"
    is_done = record.state == "done"
    return record.finish_reason if is_done and record.finish_reason is not None else record.state
