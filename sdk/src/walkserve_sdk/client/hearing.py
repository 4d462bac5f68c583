"""What a server tells of a request, in Python: pieces with numpy arrays, the whole, and errors."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from walkserve_sdk.errors import WalkserveError, error_of
from walkserve_sdk.events import Done, Failed, Piece, Problem, Started, Stopped
from walkserve_sdk.pieces import read_piece
from walkserve_sdk.results import OutputEvent, Result, join_pieces


class _ProblemBody(Struct):
    error: Problem


class Heard:
    """What has been heard of one request."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.done: Done | None = None

    def hear(self, event: Started | Piece | Done | Failed | Stopped) -> OutputEvent | None:
        """A piece, for who reads it; the rest is kept.

        Raises:
            WalkserveError: The request has failed.
        """
        match event:
            case Started():
                self.started = event
            case Piece():
                return read_piece(event)
            case Done():
                self.done = event
            case Failed(error=problem):
                raise error_of(problem.message, problem.type, code=problem.code, param=problem.param)
            case Stopped():
                raise error_of("the request was cancelled", "cancelled", code="cancelled")
        return None

    def result(self, pieces: Iterable[OutputEvent]) -> Result:
        """The whole, once all pieces are there."""
        assert self.started is not None and self.done is not None
        by_output: dict[str, list[OutputEvent]] = {output: [] for output in self.started.outputs}
        for piece in pieces:
            by_output[piece.output].append(piece)
        joined = {
            output: join_pieces(
                info.kind,
                [piece.data for piece in by_output[output]],
                indexes=[piece.index for piece in by_output[output]],
                many=info.many,
                rate=info.rate or 0,
                channels=info.channels or 1,
            )
            for output, info in self.started.outputs.items()
        }
        done = self.done
        return Result(joined, done.finish_reason, self.started.seed, done.usage, done.counts)


def refused(status: int, body: bytes) -> WalkserveError:
    """The error of a response that is none of the server's events."""
    try:
        problem = msgspec.json.decode(body, type=_ProblemBody).error
    except msgspec.DecodeError:  # of a proxy, perhaps
        text = body[:200].decode(errors="replace")
        kind = "invalid_request_error" if status < 500 else "server_error"
        return error_of(f"the server answered with {status}: {text}", kind, status=status)
    return error_of(problem.message, problem.type, code=problem.code, param=problem.param, status=status)
