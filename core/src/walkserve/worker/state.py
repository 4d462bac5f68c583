"""What a worker knows, and what follows from each message it hears and each batch it finishes.

No socket, no clock, no torch: messages come in by ``hear``, batches leave by ``choose`` and come back by
``finish`` or ``broke``, and what is to be said gathers in ``outbox``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, assert_never

from walkserve import messages as m
from walkserve.cache.pages import PoolCorrupt
from walkserve.engine.broken import raise_if_broken
from walkserve.engine.rows import UNCHANGED, Row, RowResult
from walkserve.graph.plan import Plan
from walkserve.logs import about
from walkserve.transport.base import Unsendable
from walkserve.worker.blame import fault_of
from walkserve.worker.calibration import Calibration
from walkserve.worker.fan_run import FanRow, FanRun
from walkserve.worker.forks import Forks
from walkserve.worker.hand_over import HandOver
from walkserve.worker.lending import Carrier, Lending
from walkserve.worker.live import Branch, Live
from walkserve.worker.profile import RequestProfile
from walkserve.worker.room import Cache, Room
from walkserve.worker.scheduler import Key, Scheduler, Work
from walkserve.worker.stalls import Watched
from walkserve.worker.tally import Tally
from walkserve.worker.twins import Twins
from walkserve.worker.walk_run import Call, WalkRun
from walkserve_sdk import Model
from walkserve_sdk.errors import WalkserveError

log = logging.getLogger(__name__)

ForRequest = (
    m.SetOptions
    | m.StartWalk
    | m.ForkBranch
    | m.EndStream
    | m.DiscardStream
    | m.StreamItems
    | m.StreamTaken
    | m.Watch
)
"""Messages about a request that has to be open."""


class WorkerState:
    """One worker's requests.

    Args:
        address: Its own.
        model: The family it serves.
        plans: The model's graphs, lowered.
        ranks: Component -> name of the rank that holds it.
        carrier: Lends and takes tensors.
        read_options: Makes the family's Options of what a message carried.
        caches: Component -> its cache, for those that have one.
        calibration: Measures the token budgets of the scheduler's methods.
        profiles: Note of each request what it does, and tell its client when it is let go of.
        token_counts: Of methods that say how many tokens a call brings: asked with what it takes, by name.
        stack: Puts together what rows of a Fan gave.
    """

    def __init__(
        self,
        address: str,
        model: type[Model],
        plans: Mapping[str, Plan],
        ranks: Mapping[str, str],
        scheduler: Scheduler,
        carrier: Carrier,
        read_options: Callable[[Any], Any],
        caches: Mapping[str, Cache],
        *,
        calibration: Calibration | None = None,
        profiles: bool = False,
        token_counts: Mapping[Key, Callable[..., int]] = MappingProxyType({}),
        stack: Callable[[list[Any]], Any] = list,
    ) -> None:
        self.address = address
        self.rank = address.rpartition(".")[0]
        self.spec = model.spec
        self.plans = plans
        self.scheduler = scheduler
        self.lending = Lending(carrier, self._say)
        self.read_options = read_options
        self.caches = caches
        self.calibration = calibration
        self.profiles = profiles
        self.token_counts = token_counts
        self.stack = stack
        self.tally = Tally(scheduler.limits)
        self.outbox: dict[str, list[m.Message]] = defaultdict(list)
        self.conductor = "conductor"
        self.is_stopping = False
        self._watched = Watched(address, self._queues, lambda message: self._say(self.conductor, message))
        self.gone: list[str] = []
        """Addresses of peers that are no more, for whoever has the mailbox to forget."""
        self._lives: dict[int, Live] = {}
        self.room = Room(caches, self._lives, go_on=scheduler.put_back, forget=self.forget)
        self.forks = Forks(caches, self.room, self._branch)
        self.twins = Twins()
        self._early: dict[int, list[ForRequest]] = defaultdict(list)
        self._opened = -1  # numbers come in order
        self.streams = HandOver(
            address, self.spec, plans.values(), ranks, self.lending, self._say, self.offer
        )

    @property
    def open_requests(self) -> int:
        """Requests of which something is here."""
        return len(self._lives)

    # --- hearing ----------------------------------------------------------------------------------

    def hear(self, message: m.ToWorker | m.Unreadable) -> None:
        """One message. What it breaks is its request's, never the worker's."""
        match message:
            case m.OpenRequest():
                self._open(message)
            case m.CloseRequest():
                self._close(message.number)
            case m.PeersChanged():
                self._peers_changed(message.addresses)
            case m.StopWorker():
                self.is_stopping = True
            case m.FreeTensors():
                self.lending.free(message.keys)
            case m.Calibrate():
                self._calibrate()
            case m.Report():
                pools = {component: cache.pool for component, cache in self.room.caches.items()}
                told = self.tally.report(self.rank, self.address, self.room.moves, pools)
                self._say(message.client, told)
            case m.Unreadable():
                self._could_not_read(message)
            case _:
                self._hear_for_request(message)
        self._look_again()

    def _peers_changed(self, addresses: Mapping[str, str]) -> None:
        gone = set(self.streams.peers.values()) - set(addresses.values())
        self.streams.peers = addresses
        for address in sorted(gone):  # mapped, the memory of the dead stays
            self.lending.carrier.forget(address)
            self.gone.append(address)

    def _hear_for_request(self, message: ForRequest) -> None:
        live = self._lives.get(message.number)
        if live is not None and not live.is_closed:
            try:
                self._hear_for(live, message)
            except Exception as error:  # whatever it is, it is this request's
                self._broke(live, *_blamed(message), error, f"hearing {type(message).__name__}")
        elif message.number > self._opened:  # from a peer that heard of the request sooner
            self._early[message.number].append(message)
        elif isinstance(message, m.StreamItems):
            self.lending.give_back(message.items)

    def _hear_for(self, live: Live, message: ForRequest) -> None:
        match message:
            case m.SetOptions():
                live.options = self.read_options(message.options)
            case m.StartWalk():
                self._start(live, message)
            case m.ForkBranch():
                self._fork(live, message)
            case m.StreamItems():
                self.streams.items_came(live, message)
            case m.EndStream():
                self.streams.ended(live, message.stream, message.total)
            case m.DiscardStream():
                self.streams.discard(live, message.stream)
            case m.StreamTaken():
                live.has_sent_elsewhere |= message.has_sent
                self.streams.taken(live, message.stream, message.taken)
            case m.Watch():
                self._watched.watch(live, message)
            case _:
                assert_never(message)

    def _could_not_read(self, message: m.Unreadable) -> None:
        """It is missed by the request that it was about, whether that is open here or was to be opened."""
        live = self._lives.get(message.number)
        if message.number > self._opened or (live is not None and not live.is_closed):
            self._say(self.conductor, m.WalkBroke(message.number, "", 0, message.fault))

    def _open(self, message: m.OpenRequest) -> None:
        self._opened = message.number
        try:
            profile = RequestProfile() if self.profiles and message.client else None
            calibration = self.calibration if not message.client else None  # else it is no warm-up
            samples = calibration.samples if calibration is not None else None
            options = self.read_options(message.options)
            self._lives[message.number] = Live(message, options, profile, samples)
        except WalkserveError as error:
            self._say(
                self.conductor, m.WalkBroke(message.number, "", 0, fault_of(error, "opening the request"))
            )
        for number in [number for number in self._early if number <= message.number]:
            for early in self._early.pop(number):
                self.hear(early)

    def _close(self, number: int) -> None:
        live = self._lives.get(number)
        if live is None:
            self._say(self.conductor, m.RequestClosed(number, self.rank, self.address))
            return
        live.is_closed = True
        for run in live.runs.values():
            run.is_closed = True
            run.drop_rows()
        if live.in_flight == 0:
            self._release(live)

    def _release(self, live: Live) -> None:
        """Nothing of it runs any more: give everything back, and say so."""
        number = live.opened.number
        for branch in live.branches.values():
            branch.drop()
        self.lending.close(live)
        del self._lives[number]
        self.room.release(number)
        if live.profile is not None:
            self._say(live.opened.client, live.profile.told(live.opened.tag, self.rank, self.address))
        self._say(self.conductor, m.RequestClosed(number, self.rank, self.address))

    def _calibrate(self) -> None:
        """A warm-up has passed; nobody's request runs until the conductor has heard of this."""
        limits = self.scheduler.limits
        for key, budget in self.calibration.budgets().items() if self.calibration is not None else ():
            tokens = max(limits[key].tokens, budget.tokens[0])
            limits[key] = replace(limits[key], tokens=tokens, beside=budget)
        self._say(self.conductor, m.Calibrated(self.rank, self.address, self.budgets()))

    def budgets(self) -> tuple[m.TokenBudget, ...]:
        """Of each method with a cache, as others are told."""
        return tuple(
            m.TokenBudget(*key, limits.tokens, limits.beside.steps if limits.beside is not None else ())
            for key, limits in self.scheduler.limits.items()
            if key[0] in self.caches
        )

    def _start(self, live: Live, message: m.StartWalk) -> None:
        inputs = {name: self.lending.receive(value) for name, value in message.inputs.items()}
        plan = self.plans[message.graph]
        run = WalkRun(self, live, plan, message.track, message.walk, inputs, message.most)
        live.runs[(message.track, message.walk)] = run
        run.start()

    def _fork(self, live: Live, message: m.ForkBranch) -> None:
        if message.branch != message.to:
            if message.branch is None:
                forked = self._empty(message.component)
            else:
                forked = self._branch(live, (message.component, message.branch)).fork()
            old = live.branches.pop((message.component, message.to), None)
            if old is not None and old.is_busy:  # what still runs on it keeps its pages, until the end
                live.branches[(message.component, f"{message.to}, replaced {len(live.branches)}")] = old
            elif old is not None:
                old.drop()
            live.branches[(message.component, message.to)] = forked
            self.room.replaced(live, message.component)
        self._say(self.conductor, m.BranchForked(live.opened.number, message.track, message.walk))

    def _say(self, address: str, message: m.Message) -> None:
        self.outbox[address].append(message)

    # --- what runs need of a host -----------------------------------------------------------------

    def push(self, run: WalkRun, stream: str, value: Any) -> None:
        self.streams.write(run.live, stream, value)

    def emit(self, run: WalkRun, output: str, value: Any, index: int | None) -> None:
        live = run.live
        opened = live.opened
        if output not in opened.outputs or not opened.client:
            return  # not asked for, or asked for by nobody: a warm-up
        item = self.lending.send(value)  # the client frees it
        live.emitted[output] = live.emitted.get(output, 0) + 1
        # One message for all rows of a batch: a message for each costs both ends more than its item.
        said = self.outbox[opened.client]
        last = said[-1] if said else None
        of_rows = index is not None
        if type(last) is m.Emitted and last.output == output and (not last.indexes) is not of_rows:
            last.tags.append(opened.tag)
            last.items.append(item)
            if index is not None:
                last.indexes.append(index)
        else:
            said.append(m.Emitted(output, [opened.tag], [item], [] if index is None else [index]))

    def begin_fan(self, fan: FanRun) -> None:
        self.forks.begin(fan)

    def start_rows(self, fan: FanRun) -> list[FanRow]:
        return self.forks.start(fan)

    def end_row(self, row: FanRow) -> None:
        self.forks.end(row)

    def end_fan(self, fan: FanRun) -> None:
        self.forks.over(fan)

    def is_over(self, run: WalkRun, stream: str) -> bool:
        return self.streams.read_end(run.live, stream).is_done

    def stop_writer(self, run: WalkRun, stream: str, reason: str) -> None:
        raise WalkserveError(f"Stop(upstream=True) on stream {stream!r} is not run by this version")

    def _queues(self, live: Live) -> bool:
        """Whether a call of it waits for a batch, or for room in a cache."""
        return self.scheduler.holds(live) or self.room.holds(live)

    def _look_again(self) -> None:
        """Something has changed: who waits for room may have it, and who is watched may have come to rest."""
        if self.twins.due:
            self._deal()
        if self.room.waiting:
            self.room.retry()
        if self.forks.waiting:
            self._start_more_rows()
        if self.twins.due:
            self._look_again()
        elif self._watched.rounds:
            self._watched.answer()

    def _start_more_rows(self) -> None:
        for fan in self.forks.fans:
            run = fan.run
            try:
                if fan in run.fans:
                    run.more_rows(fan)
            except Exception as error:  # whatever it is, it is this request's
                self._broke(run.live, run.track, run.walk, error, fan.op.place)

    # --- calls ------------------------------------------------------------------------------------

    def offer(self, call: Call) -> None:
        """Its values are there: wait for streams, then for the branch, then for a batch."""
        if call.run.is_closed or call.frame.is_dropped:
            return
        try:
            self._offer(call)
        except Exception as error:  # whatever it is, it is this request's
            self._broke(call.run.live, call.run.track, call.run.walk, error, call.op.place)

    def _offer(self, call: Call) -> None:
        live, op = call.run.live, call.op
        if live.profile is not None:
            live.profile.offered(call)
        if op.has_streams and self.streams.holds_up(call):
            return
        if op.component in self.caches:
            call.tokens = _tokens(call, self.token_counts.get(op.key) if self.token_counts else None)
        row = call.frame.row
        if row is None:
            branch = call.branch = live.branches.get(op.at) or self._branch(live, op.at)
        else:
            branch = call.branch = row.branches[op.at]
            if op.keeps:
                row.check(call)
        if op.takes_turns:
            if branch.is_busy:
                branch.waiting.append(call)
                return
            branch.is_busy = True
        elif op.twins is not None and self.twins.joins(call):
            return
        if op.reads:
            call.helpings = self.streams.helpings(live, op)
        self.scheduler.add(call)
        if live.profile is not None:
            live.profile.queued(call)

    def forget(self, call: Call) -> None:
        """Of a turn that no longer counts; it will not be run."""
        profile = call.run.live.profile
        if profile is not None:
            for one in (call, *self.twins.waiting_for(call)):
                profile.forget(one)
        if not call.run.live.is_closed:
            self._let_go(call)

    def _branch(self, live: Live, at: tuple[str, str]) -> Branch:
        """Of a component, by name; one that was never written is empty."""
        branch = live.branches.get(at)
        if branch is None:
            branch = live.branches[at] = self._empty(at[0])
        return branch

    def _empty(self, component: str) -> Branch:
        cache = self.caches.get(component)
        return Branch(None if cache is None else cache.new_table())

    def _let_go(self, call: Call) -> None:
        """It is over, whatever became of it: what it was handed is gone, and its branch is free."""
        for stream in call.op.reads:
            self.streams.took(call.run.live, stream)
        branch = call.branch
        if branch is not None and call.op.takes_turns:
            branch.is_busy = False
            while branch.waiting and not branch.is_busy:
                self.offer(branch.waiting.popleft())

    # --- batches ----------------------------------------------------------------------------------

    def choose(self) -> Work | None:
        """The next batch; its rows are in flight until ``finish`` or ``broke``."""
        work = self.scheduler.choose()
        while work is not None and self.caches and not self.room.has_for(work):
            self.room.admit(work)
            if work.calls:
                break
            work = self.scheduler.choose()  # all of it waits for room
        if work is not None:
            for call in work.calls:
                call.run.live.in_flight += 1
            if self.forks.fans_open:
                self.forks.fly(work.calls)
        if self.twins.due:
            self._look_again()
        elif self._watched.rounds:
            self._watched.answer()
        return work

    def row(self, call: Call, piece: int) -> Row:
        """The call as an engine sees it."""
        op, run, values = call.op, call.run, call.values
        if op.reads:
            values = values | dict(zip(op.reads, call.helpings, strict=True))
        live, done, frame = run.live, call.done, call.frame
        row = Row(  # by place: names would take a third longer, for every row
            values,
            call.branch,
            live.options,
            (live.opened.seed, 0 if frame.row is None else frame.row.index, run.track, run.walk),
            frame.turn,
            piece,
            done,
            done + piece >= call.tokens,
            op.keeps,
            op.gives_names,
        )
        if live.samples is not None:
            live.samples.note(op.key, row)
        return row

    def finish(self, work: Work, results: list[RowResult]) -> None:
        """Commit a batch: caches, states, streams, outputs and turns of all its rows."""
        self.tally.ran(work)
        for call, piece, result in zip(work.calls, work.pieces, results, strict=True):
            profile = call.run.live.profile
            if profile is not None:
                profile.ran(call, piece, work, result)
            if not self._has_landed(call):
                continue
            try:
                self._commit(call, piece, result)
            except Exception as error:  # whatever it is, it is this request's
                self._broke(call.run.live, call.run.track, call.run.walk, error, call.op.place)
        self._look_again()

    def broke(self, call: Call, error: BaseException) -> None:
        """A row's component raised, also when it was run alone: its Walk fails.

        Raises:
            DeviceBroke: It is not the row's fault, and no other row could be run.
        """
        raise_if_broken(error)
        if self._has_landed(call):
            self._let_go(call)
            if not call.run.is_closed and not call.frame.is_dropped:
                self._broke(call.run.live, call.run.track, call.run.walk, error, call.op.place)
        self._look_again()

    def _has_landed(self, call: Call) -> bool:
        """The row is no longer in flight. False if its request is closed; its last row releases it."""
        live, row = call.run.live, call.frame.row
        live.in_flight -= 1
        if row is not None:
            row.in_flight -= 1
            if row.is_over and row.in_flight == 0:
                self.forks.drop(row)
        if live.is_closed and live.in_flight == 0:
            self._release(live)
        return not live.is_closed

    def _commit(self, call: Call, piece: int, result: RowResult) -> None:
        branch, op, run = call.branch, call.op, call.run
        if not call.frame.is_dropped and not run.is_closed:
            if op.twins is not None and call.done + piece >= call.tokens:
                self.twins.computed(call, result)
            if call.frame.undo is not None:
                call.frame.undo.append(branch.remember())
            if branch.table is not None and op.keeps:
                branch.table.commit(piece)
                branch.content = None
            if result.state is not UNCHANGED and op.takes_turns:
                branch.state = result.state
                branch.content = None
            if result.seen is not UNCHANGED:
                branch.seen = result.seen
                branch.content = None
            if result.counts is not None:
                for name, by in result.counts.items():
                    run.counts[name] = run.counts.get(name, 0) + by
            if call.done + piece < call.tokens:
                call.done += piece
                self.scheduler.put_back(call)
                return
            if result.stop is None or result.stop.keep:
                run.sampled += result.sampled
        if op.takes_turns or op.reads:
            self._let_go(call)
        run.finish(call, result.gives, result.stop)

    def _deal(self) -> None:
        """Commit calls whose equal was computed, as if they had been."""
        while self.twins.due:
            call, result = self.twins.due.popleft()
            run = call.run
            if run.is_closed or call.frame.is_dropped:
                self.forget(call)
                continue
            if result is None:
                self.offer(call)
                continue
            self.tally.spared(call.op.key)
            if run.live.profile is not None:
                run.live.profile.spared(call, result)
            try:
                self._commit(call, call.tokens, result)
            except Exception as error:  # whatever it is, it is this request's
                self._broke(run.live, run.track, run.walk, error, call.op.place)

    # --- integrity --------------------------------------------------------------------------------

    def check(self) -> None:
        """Verify that pages, branches and queues agree: without an open request every page is free.

        Calls of a request that was closed may still be queued; the next batch to be chosen drops them.

        Raises:
            PoolCorrupt: With everything that is wrong.
        """
        wrong = self.room.wrong() + self.scheduler.wrong()
        for component, cache in self.caches.items():
            branches = [
                branch
                for live in self._lives.values()
                for (of, _), branch in live.branches.items()
                if of == component
            ]
            try:
                cache.pool.check(branch.table for branch in branches if branch.table is not None)
            except PoolCorrupt as error:
                wrong.append(f"the cache of {component}: {error}")
        if wrong:
            raise PoolCorrupt("; ".join(wrong))

    def check_when_idle(self) -> None:
        """The same, when nothing has come for a while: whoever wrote over a page may have done so for long.

        Raises:
            PoolCorrupt: The cache cannot be trusted any more, so the worker has to end.
        """
        try:
            self.check()
        except PoolCorrupt as error:
            log.critical("the cache of %s cannot be trusted any more, so it ends: %s", self.rank, error)
            raise
        if not self._lives and self.lending.carrier.held:
            log.warning("%d tensors are lent, and no request is open", self.lending.carrier.held)

    # --- Walks end --------------------------------------------------------------------------------

    def ended(self, run: WalkRun) -> None:
        live = run.live
        live.runs.pop((run.track, run.walk), None)
        self._say(
            self.conductor,
            m.WalkEnded(
                number=live.opened.number,
                track=run.track,
                walk=run.walk,
                ended_by=run.ended_by,
                turns=run.turns,
                sampled=run.sampled,
                values={name: self.lending.lend(live, value) for name, value in run.results().items()},
                wrote=run.wrote,
                emitted=_emitted(run),
                counts=run.counts,
            ),
        )

    def unsendable(self, error: Unsendable) -> None:
        """Of what was said, some cannot be written down: the requests it is about fail.

        Items of several rows are said once more, each by itself: only the guilty row's request fails.
        """
        for message in error.messages:
            if isinstance(message, m.Emitted) and len(message.tags) > 1:
                self.outbox[error.to] += message.alone()
                continue
            live = self._sender(error.to, message)
            if live is not None:
                self._broke(live, "", 0, error, f"sending {type(message).__name__}")

    def _sender(self, to: str, message: m.Message) -> Live | None:
        """The request that had this to say."""
        if isinstance(message, m.Emitted):
            (tag,) = message.tags
            lives = self._lives.values()
            return next((live for live in lives if (live.opened.client, live.opened.tag) == (to, tag)), None)
        return self._lives.get(getattr(message, "number", -1))

    def _broke(self, live: Live, track: str, walk: int, error: BaseException, place: str) -> None:
        raise_if_broken(error)  # of an earlier batch: a device may say it when its result is first looked at
        if not (isinstance(error, WalkserveError) and error.status < 500):  # those are told to the client
            log.error("%s: %s", place, error, exc_info=error, extra=about(live.opened.label))
        run = live.runs.pop((track, walk), None)
        broke = m.WalkBroke(live.opened.number, track, walk, fault_of(error, place))
        if run is not None:
            run.is_closed = True
            run.drop_rows()
            broke = m.WalkBroke(broke.number, track, walk, broke.fault, run.wrote, _emitted(run))
        self._say(self.conductor, broke)


def _blamed(message: ForRequest) -> tuple[str, int]:
    """The track and Walk that a message is for; ("", 0), the whole request, where no Walk can make up."""
    if isinstance(message, m.StartWalk | m.ForkBranch):
        return message.track, message.walk
    return "", 0


def _emitted(run: WalkRun) -> dict[str, int]:
    return {name: run.live.emitted[name] for name in run.emitted if name in run.live.emitted}


def _tokens(call: Call, count: Callable[..., int] | None) -> int:
    """How many tokens a cached component is given: what its method says (``token_count``), or the longest of
    what it takes, which is token-first."""
    if count is not None:
        tokens = count(**call.values)
    else:
        tokens = max((len(value) for value in call.values.values() if _has_length(value)), default=1)
    if tokens <= 0:
        raise ValueError(f"{call.op.place}: it takes no tokens; a cached component needs at least one")
    return tokens


def _has_length(value: Any) -> bool:
    return isinstance(value, list) or getattr(value, "shape", ()) != ()
