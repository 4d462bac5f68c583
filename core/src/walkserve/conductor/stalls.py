"""Whether a request can go on at all, or waits for ever on streams of its own.

Tracks and streams form no circle, and a reader whose writer has ended gets its end. So wherever a request
hangs, somebody waits for room in a full stream, and until a worker says ``Blocked``, nothing is done here.
From then on the conductor asks in rounds: ``Watch`` goes to all workers that hold the request, and each
answers ``Stuck`` at the first moment in which all that it runs of it is parked at a stream.

These moments differ, so all answers of a round do not yet say that all were stuck at once. What is parked
goes on only by a message, of the conductor or of a worker at the other end of a stream. It hangs if none is
under way:

* *of the conductor*: it gives orders only when it has heard of a Walk, and then the round is void and a new
  one is asked for. Mail between two arrives in order: who answers this round has heard every order before.
* *of a worker*: each answer counts, for the streams that end there, what was sent and what has arrived. If
  the answers of a round agree on every stream, nothing was under way, and nobody has gone on since.
  Suppose that some did, and look at the first, R. It went on by a message that it had not counted. Whoever
  sent it had, as nobody before R, not gone on since its own answer, so it had counted it: R's count is the
  lower, and they do not agree. (Mattern's vector counters for distributed termination.) Streams that nobody
  reads any more are not counted: nobody waits for them.

If they do not agree, something was under way, and the next round is asked for. A worker that is busy with
the request does not answer, so rounds cost nothing while it goes on.

A request of which something waits for a stream that its client writes, and has not ended, does not hang: its
client may go on. That *all* of it waits for its client is asked in the same way, once nothing was heard of
it for a while; what the client writes makes a round void as well. (Nothing of a client is ever under way
when a round agrees: the conductor has passed it on before it asked.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set

from walkserve import messages as m
from walkserve.conductor.life import Life
from walkserve.conductor.life_table import Phase
from walkserve.logs import about
from walkserve_sdk.models import ModelSpec
from walkserve_sdk.stalls import StreamWait, stalled

log = logging.getLogger(__name__)

STALLED = "stalled"


class Rounds:
    """One request that is watched: the round, and who has answered it.

    ``is_blocked``: a stream of it has been full, so it is asked again whenever a round is void.
    """

    __slots__ = ("answers", "is_asked", "is_blocked", "round")

    def __init__(self) -> None:
        self.round = 0
        self.is_asked = False
        self.is_blocked = False
        self.answers: dict[str, m.Stuck] = {}

    def begin(self) -> None:
        """All that hold the request are asked once more."""
        self.void()
        self.round += 1
        self.is_asked = True

    def void(self) -> None:
        """Something has gone on: whatever is answered to this round counts no more."""
        self.is_asked = False
        self.answers.clear()

    def hear(self, answer: m.Stuck) -> None:
        """An answer to a round that is void says nothing any more."""
        if self.is_asked and answer.round == self.round:
            self.answers[answer.address] = answer

    def is_answered_by(self, holders: Set[str]) -> bool:
        return holders <= self.answers.keys()

    @property
    def agrees(self) -> bool:
        """Whether all that was sent has arrived."""
        read = {stream: counts for one in self.answers.values() for stream, counts in one.read.items()}
        return all(
            read.get(stream, (0, 0)) == counts
            for one in self.answers.values()
            for stream, counts in one.wrote.items()
        )

    def waits(self, spec: ModelSpec) -> list[StreamWait]:
        """Who waits for what, in the order tracks are declared."""
        waits = [wait for one in self.answers.values() for wait in one.waits if wait.stream in spec.streams]
        return [wait for track in spec.tracks for wait in waits if wait.track == track]


class Stalls:
    """Asks the workers of requests that may hang.

    Args:
        say: (address, message).
        fail: Ends the request of this number.
        rests: Told of one of which all waits for its client.
    """

    def __init__(
        self,
        say: Callable[[str, m.Message], None],
        fail: Callable[[int, m.Fault], None],
        rests: Callable[[Life], None],
    ) -> None:
        self._say = say
        self._fail = fail
        self._rests = rests

    def hear(self, life: Life, message: m.Blocked | m.Stuck) -> None:
        """A writer has found its stream full, or a worker can do nothing more by itself."""
        match message:
            case m.Blocked() if life.phase is Phase.RUNNING:
                rounds = life.rounds = life.rounds or Rounds()
                if not rounds.is_blocked:
                    rounds.is_blocked = True
                    self.ask(life)
            case m.Stuck() if life.rounds is not None and message.address in life.holders:
                life.rounds.hear(message)
                self.look(life)

    def went_on(self, life: Life) -> None:
        """Its conductor or its client had something to say to it: what was answered before is void."""
        life.rests = False
        if life.rounds is not None:
            life.rounds.void()
            if life.rounds.is_blocked:
                self.ask(life)

    def look_for_rest(self, life: Life) -> None:
        """It may be that all of it waits for its client; it is, when it ``rests``."""
        rounds = life.rounds = life.rounds or Rounds()
        if not rounds.is_asked:
            self.ask(life)

    def ask(self, life: Life) -> None:
        """Begin a round; whatever was answered before is void."""
        rounds = life.rounds
        if rounds is not None and life.phase is Phase.RUNNING:
            rounds.begin()
            for address in life.holders:
                self._say(address, m.Watch(life.number, rounds.round))

    def look(self, life: Life) -> None:
        """Where all that hold it have answered, either it hangs, or the next round begins."""
        rounds, spec = life.rounds, life.served.model.spec
        if rounds is None or life.phase is not Phase.RUNNING or not rounds.is_answered_by(life.holders):
            return
        if not rounds.agrees:
            self.ask(life)
        elif not (waits := rounds.waits(spec)):
            return
        elif any(not wait.for_room and wait.stream in life.open_ends for wait in waits):
            self._rests(life)
        else:
            told = stalled(spec.streams, waits)
            log.error("%s: %s", life.served.name, told, extra=about(life.label))
            self._fail(life.number, m.Fault(told, code=STALLED))
