"""Every request that lives: what happens to it goes through the table, and is done here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from math import inf

from walkserve import messages as m
from walkserve.conductor.admission import fit, longest_branches, pages_needed, whole
from walkserve.conductor.blame import BLAMED, Blamed
from walkserve.conductor.client_streams import ClientStreams, Written
from walkserve.conductor.handles import Handles
from walkserve.conductor.idling import LOOK_AFTER, idle_s, silent
from walkserve.conductor.life import Life, Walked
from walkserve.conductor.life_table import TABLE, Act, Event, Phase
from walkserve.conductor.served import Served
from walkserve.conductor.stalls import Stalls
from walkserve.conductor.trace import Trace
from walkserve.conductor.walks import Walks
from walkserve.journal.recorder import Journals
from walkserve.logs import about
from walkserve_sdk import Request
from walkserve_sdk.errors import DeadlineExceeded

log = logging.getLogger(__name__)

NOBODY = ""
"""The client of warm-up requests: what is meant for it is heard here and goes nowhere."""
WORKER_LOST = "worker_lost"
End = m.RequestEnded | m.RequestFailed


class Lives:
    """Requests from their Submit to when the last worker has let go of them.

    Args:
        say: Sends a message to an address.
        on_warmed: Told the end of a warm-up request.
        journals: Where each request's journal is written, if it is.
    """

    def __init__(
        self,
        say: Callable[[str, m.Message], None],
        on_warmed: Callable[[Served, End], None],
        journals: Journals | None = None,
    ) -> None:
        self.due: list[tuple[int, float]] = []
        """Requests with a deadline that were accepted, and in how many seconds that is; whoever has a clock
        takes them from here."""
        self.touched: set[int] = set()
        """Of requests whose client writes streams, those that something was heard of; for who has a clock."""
        self._say = say
        self._on_warmed = on_warmed
        self._journals = journals
        self._handles = Handles(say)
        self._clients = ClientStreams(say)
        self._walks = Walks(say, self._clients, self._handles)
        self._stalls = Stalls(say, self.fail, self._rests)
        self._numbers = 0
        self._lives: dict[int, Life] = {}
        self._by_tag: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._lives)

    def __iter__(self) -> Iterator[Life]:
        return iter(list(self._lives.values()))

    def __contains__(self, number: int) -> bool:
        return number in self._lives

    # --- what happens -----------------------------------------------------------------------------

    def accept(self, served: Served, message: m.Submit, request: Request) -> None:
        """A request begins: it is opened on every worker of its model, and prepared."""
        number, self._numbers = self._numbers, self._numbers + 1
        trace = Trace(served.addresses) if served.profiles and message.client != NOBODY else None
        life = Life(
            number=number,
            served=served,
            client=message.client,
            tag=message.tag,
            request=request,
            holders=set(served.addresses),
            trace=trace,
            label=message.label,
            timeout_s=message.timeout_s,
        )
        if self._journals is not None and message.client != NOBODY:
            life.journal = self._journals.begin(number, message, request, served.pools)
        self._lives[number] = life
        self._by_tag[(message.client, message.tag)] = number
        if message.timeout_s is not None:
            self.due.append((number, message.timeout_s - message.passed_s))
        opened = m.OpenRequest(
            number,
            message.client,
            message.tag,
            message.options,
            request.seed,
            request.outputs,
            message.label,
        )
        for address in served.addresses:
            self._say(address, opened)
        self._clients.begin(life, message.writes)
        with self._blamed_on(life):
            if not self._walks.start_preparing(life):
                self._prepared(life)

    def walked(self, message: Walked) -> None:
        """A worker says what came of a Walk or a fork."""
        life = self._lives.get(message.number)
        if life is None:
            return
        if isinstance(message, m.WalkBroke) and not message.track:  # no Walk in particular: all of it
            self._happen(life, Event.FAILED, fault=message.fault)
        else:
            self._happen(life, Event.WALKED, walked=message)
            self._went_on(life)

    def written(self, message: Written) -> None:
        """A client writes to a stream of its request, or ends one."""
        life = self._lives.get(self._by_tag.get((message.client, message.tag), -1))
        if life is not None:
            self._happen(life, Event.WRITTEN, written=message)
            self._went_on(life)

    def taken(self, message: m.StreamTaken) -> None:
        """A worker says what was read of a stream that a client writes."""
        life = self._lives.get(message.number)
        if life is not None:
            self._happen(life, Event.TAKEN, taken=message)
            self._touch(life)

    def wait_on_streams(self, message: m.Blocked | m.Stuck) -> None:
        """A worker says what waits at the streams of a request, and whether anything else is left to do."""
        life = self._lives.get(message.number)
        if life is not None:
            self._stalls.hear(life, message)

    def cancel(self, client: str, tag: int) -> None:
        """Its client has left."""
        life = self._lives.get(self._by_tag.get((client, tag), -1))
        if life is not None:
            self._happen(life, Event.CANCELLED)

    def expire(self, number: int) -> None:
        """Its time is over."""
        life = self._lives.get(number)
        if life is not None:
            late = DeadlineExceeded(f"the request did not end within {life.timeout_s:g} s")
            self._happen(life, Event.EXPIRED, fault=m.Fault.of(late))

    def may_be_silent_s(self, number: int) -> float | None:
        """For how long nothing may be heard of it until ``was_silent`` is to be said; None where it may be so
        for ever."""
        life = self._lives.get(number)
        if life is None or life.phase is not Phase.RUNNING or idle_s(life) == inf:
            return None
        return idle_s(life) * (1 if life.rests else LOOK_AFTER)

    def was_silent(self, number: int) -> None:
        """Nothing was heard of it for so long: look whether all of it waits for its client, or fail it."""
        life = self._lives.get(number)
        if life is not None and life.rests:
            self._happen(life, Event.EXPIRED, fault=silent(life))
        elif life is not None:
            self._stalls.look_for_rest(life)

    def free_dropped(self) -> None:
        """Free what no track can name any more."""
        self._handles.free_dropped(self._lives)

    def fail(self, number: int, fault: m.Fault) -> None:
        """Something of it cannot be done."""
        life = self._lives.get(number)
        if life is not None:
            self._happen(life, Event.FAILED, fault=fault)

    def let_go(self, number: int, address: str) -> None:
        """A worker has nothing of it any more."""
        life = self._lives.get(number)
        if life is not None and address in life.holders:
            life.holders.discard(address)
            self._happen(life, Event.LET_GO)
            self._stalls.look(life)

    def lose(self, address: str) -> None:
        """A worker is gone: what it held fails, and waits for it no more."""
        for life in self:
            if address in life.holders:
                life.holders.discard(address)
                why = f"{life.served.name} lost a worker; try again"
                self._happen(life, Event.LOST, fault=m.Fault(why, 503, "unavailable", WORKER_LOST))

    # --- what follows -----------------------------------------------------------------------------

    def _went_on(self, life: Life) -> None:
        """It was given something to do, or its client has written."""
        self._stalls.went_on(life)
        self._touch(life)

    def _rests(self, life: Life) -> None:
        """All of it waits for its client; the time that it may be silent begins now."""
        life.rests = True
        self._touch(life)

    def _touch(self, life: Life) -> None:
        if life.client_ends and life.open_ends:
            self.touched.add(life.number)

    def _happen(
        self,
        life: Life,
        event: Event,
        *,
        fault: m.Fault | None = None,
        walked: Walked | None = None,
        written: Written | None = None,
        taken: m.StreamTaken | None = None,
    ) -> None:
        """Look it up, and do it. A pair that is not in the table fails this request and no other."""
        step = TABLE.get((life.phase, event))
        if step is None:
            log.error(
                "%s happened to request %d while it was %s, which cannot be",
                event.name,
                life.number,
                life.phase.name,
                extra=about(life.label),
            )
            if life.phase is not Phase.GONE:
                self._happen(life, Event.FAILED, fault=_ASTRAY)
            return
        life.phase, acts = step
        for act in acts:
            match act:
                case Act.RESUME:
                    assert walked is not None
                    self._resume(life, walked)
                case Act.LINE_UP:
                    life.served.queue.append(life)
                case Act.LEAVE_QUEUE:
                    life.served.queue.remove(life)
                case Act.RESERVE:
                    self._reserve(life)
                case Act.START:
                    self._start(life)
                case Act.PASS_ON:
                    assert written is not None
                    with self._blamed_on(life):
                        self._clients.write(life, written)
                case Act.TELL_TAKEN:
                    assert taken is not None
                    with self._blamed_on(life):
                        self._clients.took(life, taken)
                case Act.TELL_END:
                    self._tell_end(life)
                case Act.TELL_FAULT:
                    assert fault is not None
                    self._tell(life, "failed", m.RequestFailed(life.tag, fault))
                case Act.CLOSE:
                    self._close(life)
                case Act.GIVE_BACK:
                    self._give_back(life)
                case Act.ADMIT:
                    self.admit(life.served)
        if life.phase is Phase.CLOSING and not life.holders:
            self._happen(life, Event.RELEASED)

    def _blamed_on(self, life: Life) -> Blamed:
        return Blamed(
            f"the plan of {life.served.name}",
            lambda fault: self._happen(life, Event.FAILED, fault=fault),
            life.label,
        )

    def _resume(self, life: Life, message: Walked) -> None:
        if life.trace is not None and not isinstance(message, m.BranchForked):
            life.trace.walk_ended(message)
        with self._blamed_on(life):
            if life.phase is Phase.PREPARING:
                self._walks.hear_prepared(life, message)
                self._prepared(life)
            else:
                self._walks.resume(life, message)
                self._finish_if_done(life)

    def _prepared(self, life: Life) -> None:
        """Sizes are known: refuse what can never fit, let the others wait for their turn."""
        served = life.served
        request, budget = fit(served.model, life.request, life.prepared, served.pools, served.fanned)
        is_cut, life.request = request is not life.request, request
        life.pages = pages_needed(budget, served.pools, served.fanned)
        life.most = longest_branches(budget)
        life.usage["input_tokens"] = sum(start for start, _ in whole(budget).values())
        if life.journal is not None:
            option = served.model.length_option
            cut = {option: getattr(request.options, option)} if is_cut else {}
            life.journal.sized(budget, life.pages, cut)
        life.mark("prepared")
        self._close_where_done(life)
        if is_cut:
            self._send_options(life)
        self._happen(life, Event.PREPARED)

    def _close_where_done(self, life: Life) -> None:
        """It is prepared: a worker that no track calls, and that lends nothing, has nothing more of it."""
        if any(m.references(value) for value in life.prepared.values.values()):
            return
        for worker in life.served.workers.values():
            if worker.name not in life.served.track_workers and worker.address in life.holders:
                self._say(worker.address, m.CloseRequest(life.number))

    def _send_options(self, life: Life) -> None:
        """Its length was cut: workers that its tracks call have to know, before the first Walk starts."""
        for worker in life.served.workers.values():
            if worker.name in life.served.track_workers and worker.address in life.holders:
                self._say(worker.address, m.SetOptions(life.number, life.request.options))

    def admit(self, served: Served) -> None:
        """Give the oldest that wait their caches, all of a request's or none."""
        while served.queue:
            life = served.queue[0]
            if not served.has_room_for(life.pages):
                return
            self._happen(life, Event.ADMITTED)

    def _reserve(self, life: Life) -> None:
        for part, pages in life.pages.items():
            life.served.reserved[part] = life.served.reserved.get(part, 0) + pages
        life.is_reserved = True
        life.mark("admitted")
        if life.journal is not None:
            life.journal.admitted()
        self._say(life.client, m.Admitted(life.tag, life.usage["input_tokens"]))

    def _start(self, life: Life) -> None:
        with self._blamed_on(life):
            self._walks.start_tracks(life)
            self._finish_if_done(life)
        self._touch(life)

    def _finish_if_done(self, life: Life) -> None:
        if life.is_finished:
            self._happen(life, Event.FINISHED)

    # --- a request ends ---------------------------------------------------------------------------

    def _tell_end(self, life: Life) -> None:
        ended = m.RequestEnded(
            life.tag, life.finish_reason, life.request.seed, life.emitted, life.usage, life.counts
        )
        self._tell(life, "ended", ended)

    def _tell(self, life: Life, what: str, end: End) -> None:
        """A request's one end, said to who asked for it."""
        life.mark(what)
        if life.journal is not None:
            life.journal.told(end)
            life.journal = None
        if life.client == NOBODY:
            self._on_warmed(life.served, end)
        else:
            self._say(life.client, end)

    def _close(self, life: Life) -> None:
        if life.journal is not None:  # nobody was told an end
            life.journal.cancelled()
            life.journal = None
        for name, track in life.tracks.items():
            try:
                track.run.close()
            except BLAMED:  # a plan that raises while it is cancelled keeps nothing
                log.exception("the track %s raised when it was closed", name, extra=about(life.label))
        if life.trace is not None:
            self._say(life.client, life.trace.told(life.tag))
        for address in life.holders:
            self._say(address, m.CloseRequest(life.number))

    def _give_back(self, life: Life) -> None:
        if life.is_reserved:
            for part, pages in life.pages.items():
                life.served.reserved[part] -= pages
        del self._lives[life.number]
        asked = (life.client, life.tag)
        if self._by_tag.get(asked) == life.number:  # else its client has used the tag again
            del self._by_tag[asked]


_ASTRAY = m.Fault("something happened to this request that cannot happen; the server's log has it")
