"""Engine: a model in this process; requests go out, and what is said to each comes to whoever made it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Self

from walkserve import messages as m
from walkserve.api.generation import Call, Generation
from walkserve.api.results import read_item
from walkserve.api.threads import CLIENT, Threads
from walkserve.conductor.client_streams import check_writes, written_by_clients
from walkserve.conductor.process import ADDRESS as CONDUCTOR
from walkserve.delivery import Done, Failed
from walkserve.plugins import load_model
from walkserve.resolve import resolve_model
from walkserve.timeouts import check_timeout
from walkserve.worker.assemble import Worker
from walkserve.writing import Writing
from walkserve_sdk import LoadError, Model, Output, Request
from walkserve_sdk.errors import Unavailable
from walkserve_sdk.parts import take_parts
from walkserve_sdk.results import OutputEvent, Result, join_output

log = logging.getLogger(__name__)

_CLOSED = "the engine is closed; use it within `with engine:`, which opens it"
_LOADING = "the engine is loading"
_CANCELLED = m.Fault("the request was cancelled", 499, "cancelled", "cancelled")


class Engine:
    """A model in this process: ``with Engine("orpheus:toy") as engine: engine.generate(text="call 5 5 1")``.

    Any thread may ask; a closed engine may be opened again; a forked process has to open its own.

    Args:
        model: ``NAME[:VARIANT][=CHECKPOINT]``, as ``walkserve serve`` takes it.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        dtype: ``"auto"``, ``"float32"`` or ``"bfloat16"``.
        deterministic: Batched equals alone, to the bit on a CPU.
        settings: What else ``walkserve.resolve.resolve_model`` takes.

    Raises:
        WalkserveError: The model cannot be found or loaded.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        deterministic: bool = False,
        **settings: Any,
    ) -> None:
        self.config = resolve_model(
            model, device=device, dtype=dtype, deterministic=deterministic, **settings
        )
        self.model: Model = load_model(self.config.family, self.config.plugins)(self.config.checkpoint)
        self._threads: Threads | None = None
        self._calls: dict[int, Call] = {}  # requests that have not ended
        self._tags = count()
        self._refusal = _CLOSED  # why nothing is served now, or ""
        # Guards all of the above, and the mailbox's sending end. It has to be reentrant: a Generation
        # may be collected, and so cancelled, in the middle of anything.
        self._changed = threading.Condition(threading.RLock())

    # --- life -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._check_process()
        with self._changed:
            if self._threads is not None:
                raise Unavailable("the engine is open already; close it first, or open another")
            self._threads = threads = Threads(self.config, self._hear, self._fail_all)
            self._refusal = _LOADING
        try:
            threads.start()
            with self._changed:
                self._changed.wait_for(lambda: self._refusal != _LOADING)
                if self._refusal:
                    raise LoadError(self._refusal)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything; what still runs is thrown away, and whoever reads it gets ``Unavailable``."""
        threads = self._threads
        if threads is None or self._is_elsewhere():
            return
        with self._changed:
            self._fail_all(_CLOSED)
            threads.stop()
        threads.join()
        with self._changed:
            if self._threads is threads:
                self._threads = None

    @property
    def workers(self) -> list[Worker]:
        """Those that run; none when it is closed."""
        threads = self._threads
        return threads.workers if threads is not None else []

    def _is_elsewhere(self) -> bool:
        """Asked before any lock: in a forked process there is nobody who would let go of it."""
        threads = self._threads
        return threads is not None and threads.pid != os.getpid()

    def _check_process(self) -> None:
        if self._is_elsewhere():
            raise Unavailable("the engine belongs to the process that opened it; open another in this one")

    def _fail_all(self, why: str) -> None:
        """Nothing is served any more: whoever waits is told, and whoever comes is refused."""
        with self._changed:
            if self._refusal != _CLOSED:  # else this is only how it closes
                self._refusal = why
            calls, self._calls = self._calls, {}
            for call in calls.values():
                call.end(Failed(m.Fault(why, 503, "unavailable", "unavailable")))
            self._changed.notify_all()

    # --- requests -----------------------------------------------------------------------------------

    def stream(
        self,
        *,
        outputs: Sequence[str | Output] | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> Generation:
        """Start a request; iterate over the result for its pieces, in order.

        Args:
            outputs: Names of what is asked for; by default every output of the model.
            timeout_s: After so many seconds it fails with ``DeadlineExceeded``; by default it may take
                as long as it takes.
            fields: Parts by their kind (``text="…"``, ``image=Path("a.png")``, ``tensor={"states": array}``)
                or as ``parts=[Part(…)]``, as ``walkserve_sdk.parts.take_parts`` has them; everything else is
                the family's options.

        Raises:
            BadRequest: Before anything starts, for what the model's own check refuses.
            Unavailable: The engine is closed, broken, or another process's.
        """
        return self.submit(self._request(outputs, fields), timeout_s=timeout_s)

    def generate(
        self,
        *,
        outputs: Sequence[str | Output] | None = None,
        timeout_s: float | None = None,
        streams: Mapping[str, Iterable[Any]] | None = None,
        **fields: Any,
    ) -> Result:
        """Run a request to its end. Takes what ``stream`` takes; raises what the request failed with.

        Args:
            streams: All items of those that the caller writes, which are written in turn; those that are
                not named stay empty.
        """
        request = self._request(outputs, fields)
        pieces: dict[str, list[OutputEvent]] = {name: [] for name in request.outputs}
        streams = streams or {}
        with self.submit(request, timeout_s=timeout_s, writes=tuple(streams)) as generation:
            _write_all(generation, streams)
            for event in generation:
                pieces[event.output].append(event)
        ended = generation.ended
        assert ended is not None
        joined = {name: join_output(self.model.spec.outputs[name], some) for name, some in pieces.items()}
        return Result(joined, ended.finish_reason, ended.seed, ended.usage, ended.counts)

    def submit(
        self, request: Request, *, timeout_s: float | None = None, writes: Sequence[str] | None = None
    ) -> Generation:
        """Start a request that the model's own gate has made. Raises what ``stream`` does.

        Args:
            writes: The streams that its caller is going to write, by default all that are the caller's to
                write; others of these are empty.
        """
        self._check_process()
        timeout_s = None if timeout_s is None else check_timeout(timeout_s, "timeout_s")
        spec = self.model.spec
        writes = written_by_clients(spec) if writes is None else tuple(writes)
        check_writes(self.config.name, spec, writes)
        tag = next(self._tags)
        call = Call(Writing(CLIENT, tag, [spec.streams[name] for name in writes]))
        generation = Generation(tag, call, self._cancel, self._check_process, self._write, self._finish)
        submit = m.Submit(
            client=CLIENT,
            tag=tag,
            model=self.config.name,
            parts=tuple(m.SentPart.of(part) for part in request.parts),
            outputs=request.outputs,
            options=request.options,
            seed=request.seed,
            given=tuple(request.given),
            timeout_s=timeout_s,
            writes=writes,
        )
        with self._changed:
            if self._refusal:
                raise Unavailable(self._refusal)
            self._calls[tag] = call
            self._say(CONDUCTOR, submit)
        return generation

    def _request(self, outputs: Sequence[str | Output] | None, fields: dict[str, Any]) -> Request:
        parts = take_parts(fields, fields.pop("parts", None))
        return self.model.request(outputs=outputs, parts=parts, options=fields)

    def _cancel(self, tag: int, fault: m.Fault = _CANCELLED) -> None:
        """Give up a request that has not ended; whoever still reads it gets ``fault``."""
        if self._is_elsewhere():
            return
        with self._changed:
            call = self._calls.pop(tag, None)
            if call is not None:
                self._say(CONDUCTOR, m.Cancel(CLIENT, tag))
                call.end(Failed(fault))
                self._changed.notify_all()

    # --- streams that a caller writes -----------------------------------------------------------------

    def _write(self, writing: Writing, stream: str, value: Any) -> None:
        item = writing.item(stream, value)
        with self._changed:
            self._changed.wait_for(lambda: not writing.has_to_wait(item))
            message = writing.write(item)
            if message is not None:
                self._say(CONDUCTOR, message)

    def _finish(self, writing: Writing, stream: str) -> None:
        with self._changed:
            message = writing.finish(stream)
            if message is not None:
                self._say(CONDUCTOR, message)
                self._changed.notify_all()  # who waits to write more to it is told

    def _say(self, to: str, message: m.Message) -> None:
        with self._changed:
            if self._threads is not None:
                self._threads.mailbox.send(to, [message])

    # --- what the conductor and the workers say -------------------------------------------------------

    def _hear(self, message: m.Message) -> None:
        match message:
            case m.ServerState(phase="stopped"):
                self._fail_all(message.detail)
            case m.ServerState(phase="ready"):
                with self._changed:
                    if self._refusal == _LOADING:
                        self._refusal = ""
                        self._changed.notify_all()
            case m.Emitted():
                for tag, item, index in message.rows():
                    self._hear_item(tag, message.output, item, index)
            case m.ItemsTaken():
                with self._changed:
                    call = self._calls.get(message.tag)
                    if call is not None:
                        call.writing.took(message)
                        self._changed.notify_all()
            case m.Admitted() | m.RequestEnded() | m.RequestFailed():
                with self._changed:
                    call = self._calls.get(message.tag)
                    if call is not None:
                        self._end(message.tag, call, call.delivery.hear(message))
            case _:
                pass  # loading: nobody watches

    def _hear_item(self, tag: int, output: str, item: m.Value, index: int | None) -> None:
        """Read at once and free, whether or not somebody still wants it: nothing stays lent."""
        threads = self._threads
        assert threads is not None
        try:
            if tag in self._calls:
                data = read_item(self.model.spec.outputs[output], item, threads.carrier)
                with self._changed:
                    call = self._calls.get(tag)
                    if call is not None:
                        call.events.put(OutputEvent(output, data, index))
                        self._end(tag, call, call.delivery.received(output))
        except Exception:  # whatever it is, it is this request's; the others go on
            log.exception("an item of %r cannot be read", output)
            fault = m.Fault(f"an item of {output!r} cannot be read", code="unreadable_item")
            self._cancel(tag, fault)
        for lent in m.references(item):
            self._say(lent.owner, m.FreeTensors([lent.key]))

    def _end(self, tag: int, call: Call, event: Done | Failed | None) -> None:
        if event is not None:
            call.end(event)
            del self._calls[tag]
            self._changed.notify_all()


def _write_all(generation: Generation, streams: Mapping[str, Iterable[Any]]) -> None:
    """One item of each in turn, as long as it has some, and then its end."""
    left = {name: iter(items) for name, items in streams.items()}
    while left:
        for name, items in list(left.items()):
            try:
                item = next(items)
            except StopIteration:
                del left[name]
                generation.end(name)
            else:
                generation.send(name, item)
