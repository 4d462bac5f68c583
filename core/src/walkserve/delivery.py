"""What one request's client has received, and whether that is all.

Outputs come straight from workers and the end comes from the conductor, on different sockets; so the end
carries counts, and is held back here until everything it counts has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from walkserve.messages import Admitted, Fault, RequestEnded, RequestFailed


@dataclass(frozen=True, slots=True)
class Done:
    """Everything has arrived."""

    ended: RequestEnded


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing more comes."""

    fault: Fault


class Delivery:
    """Counts what arrives for one request, and knows its end."""

    __slots__ = ("_ended", "_received", "is_over")

    def __init__(self) -> None:
        self._received: dict[str, int] = {}
        self._ended: RequestEnded | None = None
        self.is_over = False

    def received(self, output: str) -> Done | None:
        """An item of an output has come; ``Done`` if it was the last that the end waited for."""
        self._received[output] = self._received.get(output, 0) + 1
        return self._done() if self._ended is not None else None

    def hear(self, message: Admitted | RequestEnded | RequestFailed) -> Done | Failed | None:
        """What follows for the client."""
        match message:
            case RequestEnded() if not self.is_over:
                self._ended = message
                return self._done()
            case RequestFailed() if not self.is_over:
                self.is_over = True
                return Failed(message.fault)
        return None

    def _done(self) -> Done | None:
        ended = self._ended
        if ended is None or self.is_over:
            return None
        if any(self._received.get(output, 0) < count for output, count in ended.emitted.items()):
            return None
        self.is_over = True
        return Done(ended)
