"""The calls that speak the pieces of one text, one after another, as if they were one."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from walkserve.delivery import Done, Failed
from walkserve.http.calls import Call, Items
from walkserve.http.problems import Faulted
from walkserve.http.requests import Record
from walkserve.http.speech_reading import Speech
from walkserve_sdk import Request


class Spoken:
    """What is heard of a text, in order.

    A piece is submitted when the one before it has begun to sound: it is written while that one still
    sounds, and there is never more than one ahead. Leaving a ``with`` block cancels what is open.
    """

    def __init__(self, speech: Speech, submit: Callable[[Request], Call]) -> None:
        self._ask = speech.ask
        self._submit = submit
        self._later = speech.later
        self._following = next(self._later, None)
        self._now = submit(speech.request)
        self._next: Call | None = None
        self._failed: Failed | None = None
        if self._following is not None:
            self.record.more_follow()

    @property
    def record(self) -> Record:
        """Of all the pieces together."""
        return self._now.record

    async def take(self) -> tuple[list[Items], bool]:
        """Wait for something; returns what has come since, and whether that was the last.

        Raises:
            Faulted: A piece has failed, and with it the whole; all that came before has been taken.
        """
        heard: list[Items] = []
        is_last = False
        for event in [] if self._failed is not None else await self._now.take():
            match event:
                case Items():
                    heard.append(event)
                    self._look_ahead()
                case Failed():
                    self._failed = event
                case Done():
                    self._look_ahead()  # in case that it had nothing to say
                    is_last = self._next is None
                    self._now, self._next = self._next or self._now, None
        if self._failed is not None and not heard:
            fault = self._failed.fault
            raise Faulted(replace(fault, param="input") if fault.param == "text" else fault)
        return heard, is_last

    def _look_ahead(self) -> None:
        if self._next is None and self._following is not None:
            self._next = self._submit(self._ask(self._following))
            self._following = next(self._later, None)
            if self._following is None:
                self.record.all_started()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for call in (self._now, self._next):
            if call is not None:
                call.cancel()
        if self._following is not None:
            self._following = None
            self.record.cancelled()
