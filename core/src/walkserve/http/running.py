"""One request of a route that a plugin adds, as its handler sees it: what it gives, and the whole."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from walkserve.delivery import Done, Failed
from walkserve.http.calls import Call, CallEvent, Items
from walkserve.http.problems import Faulted
from walkserve.messages import RequestEnded
from walkserve_sdk import Model, Request, Stream
from walkserve_sdk.errors import PluginError, did_you_mean
from walkserve_sdk.results import OutputEvent, Result, as_data, join_output


class Running:
    """As ``walkserve_sdk.serving.Running`` has it."""

    def __init__(self, model: Model, request: Request, call: Call) -> None:
        self.request = request
        self.ended: RequestEnded | None = None
        self._outputs = {name: model.spec.outputs[name] for name in request.outputs}
        self._call = call
        self._waiting: deque[OutputEvent] = deque()

    @property
    def request_id(self) -> str:
        return self._call.record.id

    @property
    def is_over(self) -> bool:
        return self._call.is_over

    async def send(self, stream: str | Stream, value: Any) -> None:
        await self._call.send(_name(stream), value)

    def end(self, stream: str | Stream) -> None:
        self._call.end(_name(stream))

    def cancel(self) -> None:
        self._call.cancel()

    async def result(self) -> Result:
        pieces: dict[str, list[OutputEvent]] = {name: [] for name in self._outputs}
        async for event in self:
            pieces[event.output].append(event)
        ended = self.ended
        assert ended is not None
        joined = {name: join_output(output, pieces[name]) for name, output in self._outputs.items()}
        return Result(joined, ended.finish_reason, self.request.seed, ended.usage, ended.counts)

    def __aiter__(self) -> AsyncIterator[OutputEvent]:
        return self

    async def __anext__(self) -> OutputEvent:
        while not self._waiting:
            if self.ended is not None:
                raise StopAsyncIteration
            for event in await self._call.take():
                self._waiting.extend(self._hear(event))
        return self._waiting.popleft()

    def _hear(self, event: CallEvent) -> Iterator[OutputEvent]:
        match event:
            case Failed():
                raise Faulted(event.fault)
            case Done():
                self.ended = event.ended
            case Items():
                output = self._outputs.get(event.output)
                if output is not None:  # else nobody asked for it
                    for item in event.items:
                        yield OutputEvent(event.output, as_data(output, item), event.row)


def written(model: Model, streams: Iterable[str | Stream]) -> list[Stream]:
    """Those streams of a model, by their names. Raises PluginError: a handler means one that there is not."""
    known = {name: stream for name, stream in model.spec.streams.items() if stream.by == "client"}
    names = [_name(stream) for stream in streams]
    for name in names:
        if name not in known:
            cure = did_you_mean(name, known) or "; it has no stream that a client writes"
            raise PluginError(f"{model.spec.name} takes no stream {name!r} from a handler{cure}")
    return [known[name] for name in names]


def _name(stream: str | Stream) -> str:
    return stream if isinstance(stream, str) else stream.name
