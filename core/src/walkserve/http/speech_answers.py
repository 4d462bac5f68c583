"""How spoken sound leaves: one file, its bytes as they come, or events with bytes in them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from walkserve.http.answers import Client
from walkserve.http.calls import Items
from walkserve.http.encoding import Encoding
from walkserve.http.problems import Problem, told
from walkserve.http.requests import Record
from walkserve.http.speech_pieces import Spoken
from walkserve.http.speech_reading import Speech
from walkserve.http.sse import EventStream, event
from walkserve_sdk.errors import ComponentError

log = logging.getLogger(__name__)


class Delta(Struct, frozen=True, tag_field="type", tag="speech.audio.delta"):
    """Some bytes of the sound; encoded as base64. Joined, they are what the raw stream would be."""

    audio: bytes


class Usage(Struct, frozen=True):
    """As OpenAI counts it."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class End(Struct, frozen=True, tag_field="type", tag="speech.audio.done"):
    """That was all. OpenAI has ``usage`` only."""

    usage: Usage
    finish_reason: str
    seed: int
    request_id: str
    audio_s: float


async def write_speech(speech: Speech, spoken: Spoken, client: Client) -> None:
    """Send what is heard until its end.

    A failure before the first byte is raised, and becomes an error response.
    """
    answer = _ANSWERS[speech.manner](speech, client)
    with Encoding(speech.format, speech.sound, streamed=speech.manner != "whole") as encoding:
        is_last = False
        try:
            while not is_last:
                heard, is_last = await spoken.take()
                data = b"".join([await _encode(speech, encoding, items) for items in heard])
                if is_last:
                    data += await encoding.finish()
                    await answer.end(data, spoken.record, encoding.seconds)
                elif data:
                    await answer.send(data)
        except Exception as error:  # whatever it is: a client that hears already has to be told
            if not answer.is_started:
                raise
            status, problem = told(error, f"{speech.model}: a stream that had begun")
            if status < 500:
                log.warning("%s: a stream is cut: %s", speech.model, problem.message)
            await answer.fail(problem)


async def _encode(speech: Speech, encoding: Encoding, items: Items) -> bytes:
    if items.output != speech.output:
        return b""
    what = f"{speech.model}: its output {speech.output!r}"
    data = []
    for item in items.items:
        if not isinstance(item, np.ndarray):
            raise ComponentError(f"{what} is a {type(item).__name__}, not sound")
        sound: NDArray[Any] = item
        try:
            data.append(await encoding.feed(sound))
        except ValueError as error:
            raise ComponentError(f"{what}: {error}") from error
    return b"".join(data)


class _Answer(ABC):
    """One way to send sound to one client."""

    def __init__(self, speech: Speech, client: Client) -> None:
        self._client = client
        self._headers = {"content-type": speech.content_type, "x-seed": str(speech.request.seed)}
        self._is_started = False

    @property
    def is_started(self) -> bool:
        """Whether it is too late for a status of its own."""
        return self._is_started

    @abstractmethod
    async def send(self, data: bytes) -> None: ...

    @abstractmethod
    async def end(self, data: bytes, record: Record, seconds: float) -> None: ...

    @abstractmethod
    async def fail(self, problem: Problem) -> None: ...


class _Stream(_Answer):
    """Bytes of the file as they come."""

    async def send(self, data: bytes, *, more: bool = True) -> None:
        if not self._is_started:
            self._is_started = True
            await self._client.start(200, self._headers)
        await self._client.send(data, more=more)

    async def end(self, data: bytes, record: Record, seconds: float) -> None:
        await self.send(data, more=False)

    async def fail(self, problem: Problem) -> None:
        """Without a last piece the connection is closed: the client sees that something is missing."""


class _Whole(_Stream):
    """One file. Its header is exact and those of the response say how it went."""

    async def end(self, data: bytes, record: Record, seconds: float) -> None:
        self._headers |= {
            "content-length": str(len(data)),
            "x-finish-reason": record.finish_reason or "",
            "x-usage-input-tokens": str(record.usage.get("input_tokens", 0)),
            "x-usage-output-tokens": str(record.usage.get("output_tokens", 0)),
            "x-audio-s": f"{seconds:.6f}",
        }
        await self.send(data, more=False)


class _Events(_Answer):
    """OpenAI's events."""

    def __init__(self, speech: Speech, client: Client) -> None:
        super().__init__(speech, client)
        # the content type is that of events now, and pcm cannot be read without knowing its rate
        headers = self._headers | {"x-audio-content-type": speech.content_type}
        self._events = EventStream(client, headers)
        self._seed = speech.request.seed

    @property
    def is_started(self) -> bool:
        return self._events.is_started

    async def send(self, data: bytes) -> None:
        await self._events.send(event(Delta(data)))

    async def end(self, data: bytes, record: Record, seconds: float) -> None:
        read, wrote = (record.usage.get(name, 0) for name in ("input_tokens", "output_tokens"))
        end = End(
            usage=Usage(read, wrote, read + wrote),
            finish_reason=record.finish_reason or "",
            seed=self._seed,
            request_id=record.id,
            audio_s=round(seconds, 6),
        )
        await self._events.send(*([event(Delta(data))] if data else []), event(end), more=False)

    async def fail(self, problem: Problem) -> None:
        await self._events.fail(problem)


_ANSWERS: dict[str, type[_Answer]] = {"whole": _Whole, "stream": _Stream, "events": _Events}
