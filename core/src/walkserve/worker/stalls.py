"""Whether all that a worker runs of a request waits for streams: looked at where the conductor has asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from walkserve import messages as m
from walkserve.worker.live import Live
from walkserve_sdk.stalls import StreamWait


class Watched:
    """Requests that are watched, each until this round is answered. There are none while no stream is full.

    Args:
        address: This worker's.
        queues: Whether a call of a request waits for a batch, or for room in a cache.
        tell: Says it to the conductor.
    """

    def __init__(
        self, address: str, queues: Callable[[Live], bool], tell: Callable[[m.Message], None]
    ) -> None:
        self._address = address
        self._queues = queues
        self._tell = tell
        self.rounds: dict[int, tuple[Live, int]] = {}
        """Number -> the round that is not answered yet."""

    def watch(self, live: Live, message: m.Watch) -> None:
        """Answer this round as soon as there is an answer."""
        self.rounds[message.number] = (live, message.round)

    def answer(self) -> None:
        """Something has happened in this worker: answer for those that are stuck now."""
        for number, (live, round) in list(self.rounds.items()):
            if live.is_closed:
                del self.rounds[number]
            elif self._is_stuck(live):
                del self.rounds[number]
                self._tell(self._stuck(live, round))

    def _is_stuck(self, live: Live) -> bool:
        """Nothing of it is in a batch, waits for one or for room, or has its turn on a branch."""
        return (
            live.in_flight == 0
            and not any(branch.is_busy for branch in live.branches.values())
            and not self._queues(live)
        )

    def _stuck(self, live: Live, round: int) -> m.Stuck:
        return m.Stuck(
            number=live.opened.number,
            round=round,
            address=self._address,
            wrote={
                stream: (end.written, end.taken)
                for stream, end in live.write_ends.items()
                if not end.discarded
            },
            read={stream: (end.arrived, end.handed) for stream, end in live.read_ends.items()},
            waits=tuple(_waits(live)),
        )


def _waits(live: Live) -> Iterator[StreamWait]:
    for stream, calls in live.parked.items():
        for call in calls:
            if not (call.run.is_closed or call.frame.is_dropped):
                yield StreamWait(call.run.track, stream, for_room=stream not in call.op.reads)
