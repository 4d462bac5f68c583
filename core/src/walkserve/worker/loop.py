"""A worker's loop: hear, finish what is done, say what follows, choose, submit. One batch deep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns

from walkserve.engine.broken import raise_if_broken
from walkserve.engine.rows import Engine, Pending
from walkserve.messages import Message
from walkserve.transport.base import Mailbox, Unsendable
from walkserve.worker.scheduler import Work
from walkserve.worker.state import WorkerState

IDLE_S = 1.0
"""How often the loop comes round when nothing happens."""


class WorkerLoop:
    """Joins a worker's state, its engine and its mailbox.

    Args:
        beat: Called whenever the loop comes round: whoever hears nothing of it may take it for stuck.
    """

    def __init__(
        self, state: WorkerState, engine: Engine, mailbox: Mailbox, beat: Callable[[], None] = lambda: None
    ) -> None:
        self.state = state
        self.engine = engine
        self.mailbox = mailbox
        self.beat = beat
        self.submitted: deque[tuple[Work, Pending]] = deque()

    def run(self) -> None:
        """Until told to stop.

        Raises:
            DeviceBroke: The device is broken; nothing more can be run.
            PoolCorrupt: The cache cannot be trusted any more, as it turned out when nothing was to be done.
        """
        is_checked = True  # nothing has happened since
        while not self.state.is_stopping:
            self.beat()
            busy = self.state.scheduler.waiting or self.submitted or self.state.outbox
            heard = self.mailbox.receive(0 if busy else IDLE_S)
            if busy or heard:
                is_checked = False
            elif not is_checked:
                self.state.check_when_idle()
                is_checked = True
            self.turn(heard)

    def turn(self, heard: list[Message]) -> None:
        """One round."""
        for message in heard:
            self.state.hear(message)  # type: ignore[arg-type]
        while self.submitted and self.submitted[0][1].is_ready():
            self._finish()
        self.flush()
        if self.state.gone:
            self._forget()
        work = self.state.choose()
        if work is not None:
            self._submit(work)
        if len(self.submitted) > 1 or (self.submitted and work is None):
            self._finish()

    def flush(self) -> None:
        """Say what has gathered: one frame per receiver."""
        if self.state.outbox:
            said = dict(self.state.outbox)
            self.state.outbox.clear()
            for address, messages in said.items():
                try:
                    self.mailbox.send(address, messages)
                except Unsendable as error:  # the others of the frame are on their way
                    self.state.unsendable(error)

    def _forget(self) -> None:
        """Let go of what led to peers that are no more."""
        while self.state.gone:
            self.mailbox.forget(self.state.gone.pop())

    def _submit(self, work: Work) -> None:
        rows = [self.state.row(call, piece) for call, piece in zip(work.calls, work.pieces, strict=True)]
        work.began_ns = monotonic_ns()
        try:
            pending = self.engine.submit(work.key, rows)
        except BaseException as error:  # a component may raise anything, also SystemExit
            self._one_by_one(work, error)
        else:
            if pending.is_ready():
                work.ended_ns = monotonic_ns()
            self.submitted.append((work, pending))

    def _finish(self) -> None:
        work, pending = self.submitted.popleft()
        try:
            results = pending.finish()
        except BaseException as error:  # a component may raise anything, also SystemExit
            self._one_by_one(work, error)
        else:
            work.ended_ns = work.ended_ns or monotonic_ns()
            self.state.finish(work, results)

    def _one_by_one(self, work: Work, error: BaseException) -> None:
        """A batch broke: nothing of it was committed, so each row is run alone, and only the guilty fail."""
        raise_if_broken(error)
        self.state.tally.broke(work.key)
        for call, piece in zip(work.calls, work.pieces, strict=True):
            self.beat()
            alone = Work(work.key, [call], [piece], began_ns=monotonic_ns())
            try:
                if len(work.calls) == 1:
                    raise error
                results = self.engine.submit(work.key, [self.state.row(call, piece)]).finish()
            except BaseException as own:
                self.state.broke(call, own)
            else:
                alone.ended_ns = monotonic_ns()
                self.state.finish(alone, results)
