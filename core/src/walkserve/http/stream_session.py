"""What one WebSocket knows of its requests, and what follows from each frame; no socket, no runtime."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from walkserve.http.generate_ask import Ask
from walkserve.http.generate_split import Split
from walkserve.http.problems import BodyTooLarge, told
from walkserve.http.settings import HttpSettings
from walkserve.http.stream_frames import (
    Announced,
    CancelFrame,
    EndFrame,
    GenerateFrame,
    TextFrame,
    announced,
    read_frame,
    read_generate,
)
from walkserve_sdk import Model, Part, Request
from walkserve_sdk.errors import BadRequest, Unavailable
from walkserve_sdk.events import Event, Failed, Problem, Stopped

# --- orders -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """Send this."""

    event: Event


@dataclass(frozen=True, slots=True)
class Call:
    """Call the model; for the same ``label``, after what it was called with before."""

    label: str
    ask: Ask
    request: Request


@dataclass(frozen=True, slots=True)
class Close:
    """There is no more to call: the request is done with what runs. An error fails it when that is over."""

    label: str
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop it and send nothing more of it, then say so."""

    label: str


Order = Tell | Call | Close | Cancel


class TooManyRequests(BadRequest):
    """More requests on one socket than it may have."""

    status = 429
    code = "too_many_requests"


# --- state --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A request that has begun and has not ended.

    Args:
        ask: Without the media and the text that are still to come.
        awaits_text: More may come in ``text`` frames.
        media_bytes: Of media that are kept until the rest has come.
    """

    label: str
    ask: Ask
    awaits_text: bool
    media_bytes: int = 0
    media: int = 0
    """How many binary frames are still to come."""
    texts: list[str] = field(default_factory=list)
    text_bytes: int = 0
    split: Split | None = None
    is_called: bool = False


class Session:
    """The requests of one socket, by their client's names for them."""

    def __init__(self, models: Mapping[str, Model], settings: HttpSettings) -> None:
        self._models = models
        self._settings = settings
        self._open: dict[str, _Open] = {}
        self._frames = 0
        self._media: deque[tuple[_Open | None, Announced]] = deque()
        """The binary frames that come next; those of a request that was refused are thrown away."""
        self._is_leaving = False

    @property
    def is_idle(self) -> bool:
        return not self._open

    def over(self, label: str) -> None:
        """The last event of a request was sent: its name is free."""
        self._open.pop(label, None)

    def leave(self) -> list[Order]:
        """The server stops: what waits for the client is refused, like all that is new; what runs may end."""
        self._is_leaving = True
        waiting = [opened for opened in self._open.values() if opened.awaits_text or opened.media]
        return [order for opened in waiting for order in self._fail(opened.label, _leaving())]

    # --- frames -----------------------------------------------------------------------------------

    def hear(self, frame: str | bytes) -> list[Order]:
        """What follows from a frame. A bad one is told, and harms nothing but what it was about."""
        self._frames += 1
        try:
            return self._hear_media(frame) if isinstance(frame, bytes) else self._hear_control(frame)
        except Exception as error:  # of no request in particular
            return [Tell(Failed(error=self._problem(error), frame=self._frames))]

    def _hear_control(self, text: str) -> list[Order]:
        missed = self._miss_media()
        limit = self._settings.body_bytes
        if len(text) > limit or len(text.encode()) > limit:
            raise BodyTooLarge(f"the frame is larger than {limit:,} bytes, the most a text frame may have")
        frame, fields = read_frame(text)
        match frame:
            case GenerateFrame():
                return missed + self._generate(frame, fields)
            case TextFrame(id=label, text=piece):
                opened = self._awaiting_text(label)
                return missed + self._attempt(label, lambda: self._hear_text(opened, piece))
            case EndFrame(id=label):
                opened = self._awaiting_text(label)
                return missed + self._attempt(label, lambda: self._end_text(opened))
            case CancelFrame(id=label):
                return missed + self._cancel(label)
        raise AssertionError(frame)

    def _attempt(self, label: str, act: Callable[[], list[Order]]) -> list[Order]:
        """What goes wrong in this is about one request, and ends it."""
        try:
            return act()
        except Exception as error:
            return self._fail(label, error)

    def _fail(self, label: str, error: Exception) -> list[Order]:
        opened = self._open.get(label)
        if opened is not None and opened.is_called:  # what it was called with may come to its end
            opened.awaits_text = False
            return [Close(label, error)]
        self._open.pop(label, None)
        return [Tell(Failed(id=label, error=self._problem(error), frame=self._frames))]

    def _problem(self, error: Exception) -> Problem:
        return told(error, f"frame {self._frames} of a socket")[1]

    # --- a request begins, and ends ---------------------------------------------------------------------

    def _generate(self, frame: GenerateFrame, fields: dict[str, Any]) -> list[Order]:
        label, media = frame.id, announced(fields)
        is_twice = label in self._open
        orders = [] if is_twice else self._attempt(label, lambda: self._begin(label, fields, media))
        taker = None if is_twice else self._open.get(label)
        self._media.extend((taker, each) for each in media)
        if is_twice:
            raise BadRequest(f"id: {label!r} is open; wait for its end, or cancel it", param="id")
        return orders

    def _begin(self, label: str, fields: dict[str, Any], media: list[Announced]) -> list[Order]:
        if self._is_leaving:
            raise _leaving()
        most = self._settings.socket_requests
        if len(self._open) >= most:
            raise TooManyRequests(f"{most} requests are open on this socket, the most there may be")
        ask, awaits_text = read_generate(self._models, fields, self._settings.timeout_s)
        size_bytes = sum(each.size_bytes for each in media)
        waiting = sum(opened.media_bytes for opened in self._open.values())
        if waiting + size_bytes > self._settings.media_bytes:
            raise BodyTooLarge(
                f"inputs: a socket takes {self._settings.media_bytes:,} bytes of media at a time; these are"
                f" {size_bytes:,}, and {waiting:,} wait for the rest of their requests",
                param="inputs",
            )
        opened = self._open[label] = _Open(label, ask, awaits_text, size_bytes, len(media))
        return [] if opened.media else self._inputs_came(opened)

    def _inputs_came(self, opened: _Open) -> list[Order]:
        ask = opened.ask
        opened.split = Split(ask) if ask.is_split else None
        if opened.awaits_text:
            return self._hear_text(opened, str(ask.parts[-1].data))
        requests = list(opened.split.each()) if opened.split is not None else [ask.request(ask.parts)]
        return [*self._calls(opened, requests), self._close(opened)]

    def _calls(self, opened: _Open, requests: list[Request]) -> list[Order]:
        opened.is_called = opened.is_called or bool(requests)
        return [Call(opened.label, opened.ask, request) for request in requests]

    def _close(self, opened: _Open) -> Order:
        opened.awaits_text = False
        opened.media_bytes = 0  # they have gone on their way
        opened.texts.clear()
        return Close(opened.label)

    def _cancel(self, label: str) -> list[Order]:
        opened = self._open.pop(label, None)
        is_running = opened is not None and opened.is_called
        return [Cancel(label) if is_running else Tell(Stopped(id=label))]

    # --- text in pieces -----------------------------------------------------------------------------------

    def _awaiting_text(self, label: str) -> _Open:
        opened = self._open.get(label)
        if opened is None:
            raise BadRequest(f"id: no request {label!r} is open; begin it with 'generate'", param="id")
        if not opened.awaits_text:
            raise BadRequest(
                f'id: the text of {label!r} is complete; begin it with "text_open": true to send more',
                param="id",
            )
        return opened

    def _hear_text(self, opened: _Open, piece: str) -> list[Order]:
        opened.text_bytes += len(piece.encode())
        limit = self._settings.body_bytes
        if opened.text_bytes > limit:
            raise BodyTooLarge(f"text: with this piece it is longer than {limit:,} bytes", param="text")
        if opened.split is not None:
            return self._calls(opened, opened.split.feed(piece))
        opened.texts.append(piece)
        return []

    def _end_text(self, opened: _Open) -> list[Order]:
        if opened.split is not None:
            requests = opened.split.finish()
        else:
            parts = (*opened.ask.parts[:-1], Part("text", "".join(opened.texts)))
            requests = [opened.ask.request(parts)]
        return [*self._calls(opened, requests), self._close(opened)]

    # --- media ----------------------------------------------------------------------------------------

    def _hear_media(self, data: bytes) -> list[Order]:
        if not self._media:
            raise BadRequest("a binary frame came that no 'generate' has announced; say its 'bytes' there")
        opened, announcement = self._media.popleft()
        if opened is None or self._open.get(opened.label) is not opened:
            return []
        return self._attempt(opened.label, lambda: self._take(opened, announcement, data))

    def _take(self, opened: _Open, announcement: Announced, data: bytes) -> list[Order]:
        place = f"inputs[{announcement.place}]"
        if len(data) != announcement.size_bytes:
            raise BadRequest(
                f"{place}.bytes: {announcement.size_bytes:,} were announced, {len(data):,} came",
                param=f"{place}.bytes",
            )
        parts = list(opened.ask.parts)
        parts[announcement.place] = replace(parts[announcement.place], data=data)
        opened.ask = replace(opened.ask, parts=tuple(parts))
        opened.media -= 1
        return [] if opened.media else self._inputs_came(opened)

    def _miss_media(self) -> list[Order]:
        """A text frame came in place of media: they do not come any more."""
        missed, self._media = self._media, deque()
        for opened, announcement in missed:
            if opened is not None and self._open.get(opened.label) is opened:
                place = f"inputs[{announcement.place}]"
                wrong = BadRequest(
                    f"{place}: its binary frame was to come next, and a text frame came", param=place
                )
                return self._fail(opened.label, wrong)  # they are all of one request
        return []


def _leaving() -> Unavailable:
    return Unavailable("the server stops and takes nothing new")
