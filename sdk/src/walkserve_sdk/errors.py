"""Every error of the project, sorted by whose fault it is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message: ``; did you mean 'token'?`` or the known names, or nothing."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""


def shown(value: object, most: int = 100) -> str:
    """A value as a message has it, however large it is."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"a {type(value).__name__} too long to write"
    return text if len(text) <= most else f"{text[: most - 1]}…"


class WalkserveError(Exception):
    """The root. ``status`` is the HTTP status a client sees; ``type`` and ``code`` go in the envelope."""

    status = 500
    type = "server_error"
    code: str | None = None
    param: str | None = None


# --- the plugin's fault -------------------------------------------------------------------------------


class DeclarationError(WalkserveError, TypeError):
    """A family's declaration contradicts itself; raised when it is imported, in the author's words."""


class PluginError(WalkserveError):
    """A plugin cannot be used: it failed to import, two claim one name, or it wants another API level."""


class LoadError(WalkserveError):
    """A checkpoint does not fit its family: files, tensors or settings are missing or of the wrong shape."""


class ComponentError(WalkserveError):
    """A component broke while it computed; the message names component and method."""


# --- the client's fault -------------------------------------------------------------------------------


class BadRequest(WalkserveError):
    """The request cannot be served as it is. ``param`` names the field, the message the cure."""

    status = 400
    type = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code if code is not None else type(self).code


class ContextLengthExceeded(BadRequest):
    """More tokens than the context or the whole pool can hold; the message has both numbers."""

    code = "context_length_exceeded"


class MediaTooLarge(BadRequest):
    """An image or a video is beyond a limit; the message has both numbers. Nothing of it was decoded."""

    status = 413
    code = "media_too_large"


class ModelNotFound(BadRequest):
    """No such model is served here."""

    status = 404
    code = "model_not_found"


class UnsupportedSurface(BadRequest):
    """The model is served, but not through this route."""

    code = "unsupported_surface"


class ClientIdle(WalkserveError):
    """Its client wrote nothing to a stream for as long as that allows, and all of it waited for an item."""

    status = 408
    type = "timeout"
    code = "client_idle"


# --- the runtime's fault ------------------------------------------------------------------------------


class Unavailable(WalkserveError):
    """The server cannot serve this now: starting, draining, or the worker that held it was lost."""

    status = 503
    type = "unavailable"
    code = "unavailable"


class Cancelled(WalkserveError):
    """The request was cancelled; a state of its life, not a fault."""

    status = 499
    type = "cancelled"
    code = "cancelled"


class DeadlineExceeded(WalkserveError):
    """The request did not end in the time that it may take; the message has the seconds."""

    status = 504
    type = "timeout"
    code = "deadline_exceeded"


class WalkFailed(WalkserveError):
    """A Walk did not complete. Thrown into the track that asked for it; uncaught, it fails the request."""

    def __init__(self, message: str, *, blame: str = "server_error", status: int = 500) -> None:
        super().__init__(message)
        self.type = blame
        self.status = status


# --- errors that have travelled -----------------------------------------------------------------------

_BY_CODE: dict[str | None, type[WalkserveError]] = {
    "component_failed": ComponentError,
    ClientIdle.code: ClientIdle,
    ContextLengthExceeded.code: ContextLengthExceeded,
    DeadlineExceeded.code: DeadlineExceeded,
    MediaTooLarge.code: MediaTooLarge,
    ModelNotFound.code: ModelNotFound,
    UnsupportedSurface.code: UnsupportedSurface,
}
_BY_TYPE = {kind.type: kind for kind in (WalkserveError, BadRequest, Unavailable, Cancelled)}
_BY_STATUS = {kind.status: kind for kind in (Unavailable, Cancelled)}


def error_of(
    message: str, type: str, *, code: str | None = None, param: str | None = None, status: int | None = None
) -> WalkserveError:
    """The error that an envelope was before it travelled.

    Args:
        status: The HTTP status; None where it came without one, in the middle of a stream.
    """
    if code in _BY_CODE:
        kind = _BY_CODE[code]
    elif status is None:
        kind = _BY_TYPE.get(type, WalkserveError)
    else:
        kind = _BY_STATUS.get(status, BadRequest if status < 500 else WalkserveError)
    error = kind(message)
    error.status = kind.status if status is None else status
    error.type, error.code, error.param = type, code, param
    return error
