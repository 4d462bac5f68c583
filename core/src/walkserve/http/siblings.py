"""Several answers to one request: as many calls that run at once, one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from walkserve.delivery import Done, Failed
from walkserve.http.calls import Call, Items
from walkserve.http.problems import Faulted
from walkserve.http.requests import Record
from walkserve.messages import Fault, RequestEnded
from walkserve_sdk import Request
from walkserve_sdk.requests import SEED_LIMIT


def sibling_seeds(seed: int, n: int) -> list[int]:
    """Answer i has the seed plus i, so that it can be asked for alone."""
    return [(seed + index) % SEED_LIMIT for index in range(n)]


class Siblings:
    """The calls of one request, from which what they give is taken together.

    Leaving a ``with`` block cancels what still runs. Where one fails, so does the whole.

    Args:
        fields: What a family calls something -> what its client does, for failures.
    """

    def __init__(
        self, requests: Sequence[Request], submit: Callable[[Request], Call], fields: Mapping[str, str]
    ) -> None:
        self.ended: dict[int, RequestEnded] = {}
        self._fields = fields
        self._open = ExitStack()
        self._failed: Fault | None = None
        self._taking: dict[asyncio.Task[list[Items | Done | Failed]], int] = {}
        with self._open as opened:
            self._calls = [opened.enter_context(submit(request)) for request in requests]
            self._open = opened.pop_all()

    @property
    def record(self) -> Record:
        """Of the request."""
        return self._calls[0].record

    async def take(self) -> list[tuple[int, Items | Done]]:
        """Wait for something; what has come since, each with the number of its answer. Nothing is the end.

        Raises:
            Faulted: One has failed; all that came before has been taken.
        """
        if self._failed is not None:
            raise self._fault(self._failed)
        for index, call in enumerate(self._calls):
            if index not in self.ended and index not in self._taking.values():
                self._taking[asyncio.ensure_future(call.take())] = index
        if not self._taking:
            return []
        ready, _ = await asyncio.wait(self._taking, return_when=asyncio.FIRST_COMPLETED)
        came: list[tuple[int, Items | Done]] = []
        for task in sorted(ready, key=self._taking.__getitem__):
            index = self._taking.pop(task)
            for event in task.result():
                if isinstance(event, Failed):
                    self._failed = event.fault
                    continue
                if isinstance(event, Done):
                    self.ended[index] = event.ended
                came.append((index, event))
        if self._failed is not None and not came:
            raise self._fault(self._failed)
        return came

    def _fault(self, fault: Fault) -> Faulted:
        return Faulted(replace(fault, param=self._fields.get(fault.param or "", fault.param)))

    def settle(self, index: int, finish_reason: str, output_tokens: int) -> RequestEnded:
        """An answer is complete, whatever its call might still give: that is not computed any more."""
        call = self._calls[index]
        self.ended[index] = ended = call.settle(finish_reason, output_tokens)
        for task in [task for task, taken in self._taking.items() if taken == index]:
            del self._taking[task]
            task.cancel()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._taking:
            task.cancel()
        self._open.close()
