"""What a worker knows, and what follows from each message it hears and each batch it finishes.

No socket, no clock, no torch: messages come in by ``hear``, batches leave by ``choose`` and come back by
``finish`` or ``broke``, and what is to be said gathers in ``outbox``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol, assert_never

from walkserve import messages as m
from walkserve.cache.pages import PageTable
from walkserve.engine.rows import UNCHANGED, Row, RowResult
from walkserve.graph.plan import Plan
from walkserve.streams.ends import ReadEnd, WriteEnd
from walkserve.worker.live import Branch, Live
from walkserve.worker.scheduler import Scheduler, Work
from walkserve.worker.walk_run import Call, WalkRun
from walkserve_sdk import Model
from walkserve_sdk.errors import WalkserveError
from walkserve_sdk.streams import Helping

log = logging.getLogger(__name__)


class Carrier(Protocol):
    """Lends tensors to other processes and takes theirs."""

    def put(self, tensor: Any) -> m.Array | m.TensorRef: ...
    def take(self, value: m.Array | m.TensorRef) -> Any: ...
    def free(self, keys: list[int]) -> None: ...


class WorkerState:
    """One worker's requests.

    Args:
        address: Its own.
        model: The family it serves.
        plans: The model's graphs, lowered.
        ranks: Component -> name of the rank that holds it.
        carrier: Lends and takes tensors.
        read_options: Makes the family's Options of what a message carried.
        new_table: Component -> an empty page table, for those with a cache.
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
        new_table: Mapping[str, Callable[[], PageTable]],
    ) -> None:
        self.address = address
        self.spec = model.spec
        self.plans = plans
        self.scheduler = scheduler
        self.carrier = carrier
        self.read_options = read_options
        self.new_table = new_table
        self.outbox: dict[str, list[m.Message]] = defaultdict(list)
        self.conductor = "conductor"
        self.is_stopping = False
        self._lives: dict[int, Live] = {}
        self._early: dict[int, list[m.Message]] = defaultdict(list)
        self._opened = -1  # numbers come in order
        self._ranks = ranks
        self._peers: dict[str, str] = {}
        self._reader_rank = {
            stream: ranks[op.component] for plan in plans.values() for op in plan.ops for stream in op.reads
        }
        self._writer_rank = {
            stream: ranks[op.component]
            for plan in plans.values()
            for op in plan.ops
            for _, stream in op.streams
        }
        self._exclusive = {name for name, component in self.spec.components.items() if component.state}

    # --- hearing ----------------------------------------------------------------------------------

    def hear(self, message: m.ToWorker) -> None:
        """One message. What it breaks is its request's, never the worker's."""
        match message:
            case m.OpenRequest():
                self._open(message)
            case m.CloseRequest():
                self._close(message.number)
            case m.PeersChanged():
                self._peers = message.addresses
            case m.StopWorker():
                self.is_stopping = True
            case m.FreeTensors():
                self.carrier.free(message.keys)
            case (
                m.StartWalk()
                | m.ForkBranch()
                | m.EndStream()
                | m.DiscardStream()
                | m.StreamItems()
                | m.StreamTaken()
            ):
                live = self._lives.get(message.number)
                if live is not None and not live.is_closed:
                    self._hear_for(live, message)
                elif message.number > self._opened:  # from a peer that heard of the request sooner
                    self._early[message.number].append(message)
                elif isinstance(message, m.StreamItems):
                    self._give_back(message.items)
            case _:
                assert_never(message)

    def _hear_for(
        self,
        live: Live,
        message: m.StartWalk | m.ForkBranch | m.EndStream | m.DiscardStream | m.StreamItems | m.StreamTaken,
    ) -> None:
        match message:
            case m.StartWalk():
                self._start(live, message)
            case m.ForkBranch():
                self._fork(live, message)
            case m.StreamItems():
                self._items_came(live, message)
            case m.EndStream():
                self._read_end(live, message.stream).end(message.total)
                self._unpark(live, message.stream)
            case m.DiscardStream():
                self._write_end(live, message.stream).discarded = True
                self._unpark(live, message.stream)
            case m.StreamTaken():
                end = self._write_end(live, message.stream)
                end.taken = max(end.taken, message.taken)
                self._unpark(live, message.stream)

    def _open(self, message: m.OpenRequest) -> None:
        self._opened = message.number
        self._lives[message.number] = Live(message, self.read_options(message.options))
        for early in self._early.pop(message.number, ()):
            self.hear(early)  # type: ignore[arg-type]

    def _close(self, number: int) -> None:
        live = self._lives.get(number)
        if live is None:
            self._say(self.conductor, m.RequestClosed(number, self._rank, self.address))
            return
        live.is_closed = True
        for run in live.runs.values():
            run.is_closed = True
        if live.in_flight == 0:
            self._release(live)

    @property
    def _rank(self) -> str:
        return self.address.rpartition(".")[0]

    def _release(self, live: Live) -> None:
        """Nothing of it runs any more: give everything back, and say so."""
        number = live.opened.number
        for end in live.read_ends.values():
            self._give_back(list(end.items))
        for branch in live.branches.values():
            branch.drop()
        self.carrier.free(live.exports)
        del self._lives[number]
        self._say(self.conductor, m.RequestClosed(number, self._rank, self.address))

    def _start(self, live: Live, message: m.StartWalk) -> None:
        try:
            inputs = {name: self._import(value) for name, value in message.inputs.items()}
            run = WalkRun(self, live, self.plans[message.graph], message.track, message.walk, inputs)
            live.runs[(message.track, message.walk)] = run
            run.start()
        except Exception as error:  # whatever it is, it is this request's
            self._broke(live, message.track, message.walk, error, f"starting {message.graph}")

    def _fork(self, live: Live, message: m.ForkBranch) -> None:
        old = live.branches.pop((message.component, message.to), None)
        if old is not None:
            old.drop()
        live.branches[(message.component, message.to)] = self._branch(
            live, message.component, message.branch
        ).fork()
        self._say(self.conductor, m.BranchForked(live.opened.number, message.track, message.walk))

    # --- streams ----------------------------------------------------------------------------------

    def _read_end(self, live: Live, stream: str) -> ReadEnd:
        if stream not in live.read_ends:
            live.read_ends[stream] = ReadEnd(self.spec.streams[stream].policy)
        return live.read_ends[stream]

    def _write_end(self, live: Live, stream: str) -> WriteEnd:
        if stream not in live.write_ends:
            live.write_ends[stream] = WriteEnd(self.spec.streams[stream].limit)
        return live.write_ends[stream]

    def _items_came(self, live: Live, message: m.StreamItems) -> None:
        items = [self._import(item) for item in message.items]
        self._give_back(message.items)
        self._read_end(live, message.stream).push(message.first, items)
        self._unpark(live, message.stream)

    def _unpark(self, live: Live, stream: str) -> None:
        for call in live.parked.pop(stream, ()):
            self.offer(call)

    def push(self, run: WalkRun, stream: str, value: Any) -> None:
        live = run.live
        end = self._write_end(live, stream)
        index = end.number()
        if end.discarded:
            return
        rank = self._reader_rank[stream]
        if rank == self._rank:
            self._read_end(live, stream).push(index, [value])
            self._unpark(live, stream)
        else:
            items: list[m.Value] = [self._export(live, value)]
            self._say(
                self._peers[rank], m.StreamItems(live.opened.number, stream, index, items, self.address)
            )

    def emit(self, run: WalkRun, output: str, value: Any) -> None:
        live = run.live
        if output not in live.opened.outputs or not live.opened.client:
            return  # not asked for, or asked for by nobody: a warm-up
        first = live.emitted.get(output, 0)
        live.emitted[output] = first + 1
        if isinstance(value, bytes):
            value = m.Blob(value)
        item = (
            value if isinstance(value, int | float | str | m.Blob) else self.carrier.put(value)
        )  # the client frees it
        self._say(live.opened.client, m.Emitted(live.opened.tag, output, first, [item]))

    def stop_writer(self, run: WalkRun, stream: str, reason: str) -> None:
        raise WalkserveError(f"Stop(upstream=True) on stream {stream!r} is not run by this version")

    # --- calls ------------------------------------------------------------------------------------

    def offer(self, call: Call) -> None:
        """Its values are there: wait for streams, then for the branch, then for a batch."""
        live, op = call.run.live, call.op
        if call.run.is_closed or call.frame.is_dropped:
            return
        ends = [self._read_end(live, stream) for stream in op.reads]
        for stream, end in zip(op.reads, ends, strict=True):
            if not end.has_next and not end.is_done:
                live.parked.setdefault(stream, []).append(call)
                return
        for _, stream in op.streams:
            if not self._write_end(live, stream).is_open:
                live.parked.setdefault(stream, []).append(call)
                return
        call.branch = self._branch(live, op.component, op.branch)
        if op.keeps or op.component in self._exclusive:
            if call.branch.is_busy:
                call.branch.waiting.append(call)
                return
            call.branch.is_busy = True
        # of several streams one may be at its end before the others: it goes on with empty helpings
        call.helpings = [
            end.next() if not end.is_done else Helping((), end.handed, 0, last=False) for end in ends
        ]
        if op.component in self.new_table and op.takes:
            call.tokens = _length(call.values[0])
        self.scheduler.add(call)

    def forget(self, call: Call) -> None:
        self._free_branch(call)

    def _branch(self, live: Live, component: str, name: str) -> Branch:
        branch = live.branches.get((component, name))
        if branch is None:
            table = self.new_table[component]() if component in self.new_table else None
            branch = live.branches[(component, name)] = Branch(table)
        return branch

    def _free_branch(self, call: Call) -> None:
        branch = call.branch
        if branch is not None and (call.op.keeps or call.op.component in self._exclusive):
            branch.is_busy = False
            if branch.waiting:
                self.offer(branch.waiting.popleft())

    # --- batches ----------------------------------------------------------------------------------

    def choose(self) -> Work | None:
        """The next batch; its rows are in flight until ``finish`` or ``broke``."""
        work = self.scheduler.choose()
        if work is not None:
            for call in work.calls:
                call.run.live.in_flight += 1
        return work

    def row(self, call: Call, piece: int) -> Row:
        """The call as an engine sees it."""
        op, run, frame = call.op, call.run, call.frame
        values = {name: value for (name, _), value in zip(op.takes, call.values, strict=True)}
        for stream, helping in zip(op.reads, call.helpings, strict=True):
            values[stream] = helping
        return Row(
            values=values,
            branch=call.branch,
            options=run.live.options,
            key=(run.live.opened.seed, 0, run.track, run.walk),
            turn=frame.turn,
            tokens=piece,
            done=call.done,
            is_last=call.done + piece >= call.tokens,
            keeps=op.keeps,
        )

    def finish(self, work: Work, results: list[RowResult]) -> None:
        """Commit a batch: caches, states, streams, outputs and turns of all its rows."""
        for call, piece, result in zip(work.calls, work.pieces, results, strict=True):
            live = call.run.live
            live.in_flight -= 1
            if live.is_closed:
                if live.in_flight == 0:
                    self._release(live)
                continue
            try:
                self._commit(call, piece, result)
            except Exception as error:
                self._broke(live, call.run.track, call.run.walk, error, call.op.place)

    def _commit(self, call: Call, piece: int, result: RowResult) -> None:
        branch, op, run = call.branch, call.op, call.run
        if not call.frame.is_dropped:
            if branch.table is not None and op.keeps:
                branch.table.commit(piece)
            if result.state is not UNCHANGED:
                branch.state = result.state
            if result.seen is not UNCHANGED:
                branch.seen = result.seen
            for name, by in (result.counts or {}).items():
                run.counts[name] = run.counts.get(name, 0) + by
            if branch.table is not None and call.done + piece < call.tokens:
                call.done += piece
                self.scheduler.add(call)
                return
            for stream in op.reads:
                self._taken(run.live, stream)
        self._free_branch(call)
        run.finish(call, result.gives, result.stop)

    def _taken(self, live: Live, stream: str) -> None:
        taken = self._read_end(live, stream).handed
        rank = self._writer_rank[stream]
        if rank == self._rank:
            self._write_end(live, stream).taken = taken
            self._unpark(live, stream)
        else:
            self._say(self._peers[rank], m.StreamTaken(live.opened.number, stream, taken))

    def broke(self, call: Call, error: Exception) -> None:
        """A row's component raised, also when it was run alone: its Walk fails."""
        live = call.run.live
        live.in_flight -= 1
        if live.is_closed:
            if live.in_flight == 0:
                self._release(live)
            return
        self._free_branch(call)
        self._broke(live, call.run.track, call.run.walk, error, call.op.place)

    def _broke(self, live: Live, track: str, walk: int, error: Exception, place: str) -> None:
        run = live.runs.pop((track, walk), None)
        if run is not None:
            run.is_closed = True
        log.error("request %d, %s: %s", live.opened.number, place, error, exc_info=error)
        self._say(self.conductor, m.WalkBroke(live.opened.number, track, walk, fault_of(error, place)))

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
                values={name: self._export(live, value) for name, value in run.results().items()},
                wrote=run.wrote,
                emitted={name: live.emitted[name] for name in run.emitted if name in live.emitted},
                counts=run.counts,
            ),
        )

    # --- values -----------------------------------------------------------------------------------

    def _say(self, address: str, message: m.Message) -> None:
        self.outbox[address].append(message)

    def _export(self, live: Live, value: Any) -> m.Value:
        """Make a value fit for a message; what is lent is noted."""
        if value is None or isinstance(value, bool | int | float | str | m.Blob | m.Array | m.TensorRef):
            return value
        if isinstance(value, bytes):
            return m.Blob(value)
        if isinstance(value, list) and all(isinstance(one, int) for one in value):
            return value
        lent = self.carrier.put(value)
        if isinstance(lent, m.TensorRef):
            live.exports.append(lent.key)
        return lent

    def _import(self, value: m.Value) -> Any:
        if isinstance(value, m.Blob):
            return value.data
        return self.carrier.take(value) if isinstance(value, m.Array | m.TensorRef) else value

    def _give_back(self, items: list[Any]) -> None:
        """Tell the owners of lent stream items that they are read."""
        keys: dict[str, list[int]] = defaultdict(list)
        for item in items:
            if isinstance(item, m.TensorRef):
                keys[item.owner].append(item.key)
        for owner, lent in keys.items():
            self._say(owner, m.FreeTensors(lent))

    # --- for tests and metrics --------------------------------------------------------------------

    @property
    def open_requests(self) -> int:
        return len(self._lives)


def _length(value: Any) -> int:
    """Tokens in a value taken by a cached component: token-first."""
    if isinstance(value, int):
        return 1
    return int(value.shape[0]) if hasattr(value, "shape") else len(value)


def fault_of(error: Exception, place: str) -> m.Fault:
    """What a client may know of an error: its own faults in full, ours by place and kind."""
    if isinstance(error, WalkserveError) and error.status < 500:
        return m.Fault(str(error), error.status, error.type, error.code, error.param)
    return m.Fault(
        f"{place} failed ({type(error).__name__}); the server's log has the details", code="component_failed"
    )
