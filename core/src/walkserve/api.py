"""walkserve.Engine: the server's conductor and workers in one process, for scripts, notebooks and tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from walkserve import messages as m
from walkserve.conductor.process import conduct, served_models
from walkserve.conductor.state import ConductorState
from walkserve.config import worker_threads
from walkserve.delivery import Chunk, Delivery, Done, Event, Failed
from walkserve.plugins import load_model
from walkserve.resolve import resolve_model
from walkserve.transport.local import LocalCarrier, LocalMailbox, LocalSwitchboard
from walkserve.worker.assemble import Worker
from walkserve_sdk import LoadError, Model, Output, Part, Request, WalkserveError
from walkserve_sdk.errors import BadRequest
from walkserve_sdk.ports import Audio, Text

KINDS = ("text", "image", "audio", "video", "tensor")
_ADDRESS = "engine"


@dataclass(frozen=True)
class Sound:
    """A stretch of audio.

    Args:
        samples: float32 in [-1, 1], of shape (n,).
        rate: Samples per second.
    """

    samples: NDArray[np.float32]
    rate: int


@dataclass(frozen=True)
class OutputEvent:
    """A piece of one output: ``data`` is a ``Sound``, text, or an array, by the output's kind."""

    output: str
    data: Any


@dataclass(frozen=True)
class Result:
    """A whole answer; every output is an attribute of its own name.

    Args:
        outputs: By name: a ``Sound``, text, or a list of arrays.
        finish_reason: ``"stop"``, ``"length"``, or another reason of the family's.
        seed: Of the request's random streams; the same seed gives the same answer.
        usage: ``input_tokens`` and ``output_tokens``.
        counts: What components counted, dropped tokens for instance.
    """

    outputs: dict[str, Any]
    finish_reason: str
    seed: int
    usage: dict[str, int]
    counts: dict[str, int]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.outputs[name]
        except KeyError:
            raise AttributeError(
                f"the request had no output {name!r}; it had {sorted(self.outputs)}"
            ) from None


class Generation(Iterator[OutputEvent]):
    """One running request: iterate over what it gives; afterwards ``ended`` says how it ended.

    Closing it early (or leaving its ``with`` block) cancels the request.
    """

    def __init__(self, engine: Engine, tag: int) -> None:
        self._engine = engine
        self.tag = tag
        self._events: Iterator[OutputEvent] = self._read()
        self.ended: m.RequestEnded | None = None
        self._over = False

    def __next__(self) -> OutputEvent:
        return next(self._events)

    def _read(self) -> Iterator[OutputEvent]:
        queue = self._engine._queues[self.tag]
        while not self._over:
            match queue.get():
                case Chunk(output, items):
                    for item in items:
                        yield OutputEvent(output, self._engine._read_item(output, item))
                case Done(ended):
                    self._over, self.ended = True, ended
                case Failed(fault):
                    self._over = True
                    raise _raised(fault)
        self._engine._forget(self.tag)

    def close(self) -> None:
        """Cancel what is left of it."""
        if not self._over:
            self._over = True
            self._engine._cancel(self.tag)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine:
    """A model in this process: ``with Engine("orpheus:toy") as engine: engine.generate(text="call 5 5 1")``.

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
        self.model: Model = load_model(self.config.family)(self.config.checkpoint)
        self.workers: list[Worker] = []
        self._switchboard = LocalSwitchboard()
        self._threads: list[threading.Thread] = []
        self._queues: dict[int, SimpleQueue[Event]] = {}
        self._deliveries: dict[int, Delivery] = {}
        self._tags = count()
        self._lock = threading.Lock()
        self._state = m.ServerState("starting", "", 0, ())
        self._changed = threading.Condition()

    # --- life -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._mailbox = LocalMailbox(_ADDRESS, self._switchboard)
        self._carrier = LocalCarrier(_ADDRESS, self._switchboard)
        conductor = LocalMailbox("conductor", self._switchboard)
        state = ConductorState(served_models([self.config]))
        self._spawn("conductor", lambda: conduct(state, conductor))
        threads = worker_threads(os.cpu_count() or 1, len(self.config.workers))
        for name in self.config.workers:
            address = f"{name}.0"
            mailbox = LocalMailbox(address, self._switchboard)
            carrier = LocalCarrier(address, self._switchboard)
            worker = Worker(self.config, name, address, mailbox, carrier, threads=threads)
            self.workers.append(worker)
            self._spawn(name, worker.run)
        self._spawn("deliveries", self._deliver)
        self._say("conductor", m.Attach(_ADDRESS))
        with self._changed:
            self._changed.wait_for(lambda: self._state.phase in ("ready", "stopped"))
        if self._state.phase == "stopped":
            detail = self._state.detail
            self.close()
            raise LoadError(detail)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything; what still runs is thrown away."""
        self._say("conductor", m.Halt())
        for thread in self._threads[:-1]:
            thread.join()
        self._mailbox.wake()
        self._stopped = True
        self._threads[-1].join()
        for worker in self.workers:
            worker.mailbox.close()
            worker.carrier.close()
        self._mailbox.close()
        self._carrier.close()

    _stopped = False

    def _spawn(self, name: str, run: Any) -> None:
        thread = threading.Thread(target=run, name=f"walkserve-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _say(self, to: str, message: m.Message) -> None:
        with self._lock:
            self._mailbox.send(to, [message])

    # --- requests -----------------------------------------------------------------------------------

    def stream(self, *, outputs: Sequence[str | Output] | None = None, **fields: Any) -> Generation:
        """Start a request; iterate over the result for its pieces, in order.

        Args:
            outputs: Names of what is asked for; by default every output of the model.
            fields: Parts by their kind (``text="…"``), everything else the family's options.

        Raises:
            BadRequest: Before anything starts, for what the model's own check refuses.
        """
        parts = tuple(Part(kind, fields.pop(kind)) for kind in KINDS if kind in fields)
        return self.submit(self.model.request(outputs=outputs, parts=parts, options=fields))

    def submit(self, request: Request) -> Generation:
        """Start a request that the model's own gate has made."""
        tag = next(self._tags)
        self._queues[tag] = SimpleQueue()
        self._deliveries[tag] = Delivery()
        generation = Generation(self, tag)
        parts = tuple(m.SentPart.of(part) for part in request.parts)
        self._say(
            "conductor",
            m.Submit(
                client=_ADDRESS,
                tag=tag,
                model=self.config.name,
                parts=parts,
                outputs=request.outputs,
                options=request.options,
                seed=request.seed,
                given=tuple(request.given),
            ),
        )
        return generation

    def generate(self, *, outputs: Sequence[str | Output] | None = None, **fields: Any) -> Result:
        """Run a request to its end. Takes what ``stream`` takes; raises what the request failed with."""
        generation = self.stream(outputs=outputs, **fields)
        asked = tuple(outputs) if outputs is not None else tuple(self.model.spec.outputs)
        names = [each if isinstance(each, str) else each.name for each in asked]
        pieces: dict[str, list[Any]] = {name: [] for name in names}
        for event in generation:
            pieces[event.output].append(event.data)
        ended = generation.ended
        assert ended is not None
        joined = {name: self._join(name, some) for name, some in pieces.items()}
        return Result(joined, ended.finish_reason, ended.seed, ended.usage, ended.counts)

    def _join(self, output: str, pieces: list[Any]) -> Any:
        match self.model.spec.outputs[output].kind:
            case Audio(rate=rate):
                samples = [piece.samples for piece in pieces]
                return Sound(np.concatenate(samples) if samples else np.zeros(0, np.float32), rate)
            case Text():
                return "".join(pieces)
            case _:
                return pieces

    def _read_item(self, output: str, item: m.Value) -> Any:
        if not isinstance(item, m.Array | m.TensorRef):
            return item
        array = self._carrier.take(item).float().cpu().numpy()
        if isinstance(item, m.TensorRef):
            self._say(item.owner, m.FreeTensors([item.key]))
        kind = self.model.spec.outputs[output].kind
        return Sound(array, kind.rate) if isinstance(kind, Audio) else array

    def _cancel(self, tag: int) -> None:
        self._say("conductor", m.Cancel(_ADDRESS, tag))
        self._forget(tag)

    def _forget(self, tag: int) -> None:
        self._queues.pop(tag, None)
        self._deliveries.pop(tag, None)

    # --- what the conductor and the workers say -------------------------------------------------------

    def _deliver(self) -> None:
        while not self._stopped:
            for message in self._mailbox.receive(None):
                match message:
                    case m.ServerState():
                        with self._changed:
                            self._state = message
                            self._changed.notify_all()
                    case m.Admitted() | m.Emitted() | m.RequestEnded() | m.RequestFailed():
                        self._hear(message)
                    case _:
                        pass  # loading: nobody watches

    def _hear(self, message: m.Admitted | m.Emitted | m.RequestEnded | m.RequestFailed) -> None:
        delivery, queue = self._deliveries.get(message.tag), self._queues.get(message.tag)
        if delivery is not None and queue is not None:
            for event in delivery.hear(message):
                queue.put(event)
        elif isinstance(message, m.Emitted):  # for a request that was cancelled
            for item in message.items:
                if isinstance(item, m.TensorRef):
                    self._say(item.owner, m.FreeTensors([item.key]))


def _raised(fault: m.Fault) -> WalkserveError:
    error = BadRequest(fault.message, param=fault.param, code=fault.code)
    if fault.status >= 500:
        other = WalkserveError(fault.message)
        other.status, other.type, other.code = fault.status, fault.type, fault.code
        return other
    error.status, error.type = fault.status, fault.type
    return error
