"""What a log line looks like, for people or as JSON: the same in every process of a server."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being answered, so that whatever is logged on its behalf says so."""


def about(request_id: str, **fields: Any) -> dict[str, Any]:
    """What a line is about: ``log.error("…", extra=about(call.record.id))``.

    Args:
        fields: What JSON has beside the message; the message says it for people.
    """
    return {"request_id": request_id, "fields": fields}


def start_logging(process: str, level: str, form: str) -> None:
    """Log to stderr, everybody's lines alike; stdout is for what a command gives.

    Args:
        process: This one's name: ``"http"``, ``"conductor"``, or a worker's.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(process) if form == "json" else _Text(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    if form == "json":
        sys.excepthook = _log_uncaught


def is_json() -> bool:
    """Whether lines are read by a program, so that nothing else may come between them."""
    return any(isinstance(handler.formatter, _Json) for handler in logging.getLogger().handlers)


def _request_id(record: logging.LogRecord) -> str:
    own: str = getattr(record, "request_id", "")
    return own or REQUEST_ID.get()


class _Text(logging.Formatter):
    """Time, process, logger, level, message, and the request's id in brackets."""

    def __init__(self, process: str) -> None:
        line = "%(asctime)s %(process_name)s %(name)s %(levelname)s %(message)s"
        super().__init__(line, defaults={"process_name": process})

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        request_id = _request_id(record)
        return f"{line} [{request_id}]" if request_id else line


class _Json(logging.Formatter):
    """One object a line."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._process,
            "message": record.getMessage(),
        }
        request_id = _request_id(record)
        if request_id:
            said["request_id"] = request_id
        said |= getattr(record, "fields", {})
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False, default=str)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("walkserve").critical("uncaught", exc_info=(kind, error, trace))
