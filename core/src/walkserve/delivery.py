"""What one request's client has received, and whether that is all.

Outputs come straight from workers and the end comes from the conductor, on different sockets; so the end
carries counts, and is held back here until everything it counts has arrived.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from walkserve.messages import Admitted, Emitted, Fault, RequestEnded, RequestFailed, Value


@dataclass(frozen=True, slots=True)
class Chunk:
    """Items of one output, in order. Tensors are still where the worker put them; free what you have read."""

    output: str
    items: list[Value]


@dataclass(frozen=True, slots=True)
class Done:
    """Everything has arrived."""

    ended: RequestEnded


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing more comes."""

    fault: Fault


Event = Chunk | Done | Failed


class Delivery:
    """The events of one request, made of the messages about it."""

    def __init__(self) -> None:
        self._received: dict[str, int] = defaultdict(int)
        self._ended: RequestEnded | None = None
        self.is_over = False

    def hear(self, message: Admitted | Emitted | RequestEnded | RequestFailed) -> list[Event]:
        """What follows for the client."""
        if self.is_over:
            return []
        events: list[Event] = []
        match message:
            case Emitted():
                self._received[message.output] += len(message.items)
                events.append(Chunk(message.output, message.items))
            case RequestEnded():
                self._ended = message
            case RequestFailed():
                self.is_over = True
                return [Failed(message.fault)]
            case Admitted():
                pass
        ended = self._ended
        if ended is not None and all(self._received[name] >= count for name, count in ended.emitted.items()):
            self.is_over = True
            events.append(Done(ended))
        return events
