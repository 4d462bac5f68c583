"""Routes that a plugin adds to the server, and what their requests and sockets meet there.

A plugin declares a ``Route`` or a ``SocketRoute`` and returns it from ``walkserve_extend_app``. What every
route has is the server's part: API keys, limits, the envelope of errors, the log, metrics, cancelling when a
client leaves, and what OpenAPI says.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from walkserve_sdk.errors import DeclarationError
from walkserve_sdk.models import Model
from walkserve_sdk.ports import Output
from walkserve_sdk.requests import Part, Request
from walkserve_sdk.streams import Stream

if TYPE_CHECKING:
    from walkserve_sdk.results import OutputEvent, Result  # they need numpy

FieldsT = TypeVar("FieldsT", bound=Struct)
FieldsT_co = TypeVar("FieldsT_co", bound=Struct, covariant=True)

_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
IDLE_S = 600.0


# --- declared by a plugin ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Route(Generic[FieldsT]):
    """``POST`` to a path, for models that have the surface.

    A body is JSON, or a form (``multipart/form-data``) with the same fields, in which those of type ``bytes``
    are files. It has ``model``, and the ``fields``; whatever else is sent is an option of the model's family,
    and what neither knows is refused.

    Args:
        path: As in ``"/v1/rollouts"``; without parameters.
        surface: What a model has whose ``own_surfaces`` name it.
        handle: Called with each request that has been read. Returns what msgspec can encode, for JSON; or a
            ``Reply``, for other bytes; or, where its client wants events, an asynchronous iterator over them.
            Whatever it raises is answered as an error, and it is cancelled when its client leaves.
        fields: Of the body, besides ``model``. ``Meta`` bounds and describes them.
        answer: What the JSON answer is.
        events: What events are: a Struct, or a union of tagged ones; None where there are none.
        media: Media types of what a ``Reply`` may be, each with what it is.
        summary: A few words, for OpenAPI.
        description: Markdown, for OpenAPI.
        example: A body that is complete but for its ``model``.
        example_answer: As ``answer`` is encoded.
        example_event: One event, as it is encoded.
    """

    path: str
    surface: str
    handle: Callable[[Exchange[FieldsT]], Awaitable[object]]
    fields: type[FieldsT]
    answer: Any
    summary: str
    example: Mapping[str, Any]
    example_answer: Mapping[str, Any]
    description: str = ""
    events: Any = None
    example_event: Mapping[str, Any] | None = None
    media: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.path, self.summary)
        if "model" in (one.encode_name for one in msgspec.structs.fields(self.fields)):
            raise DeclarationError(f"{self.path}: 'model' is a field of every route; leave it out")
        if (self.events is None) is not (self.example_event is None):
            raise DeclarationError(f"{self.path}: with 'events' goes an 'example_event'; give both, or none")

    def __str__(self) -> str:
        return f"POST {self.path}"


@dataclass(frozen=True, kw_only=True)
class SocketRoute:
    """A WebSocket at a path.

    Args:
        path: As in ``"/v1/rollouts/session"``; without parameters.
        surface: What a model has whose ``own_surfaces`` name it.
        handle: Called with each socket that has been opened; the socket is closed when it returns, and it is
            cancelled when its client leaves.
        frames: What a client may say: Structs with a ``tag``, which is a frame's ``"type"``. Each is one text
            frame of JSON.
        summary: A few words, for whoever asks what a model is.
        idle_s: How long a client may say nothing while it is waited for; None for any time.
    """

    path: str
    surface: str
    handle: Callable[[Socket], Awaitable[None]]
    frames: Sequence[type[Struct]]
    summary: str
    idle_s: float | None = IDLE_S

    def __post_init__(self) -> None:
        _check(self.path, self.summary)
        tags = [each.__struct_config__.tag for each in self.frames]
        if not tags or not all(isinstance(tag, str) for tag in tags) or len(set(tags)) < len(tags):
            raise DeclarationError(f"{self.path}: 'frames' are Structs, each with a tag of its own, a str")

    def __str__(self) -> str:
        return f"WS {self.path}"


@dataclass(frozen=True)
class Reply:
    """An answer that is no JSON.

    Args:
        media_type: One of the route's ``media``.
        headers: Further ones.
    """

    data: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


def _check(path: str, summary: str) -> None:
    if not _PATH.fullmatch(path):
        raise DeclarationError(f"{path!r} is no path of a route; it is as '/v1/rollouts', without parameters")
    if not summary:
        raise DeclarationError(f"{path}: say in 'summary' what it is for")


# --- given by the server ----------------------------------------------------------------------------------


class Running(Protocol):
    """One request that runs, and what it gives: iterate over it, or wait for the whole."""

    @property
    def request_id(self) -> str:
        """What ``GET /v1/requests/{request_id}`` knows it by."""

    def __aiter__(self) -> AsyncIterator[OutputEvent]:
        """What it gives, as it comes. Raises WalkserveError where it fails."""

    async def result(self) -> Result:
        """All that has not been read yet, and how it ended. Raises WalkserveError where it fails."""

    async def send(self, stream: str | Stream, value: Any) -> None:
        """Write an item to one of the streams that it was started with, as soon as there is room for it.

        Another task may meanwhile iterate. Where nobody reads any more, the item goes nowhere.

        Args:
            value: Bytes, text, a number, an array, a list of these, or a record of all but bytes; it is
                copied.

        Raises:
            BadRequest: It is no such stream, or was ended, or cannot hold this; the request goes on.
            WalkserveError: What the request failed with.
        """

    def end(self, stream: str | Stream) -> None:
        """Write no more to a stream. Raises what ``send`` does, of the stream and of the request."""

    def cancel(self) -> None:
        """Give everything back; harmless when it is over."""


class Exchange(Protocol[FieldsT_co]):
    """One HTTP request that has been read, and how to answer it."""

    @property
    def name(self) -> str:
        """Of the model, as it is served."""

    @property
    def model(self) -> Model:
        """It has the route's surface."""

    @property
    def fields(self) -> FieldsT_co:
        """Of the body, checked."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Of the family, as its client set them, checked; ``request`` takes them by itself."""

    @property
    def media_type(self) -> str:
        """What the client accepts best, of what the route offers."""

    @property
    def wants_events(self) -> bool:
        """Whether that is events: the handler then returns an iterator over them."""

    def request(
        self,
        *,
        parts: Sequence[Part] = (),
        outputs: Sequence[str | Output] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Request:
        """Make a request to the model, through its own gate.

        Args:
            outputs: None for all of the model's.
            options: Besides those that the client set, before which they go.

        Raises:
            BadRequest: What ``Model.request`` refuses.
        """

    async def start(self, request: Request, *, writes: Iterable[str | Stream] = ()) -> Running:
        """Check a request's media and send it on its way, on its client's terms.

        What still runs when the handler ends is cancelled.

        Args:
            writes: Of the model's streams those that the handler will write (``Stream(by="client")``);
                others are empty.

        Raises:
            BadRequest: An image or a video is none, or beyond a limit; ``param`` is its part's name, or kind.
            WalkserveError: The server is not ready, or takes no more requests.
        """


class Socket(Protocol):
    """One WebSocket that is open. Iterating over it is receiving until there is no more."""

    async def receive(self) -> Struct | bytes | None:
        """The next frame: one of the route's, or the bytes of a binary one; None when the server stops.

        A frame that is none of the route's is told and skipped.
        """

    def __aiter__(self) -> AsyncIterator[Struct | bytes]: ...

    async def send(self, event: object, data: bytes | None = None) -> None:
        """Send what msgspec can encode, and ``data`` in a binary frame right after it."""

    def answering(self, id: str | None = None) -> AbstractAsyncContextManager[None]:
        """What is raised inside is told in an ``error`` frame, and the socket stays open.

        Args:
            id: What the client calls that of which it is told.
        """

    def find(self, model: str) -> tuple[str, Model]:
        """The served model of that name, with the name it is served by.

        Raises:
            ModelNotFound: There is none.
            UnsupportedSurface: It has not the route's surface.
        """

    async def check(self, parts: Sequence[Part]) -> None:
        """Check images and videos by their headers, as ``start`` does those of its request.

        For what goes to a request that runs already, by ``Running.send``.

        Raises:
            BadRequest: One is none, or beyond a limit; ``param`` is its part's name, or kind.
        """

    async def start(
        self,
        name: str,
        request: Request,
        *,
        id: str | None = None,
        timeout_s: float | None = None,
        writes: Iterable[str | Stream] = (),
    ) -> Running:
        """Check a request's media and send it to the model of that name.

        What still runs when the socket ends is cancelled.

        Args:
            id: What its client calls it; a label and no more.
            timeout_s: How long it may take; never longer than the server allows.
            writes: Of the model's streams those that the handler will write (``Stream(by="client")``);
                others are empty.

        Raises:
            BadRequest: An image or a video is none, or beyond a limit; ``param`` is its part's name, or kind.
            WalkserveError: The server is not ready, or takes no more requests.
        """
