"""The HTTP process's side of the runtime: calls go out, and what is said to each comes to whoever made it."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Protocol, Self

import msgspec

from walkserve import messages as m
from walkserve.http.calls import NUMBER_BYTES, Call, Item, size_bytes
from walkserve.http.meters import Meters
from walkserve.http.problems import TooManyRequests
from walkserve.http.profiles import Profiles
from walkserve.http.requests import RequestLog
from walkserve.http.terms import Terms
from walkserve.logs import about
from walkserve.transport.base import Unsendable
from walkserve.transport.shm import ArenaReader
from walkserve.transport.values import as_numpy
from walkserve.writing import Writing
from walkserve_sdk import Request, Stream
from walkserve_sdk.errors import BadRequest, Unavailable, WalkserveError, shown

log = logging.getLogger(__name__)

CONDUCTOR = "conductor"
BUFFER_BYTES = 64 * 1024 * 1024
ANSWER_S = 2.0
"""How long the conductor has to say how things are."""

_NUMBERS = (bool, int, float)  # nothing to read, nothing lent: by far the most items


class Post(Protocol):
    """What is needed of a mailbox."""

    def send(self, to: str, messages: Sequence[m.Message]) -> None: ...

    async def receive(self) -> Sequence[m.Message]: ...

    def forget(self, to: str) -> None: ...


class Caller:
    """Owns the mailbox's receiving end; one task hears everything and hands it to the calls.

    Args:
        mailbox: Where answers come; whoever opened it closes it.
        reader: Where large tensors are read; without it only small ones can be.
        address: The mailbox's own.
        buffer_bytes: What may wait for one slow client before its request is cut.
        profiles: The conductor and the workers tell of each request where its time went.
        max_open: How many requests may be open at once; None for any number.
    """

    def __init__(
        self,
        mailbox: Post,
        reader: ArenaReader | None = None,
        *,
        address: str = "http",
        buffer_bytes: int = BUFFER_BYTES,
        profiles: bool = False,
        max_open: int | None = None,
    ) -> None:
        self.state = m.ServerState("starting", "starting", 0, ())
        self.loading: dict[tuple[str, str], bool] = {}
        """(worker, component) -> whether it has been loaded; for progress bars."""
        self.requests = RequestLog()
        self.meters = Meters()
        self.reports: dict[str, m.Reported] = {}
        """By worker, what it has last said it has run."""
        self.profiles = Profiles() if profiles else None
        self._mailbox = mailbox
        self._reader = reader
        self._address = address
        self._buffer_bytes = buffer_bytes
        self._max_open = max_open
        self._tags = count(1)
        self._calls: dict[int, Call] = {}
        self._workers: dict[str, str] = {}  # address -> the model it is of
        self._gone: set[str] = set()
        self._changed = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    # --- its life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Hear what comes, and make the conductor say how things are."""
        self._listening = asyncio.create_task(self._listen(), name="caller")
        self.attach()

    def attach(self) -> None:
        """Ask for the server's state; once more when the conductor was started anew."""
        self._mailbox.send(CONDUCTOR, [m.Attach(self._address)])

    async def close(self) -> None:
        """Cancel what is open and hear nothing more."""
        for call in list(self._calls.values()):
            self._give_up(call, m.Fault("the server stops", 503, "unavailable", "unavailable"))
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- asking -----------------------------------------------------------------------------------

    @property
    def open_calls(self) -> int:
        return len(self._calls)

    async def wait_until(self, wanted: Callable[[], bool]) -> None:
        """Return when ``wanted``, a question about ``state`` or ``loading``, is answered with yes."""
        while not wanted():
            await self._changed.wait()

    async def refresh(self, within_s: float = ANSWER_S) -> m.ServerState:
        """The server's state as it is now; the last one known if the conductor does not answer."""
        known = self.state
        self.attach()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait_until(lambda: self.state is not known), within_s)
        return self.state

    async def count_workers(self, within_s: float) -> frozenset[str]:
        """Renew ``reports``; which workers did not answer in time, in a long step for instance."""
        known = dict(self.reports)
        workers = [worker for model in self.state.models for worker in model.workers]
        asked = [worker for worker in workers if worker.state == "ready"]
        for worker in asked:
            self._mailbox.send(worker.address, [m.Report(self._address)])

        def silent() -> list[str]:
            return [one.name for one in asked if self.reports.get(one.name) is known.get(one.name)]

        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait_until(lambda: not silent()), within_s)
        return frozenset(silent())

    def submit(
        self,
        model: str,
        request: Request,
        on_cut: Callable[[], None] = lambda: None,
        *,
        terms: Terms | None = None,
        writes: Iterable[Stream] = (),
    ) -> Call:
        """Send a checked request on its way.

        Args:
            on_cut: Called when its client was too slow and the request was given up: whoever
                writes to that client hangs in a write, and has to be told from outside.
            terms: A response that needs several calls gives them the same: one id, and one time for all.
            writes: Of the model's streams those that will be written, with ``Call.send`` and ``Call.end``;
                others of ``Stream(by="client")`` are empty.

        Raises:
            Unavailable: There is no conductor.
            TooManyRequests: As many requests are open as may be. Never of a further call of a request that
                has begun: what was accepted is answered to its end.
            BadRequest: Something in it cannot be written down, a whole number beyond 64 bits for instance.
        """
        if self.state.pid == 0:
            raise Unavailable(f"{model} is not ready: {self.state.detail}")
        terms = terms if terms is not None else Terms()
        self._check_room(terms.id)
        begun = self.requests.get(terms.id)
        tag, writes = next(self._tags), tuple(writes)
        submit = m.Submit(
            client=self._address,
            tag=tag,
            model=model,
            parts=tuple(m.SentPart.of(part) for part in request.parts),
            outputs=request.outputs,
            options=request.options,
            seed=request.seed,
            given=tuple(sorted(request.given)),
            label=terms.id,
            timeout_s=terms.timeout_s,
            passed_s=begun.age_s if begun is not None else 0.0,
            writes=tuple(stream.name for stream in writes),
        )
        try:
            self._mailbox.send(CONDUCTOR, [submit])
        except Unsendable as error:
            raise _refusal(request) from error
        record = self.requests.start(terms.id, model, request.seed, terms.client_id)
        meter = self.meters.start(model, record)
        writing = Writing(self._address, tag, writes)
        call = Call(tag, record, meter, lambda: self._cancel(tag), on_cut, writing, self._say)
        self._calls[tag] = call
        if self.profiles is not None:
            self.profiles.start(record.id, tag)
        return call

    def _check_room(self, id: str) -> None:
        if self._max_open is None or len(self._calls) < self._max_open or self.requests.get(id) is not None:
            return
        if len({call.record.id for call in self._calls.values()}) >= self._max_open:
            raise TooManyRequests(
                f"{self._max_open:,} requests are open, which is the most this server takes; try again"
            )

    def _say(self, message: m.Message) -> None:
        self._mailbox.send(CONDUCTOR, [message])

    def _cancel(self, tag: int) -> None:
        if self._calls.pop(tag, None) is not None:
            self._mailbox.send(CONDUCTOR, [m.Cancel(self._address, tag)])

    # --- hearing ------------------------------------------------------------------------------------

    def conductor_died(self, why: str = "its conductor process died") -> None:
        """Said by whoever watches the processes: every open request fails, new ones are refused."""
        self._set_state(m.ServerState("stopped", why, 0, ()))
        fault = m.Fault("the server lost its conductor; try again", 503, "unavailable", "conductor_lost")
        for tag in list(self._calls):
            self._calls.pop(tag).fail(fault)

    async def _listen(self) -> None:
        try:
            while True:
                self._hear_all(await self._mailbox.receive())
                await asyncio.sleep(0)  # frames that keep coming would leave no turn to anybody else
        except Exception:  # of the mailbox itself: nothing can be heard any more
            log.exception("the mailbox %r broke", self._address)
            self.conductor_died("its mailbox broke")

    def _hear_all(self, messages: Sequence[m.Message]) -> None:
        freed: dict[str, list[int]] = defaultdict(list)
        for message in messages:
            try:
                self._hear(message, freed)
            except Exception:  # whatever it is, it is this message's; the others are heard
                log.exception("a %s cannot be heard", type(message).__name__)
                kind, tags = type(message).__name__, tuple(_tags_of(message))
                self._fail(tags, m.Unreadable(kind, tags=tags).fault)
        for owner, keys in freed.items():
            if owner not in self._gone:  # the memory of a dead worker is freed by its end
                self._mailbox.send(owner, [m.FreeTensors(keys)])

    def _hear(self, message: m.Message, freed: dict[str, list[int]]) -> None:
        """One message; what it lent is added to ``freed``, by its owner."""
        match message:
            case m.Emitted():
                for tag, value, index in message.rows():
                    self._hear_item(tag, message.output, value, index)
                    if not isinstance(value, _NUMBERS):
                        for lent in m.references(value):
                            freed[lent.owner].append(lent.key)
            case m.Admitted() | m.ItemsTaken() | m.RequestEnded() | m.RequestFailed():
                call = self._calls.get(message.tag)
                if call is not None:
                    call.hear(message)
                    self._forget_if_over(call)
            case m.Unreadable():
                self._fail(message.tags, message.fault)
            case m.ServerState():
                self._hear_state(message)
            case m.Loading():
                self.loading[message.worker, message.component] = message.done
                self._ring()
            case m.Reported():
                self.reports[message.worker] = message
                self._ring()
            case m.Traced() | m.Profiled():
                if self.profiles is not None:
                    self.profiles.hear(message)
            case _:
                log.error("a %s is not for a client", type(message).__name__)

    def _hear_item(self, tag: int, output: str, value: m.Value, index: int | None) -> None:
        call = self._calls.get(tag)
        if call is None:  # cancelled in between: its tensors are freed all the same
            return
        item: Item
        if isinstance(value, _NUMBERS):
            item, size = value, NUMBER_BYTES
        else:
            try:
                item = self._read(value)
            except WalkserveError as error:
                self._give_up(call, m.Fault.of(error))
                return
            except Exception:  # whatever it is, it is this request's; the others go on
                log.exception("an item of %r cannot be read", output, extra=about(call.record.id))
                self._give_up(call, m.Fault(f"an item of {output!r} cannot be read", code="unreadable_item"))
                return
            size = size_bytes(item)
        # one large item is not a slow client's fault, so what finds the buffer empty always fits
        if call.waiting_bytes and call.waiting_bytes + size > self._buffer_bytes:
            self._cut(call)
        else:
            call.give(output, item, size, index)
            self._forget_if_over(call)

    def _cut(self, call: Call) -> None:
        limit = f"more than {self._buffer_bytes:,} bytes waited for it"
        log.warning("a request is cut: its client reads too slowly, %s", limit, extra=about(call.record.id))
        fault = m.Fault(f"the client reads too slowly: {limit}", 503, "unavailable", "too_slow")
        self._give_up(call, fault)
        call.on_cut()

    def _forget_if_over(self, call: Call) -> None:
        if call.is_over:
            del self._calls[call.tag]

    def _give_up(self, call: Call, fault: m.Fault) -> None:
        self._cancel(call.tag)
        call.fail(fault)

    def _fail(self, tags: Sequence[int], fault: m.Fault) -> None:
        for tag in tags:
            call = self._calls.get(tag)
            if call is not None:
                self._give_up(call, fault)

    def _read(self, value: m.Value) -> Item:
        match value:
            case m.Array() | m.TensorRef():
                return as_numpy(value, self._reader)
            case m.Blob():
                return value.data
            case list():
                return [self._read(one) for one in value]
            case m.Named(fields=fields):
                return {name: self._read(one) for name, one in fields.items()}
            case _:
                return value

    def _hear_state(self, state: m.ServerState) -> None:
        before, self._workers = self._workers, _addresses(state)
        for address in before.keys() - self._workers.keys():
            self._gone.add(address)
            self.meters.lost(before[address], address.rpartition(".")[0])
            if self.profiles is not None:
                self.profiles.lost(address)
            self._mailbox.forget(address)
            if self._reader is not None:
                self._reader.forget(address)
        self._set_state(state)

    def _set_state(self, state: m.ServerState) -> None:
        self.state = state
        self._ring()

    def _ring(self) -> None:
        rung, self._changed = self._changed, asyncio.Event()
        rung.set()


def _tags_of(message: m.Message) -> list[int]:
    """Whose requests it is about."""
    if isinstance(message, m.Emitted):
        return message.tags
    tag = getattr(message, "tag", None)
    return [] if tag is None else [tag]


def _refusal(request: Request) -> BadRequest:
    """Which of a request's options cannot be sent."""
    for name in sorted(request.given):
        value = getattr(request.options, name, None)
        try:
            msgspec.msgpack.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return BadRequest(f"{name}: {shown(value)} cannot be sent to the model: {error}", param=name)
    return BadRequest("the request holds something that cannot be sent to the model")


def _addresses(state: m.ServerState) -> dict[str, str]:
    """Of the workers that live, and which model they are of."""
    workers = ((worker, model.name) for model in state.models for worker in model.workers)
    return {worker.address: name for worker, name in workers if worker.address and worker.state != "lost"}
