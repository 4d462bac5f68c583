"""The client that waits: ``POST /v1/generate``, whole or piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Self

import httpx
import msgspec
from msgspec import Struct

from walkserve_sdk.client.asking import Asking, asking
from walkserve_sdk.client.hearing import Heard, refused
from walkserve_sdk.errors import Unavailable
from walkserve_sdk.events import Done, OutputInfo, Started, ToCaller
from walkserve_sdk.requests import Part
from walkserve_sdk.results import OutputEvent, Result

CONNECT_S = 5.0
NDJSON = "application/x-ndjson"
_EVENT = msgspec.json.Decoder(ToCaller)


class ModelCard(Struct, frozen=True):
    """One model that is served.

    Args:
        inputs: Kinds of part that it takes.
        outputs: What it makes, by name.
        surfaces: The standard surfaces that it has besides this one -> their routes.
        voices: Of its checkpoint, the default first.
    """

    id: str
    family: str
    inputs: tuple[str, ...]
    outputs: dict[str, OutputInfo]
    surfaces: dict[str, list[str]] = {}
    voices: tuple[str, ...] = ()


class _ModelList(Struct):
    data: list[ModelCard]


class Client:
    """A server: ``with Client("http://127.0.0.1:8000") as client: client.generate("orpheus", text="hi")``.

    Any thread may use it.

    Args:
        url: Where the server is, without a path of a route.
        api_key: Where the server wants one.
        timeout_s: How long nothing may come; by default as long as it takes.
    """

    def __init__(self, url: str, api_key: str | None = None, *, timeout_s: float | None = None) -> None:
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def models(self) -> list[ModelCard]:
        """What is served. Raises what ``generate`` does."""
        with _told():
            response = self._http.get("/v1/models")
        if response.is_error:
            raise refused(response.status_code, response.content)
        return msgspec.json.decode(response.content, type=_ModelList).data

    def generate(
        self,
        model: str,
        *,
        text: str | None = None,
        inputs: Sequence[Part] | None = None,
        outputs: Sequence[str] | None = None,
        split: str | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> Result:
        """Run a request to its end.

        Args:
            model: An id of ``models()``, or a family's name where one model of it is served.
            text: The text, where there is one.
            inputs: Parts in their order, in place of parts by keyword.
            outputs: Names of what is asked for; by default every output of the model.
            split: ``"sentence"`` has a long text spoken sentence by sentence.
            timeout_s: How long the server may take; then it fails with ``DeadlineExceeded``.
            fields: Media by their kind (``audio=Path("hello.wav")``, ``tensor={"states": array}``), as
                ``walkserve_sdk.parts.take_parts`` has them; else the family's options.

        Raises:
            BadRequest: The server refuses it; ``param`` names the field.
            Unavailable: The server is not there, or not ready.
            DeadlineExceeded: It did not end in time.
            WalkserveError: The request failed.
        """
        ask = asking(
            model, text=text, inputs=inputs, outputs=outputs, split=split, timeout_s=timeout_s, fields=fields
        )
        with self._stream(ask) as stream:
            return stream.result()

    def stream(
        self,
        model: str,
        *,
        text: str | None = None,
        inputs: Sequence[Part] | None = None,
        outputs: Sequence[str] | None = None,
        split: str | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> Stream:
        """Start a request, and iterate over its pieces within ``with``; leaving that early cancels it.

        Takes what ``generate`` takes; raises what it raises, here what is refused, later what fails.
        """
        return self._stream(
            asking(
                model,
                text=text,
                inputs=inputs,
                outputs=outputs,
                split=split,
                timeout_s=timeout_s,
                fields=fields,
            )
        )

    def _stream(self, ask: Asking) -> Stream:
        body: dict[str, Any] = {"files": ask.form()} if ask.has_media else {"json": ask.json()}
        request = self._http.build_request("POST", "/v1/generate", headers={"accept": NDJSON}, **body)
        with _told():
            response = self._http.send(request, stream=True)
        if response.is_error:
            with _told(), closing(response):
                raise refused(response.status_code, response.read())
        return Stream(response)


class Stream(Iterator[OutputEvent]):
    """A running request: iterate over what it gives; afterwards ``done`` says how it ended."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._lines = _lines(response.iter_bytes())
        self._heard = Heard()

    @property
    def started(self) -> Started | None:
        """Its seed, and what it gives; None before its first piece."""
        return self._heard.started

    @property
    def done(self) -> Done | None:
        """How it ended; None before that."""
        return self._heard.done

    def __next__(self) -> OutputEvent:
        while self._heard.done is None:
            with _told():
                line = next(self._lines, None)
            if line is None:
                raise Unavailable("the server's answer ended in the middle")
            piece = self._heard.hear(_EVENT.decode(line))
            if piece is not None:
                return piece
        raise StopIteration

    def result(self) -> Result:
        """All of it, as ``generate`` returns it; nothing of it may have been read before."""
        return self._heard.result(list(self))

    def close(self) -> None:
        """Cancel what is left of it."""
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines of a body that comes in pieces of any size."""
    begun: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun)
            begun = [other]
    if any(begun):
        yield b"".join(begun)


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong on the way to the server, as an error of ours."""
    try:
        yield
    except httpx.TransportError as error:
        raise Unavailable(f"the server cannot be reached: {error or type(error).__name__}") from error
