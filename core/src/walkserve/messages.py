"""What processes say to each other: frozen tagged structs, one union per direction, and the values in them.

Orders are imperatives (``StartWalk``), facts are past tense (``WalkEnded``). A request is known to the
runtime by the number the conductor gave it, and to its client by the client's own ``tag``; addresses
carry the incarnation of the process they name, so what was meant for a dead worker reaches nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct, ValidationError, convert, field

from walkserve_sdk import BadRequest, Part, WalkserveError
from walkserve_sdk.stalls import StreamWait

# --- values -------------------------------------------------------------------------------------------


class Array(Struct, frozen=True, tag="array"):
    """A small tensor that rides inline. ``data`` is C-contiguous, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class TensorRef(Struct, frozen=True, tag="ref", weakref=True):
    """Where a large tensor is: a slot in its owner's arena, held until the owner is told to free it."""

    owner: str  # the worker's address
    key: int
    segment: str
    offset: int
    size_bytes: int
    dtype: str
    shape: tuple[int, ...]


class Blob(Struct, frozen=True, tag="bytes"):
    """Bytes as they came: a file that a component will decode."""

    data: bytes


Plain = bool | int | float | str | Array | TensorRef | None
if TYPE_CHECKING:
    Field: TypeAlias = "Value"
else:
    Field = Plain | list[Plain]


class Named(Struct, frozen=True, tag="named"):
    """A record: values by name. It holds flat lists, and neither bytes nor records."""

    fields: dict[str, Field]


Single = Plain | Blob | Named
DEEPEST = 3
"""Lists in lists: a loop around a Fan may collect what its rows gave, each of which has collected some."""
if TYPE_CHECKING:
    Value: TypeAlias = "Single | list[Value]"
else:  # as deep as that, for what reads messages knows no alias that is in itself
    Value = Single | list[Single | list[Single | list[Single]]]
"""Numbers and text are readable by everyone; arrays and references only pass through the conductor."""


def size_bytes(value: Any) -> int:
    """About how much of a message or of memory a value takes, be it a tensor, a ``Value`` or neither."""
    match value:
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case Blob() | Array():
            return len(value.data)
        case TensorRef():
            return value.size_bytes
        case list() | tuple():
            return sum(map(size_bytes, value))
        case Named(fields=fields):
            return size_bytes(fields)
        case dict():
            return sum(map(size_bytes, value.values()))
        case None:
            return 0
        case _:
            return int(getattr(value, "nbytes", 8))


def references(value: Value) -> list[TensorRef]:
    """What is lent within a value; whoever has read it tells the owner."""
    match value:
        case TensorRef():
            return [value]
        case list():
            return [lent for one in value for lent in references(one)]
        case Named(fields=fields):
            return [lent for one in fields.values() for lent in references(one)]
        case _:
            return []


def depth(value: Any) -> int:
    """How many lists are around its innermost values; a message holds ``DEEPEST``."""
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


_FLAT = frozenset((bool, int, float, str, type(None), Array, TensorRef))


def unfit(value: Any) -> str:
    """Why no message can hold a list or a record, or ``""``; asked before anything of it is lent."""
    match value:
        case list() if not _FLAT.issuperset(map(type, value)):
            if depth(value) > DEEPEST:
                return f"lists of values may be {DEEPEST} deep, not {depth(value)}"
            return next(filter(None, map(unfit, value)), "")
        case dict():
            return next((why for name, one in value.items() if (why := _unfit_in_record(name, one))), "")
    return ""


def _unfit_in_record(name: Any, value: Any) -> str:
    if not isinstance(name, str):
        return f"a record has names, and {name!r} is a {type(name).__name__}"
    if isinstance(value, bytes | dict | Blob | Named):
        return f"{name}: a record may not hold a {type(value).__name__}"
    for one in value if isinstance(value, list) else ():
        if isinstance(one, list | bytes | dict | Blob | Named):
            return f"{name}: a list in a record may not hold a {type(one).__name__}"
    return ""


class Message(Struct, frozen=True, tag=True):
    """Anything one process says to another."""


class Unreadable(Message, frozen=True):
    """Never sent: what a mailbox gives in place of a message that it cannot read.

    Args:
        kind: What it said it was; "unknown" if it said nothing.
        number: Of the request it was about; -1 if it said none.
        tags: Its clients' tags of the requests it was about.
    """

    kind: str
    number: int = -1
    tags: tuple[int, ...] = ()

    @property
    def fault(self) -> Fault:
        """For the clients of these requests."""
        return Fault(f"a {self.kind} of this request could not be read", code="unreadable")


class Fault(Struct, frozen=True):
    """An error on its way to a client: no traceback, no path."""

    message: str
    status: int = 500
    type: str = "server_error"
    code: str | None = None
    param: str | None = None

    @classmethod
    def of(cls, error: WalkserveError) -> Fault:
        """An expected error, in its own words."""
        return cls(str(error), error.status, error.type, error.code, error.param)


# --- client (the HTTP process, or an Engine's caller) to conductor ------------------------------------


class SentPart(Struct, frozen=True):
    """A request's ``Part``: ``data`` is UTF-8 where the kind is text."""

    kind: str
    data: bytes
    name: str = ""

    @classmethod
    def of(cls, part: Part) -> SentPart:
        return cls(part.kind, part.data.encode() if isinstance(part.data, str) else part.data, part.name)

    @property
    def part(self) -> Part:
        """As it was."""
        return Part(self.kind, self.data.decode() if self.kind == "text" else self.data, self.name)


class Submit(Message, frozen=True):
    """Serve this request, checked by the model's own gate; answer to ``client`` under ``tag``.

    ``label`` is its id as its client knows it, for logs. It fails when it has not ended ``timeout_s`` after
    its client asked for it, of which ``passed_s`` are over. Of the streams that are the client's to write it
    will write those in ``writes``; the others end at once.
    """

    client: str
    tag: int
    model: str
    parts: tuple[SentPart, ...]
    outputs: tuple[str, ...]
    options: Any  # the family's Options: the dataclass itself in one process, a mapping between two
    seed: int
    given: tuple[str, ...] = ()
    label: str = ""
    timeout_s: float | None = None
    passed_s: float = 0.0
    writes: tuple[str, ...] = ()


class WriteStream(Message, frozen=True):
    """Items of a stream that the client writes, from index ``first``."""

    client: str
    tag: int
    stream: str
    first: int
    items: list[Value]


class FinishStream(Message, frozen=True):
    """The client writes no more to this stream; it wrote ``total`` items."""

    client: str
    tag: int
    stream: str
    total: int


class Cancel(Message, frozen=True):
    """Whoever asked has left; give back everything."""

    client: str
    tag: int


class Attach(Message, frozen=True):
    """Tell ``client`` the server's state, now and whenever it changes."""

    client: str


class Drain(Message, frozen=True):
    """Accept nothing more; stop when what runs has ended."""


class Halt(Message, frozen=True):
    """Stop now."""


# --- conductor to client ------------------------------------------------------------------------------


class Admitted(Message, frozen=True):
    """The request is given its caches and runs. So many tokens its caches start with."""

    tag: int
    input_tokens: int = 0


class ItemsTaken(Message, frozen=True):
    """Of a stream that the client writes, items below ``taken`` are read.

    ``is_discarded``: nobody reads any more; what is still written goes nowhere.
    """

    tag: int
    stream: str
    taken: int
    is_discarded: bool = False


class RequestEnded(Message, frozen=True):
    """All tracks ended well. ``emitted`` says how many items of each output there are in all."""

    tag: int
    finish_reason: str
    seed: int
    emitted: dict[str, int]
    usage: dict[str, int]
    counts: dict[str, int]


class RequestFailed(Message, frozen=True):
    tag: int
    fault: Fault


class WorkerInfo(Struct, frozen=True):
    name: str
    address: str
    pid: int
    state: str  # "starting" | "ready" | "lost"
    components: dict[str, str]  # name -> device and backend, in words
    pools: dict[str, tuple[int, int]] = field(default_factory=dict)  # component -> (pages, of them reserved)
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)  # -> (of one request, of the pool)
    budgets: tuple[TokenBudget, ...] = ()


class ModelInfo(Struct, frozen=True):
    name: str
    family: str
    checkpoint: str
    workers: tuple[WorkerInfo, ...]
    running: int
    waiting: int


class WalkTime(Struct, frozen=True):
    """One Walk as the conductor saw it; ``ended_ns`` is 0 while it runs. Times as in ``Profiled``."""

    track: str
    walk: int
    graph: str
    worker: str
    began_ns: int
    ended_ns: int
    ended_by: str
    turns: int
    bytes_in: int  # of the values it was given
    bytes_out: int  # and of those its outcome held


class Traced(Message, frozen=True):
    """One request in the conductor, said when it ends; only where profiles are on.

    ``workers`` are the addresses that say ``Profiled`` about it, ``marks`` what happened and when.
    """

    tag: int
    workers: tuple[str, ...]
    marks: tuple[tuple[str, int], ...]
    walks: tuple[WalkTime, ...]


class ServerState(Message, frozen=True):
    """``phase`` is "starting", "ready", "draining" or "stopped"; ``detail`` says what it waits for."""

    phase: str
    detail: str
    pid: int
    models: tuple[ModelInfo, ...]


# --- worker to client ---------------------------------------------------------------------------------


class Emitted(Message, frozen=True):
    """What the rows of a batch gave to an output, as two columns: whose it is, and the item.

    Items of one tag are in order, and it may be there several times. ``indexes`` is a third column where
    they come from rows of Fans: which row of its Fan each is from, and those of one row are in order.
    """

    output: str
    tags: list[int]
    items: list[Value]
    indexes: list[int] = []

    def rows(self) -> Iterator[tuple[int, Value, int | None]]:
        """(tag, item, index), one by one.

        Raises:
            ValueError: The columns are not of one length.
        """
        indexes: Iterable[int | None] = self.indexes or repeat(None, len(self.tags))
        return zip(self.tags, self.items, indexes, strict=True)

    def alone(self) -> list[Emitted]:
        """Each item in a message of its own."""
        return [
            Emitted(self.output, [tag], [item], [] if index is None else [index])
            for tag, item, index in self.rows()
        ]


class Tallied(Struct, frozen=True):
    """What a worker has run of one method since it started.

    ``rows_up_to`` and ``time_up_to`` count batches by size: of up to 1, 2, 4, … rows, and of up to 0.1, 0.2,
    0.4, … ms, each without those before it; the last of either also has all that are larger.
    """

    component: str
    method: str
    batches: int
    broken: int  # batches that raised; their rows were run one by one
    rows: int
    tokens: int
    busy_ns: int
    rows_up_to: tuple[int, ...]
    time_up_to: tuple[int, ...]
    spared: int = 0  # rows that were not run, as an equal one was


class Moved(Struct, frozen=True):
    """Of a component: how often a request's cache has moved to host memory and back, and how many pages."""

    component: str
    caches_out: int
    caches_back: int
    pages_out: int
    pages_back: int


class Held(Struct, frozen=True):
    """Of a component: pages that branches hold, one that several share once, and the most since the start."""

    component: str
    pages: int
    most: int


class Reported(Message, frozen=True):
    """A worker's counts, for metrics."""

    worker: str
    address: str
    methods: tuple[Tallied, ...]
    caches: tuple[Moved, ...] = ()
    held: tuple[Held, ...] = ()


class MethodTotal(Struct, frozen=True):
    """One method's share in one request. What calls waited for: streams, their branch, and a batch."""

    component: str
    method: str
    calls: int
    rows: int  # of the batches they were in, their own included
    tokens: int
    busy_ns: int  # in batches that held a row of this request
    cost_ns: int  # the same, each batch divided by its rows
    stream_wait_ns: int
    branch_wait_ns: int
    batch_wait_ns: int


class EdgeTotal(Struct, frozen=True):
    """What one component gave to a stream or an output, or read from a stream, in one request."""

    kind: str  # "stream" | "output"
    name: str
    component: str
    is_read: bool
    items: int
    size_bytes: int


class Profiled(Message, frozen=True):
    """One request in one worker, said when it lets go of it; only where profiles are on.

    ``steps`` and ``flows`` are rows of little-endian 64-bit integers, as ``worker/profile.py`` writes them
    and ``profiles/report.py`` reads them. Times are nanoseconds of CLOCK_MONOTONIC, which all processes of
    a host share.
    """

    tag: int
    worker: str
    address: str
    methods: tuple[MethodTotal, ...]
    edges: tuple[EdgeTotal, ...]
    tracks: tuple[str, ...]
    streams: tuple[str, ...]
    steps: bytes
    flows: bytes
    uncounted: int  # calls beyond those that ``steps`` has room for; totals have them


# --- conductor to worker ------------------------------------------------------------------------------


class OpenRequest(Message, frozen=True):
    """A request exists. Sent to every worker of its model, in the order of numbers."""

    number: int
    client: str
    tag: int
    options: Any
    seed: int
    outputs: tuple[str, ...]
    label: str = ""  # its id as its client knows it, for logs


class SetOptions(Message, frozen=True):
    """Its options are these from now on: a limit that its client did not set was cut to what fits."""

    number: int
    options: Any


class StartWalk(Message, frozen=True):
    """``most``: tokens that a branch of each cached component may come to, only of a graph with a Fan."""

    number: int
    track: str
    walk: int
    graph: str
    inputs: dict[str, Value]
    most: dict[str, int] = {}


class ForkBranch(Message, frozen=True):
    """``branch`` is None where ``to`` begins anew."""

    number: int
    track: str
    walk: int
    component: str
    branch: str | None
    to: str


class EndStream(Message, frozen=True):
    """The stream's writer has ended; it wrote ``total`` items, some may still be on their way."""

    number: int
    stream: str
    total: int


class DiscardStream(Message, frozen=True):
    """The stream's reader has ended: what is still written to it goes nowhere."""

    number: int
    stream: str


class Watch(Message, frozen=True):
    """Say ``Stuck`` once, as soon as all that runs of this request in this worker waits for streams."""

    number: int
    round: int


class CloseRequest(Message, frozen=True):
    """Drop everything of this request, whatever state it is in; answer ``RequestClosed``."""

    number: int


class PeersChanged(Message, frozen=True):
    """Where the model's workers are: rank name to address."""

    addresses: dict[str, str]


class Calibrate(Message, frozen=True):
    """A warm-up has passed: measure the token budgets, and answer ``Calibrated``."""


class StopWorker(Message, frozen=True):
    """Leave."""


# --- client to worker ---------------------------------------------------------------------------------


class Report(Message, frozen=True):
    """Tell ``client`` what has been run, with ``Reported``."""

    client: str


# --- worker to worker; of a stream that the client writes, the conductor stands in for its writer -------


class StreamItems(Message, frozen=True):
    """Items of a stream, from index ``first``; acknowledged to whoever writes it."""

    number: int
    stream: str
    first: int
    items: list[Value]


class StreamTaken(Message, frozen=True):
    """The reader has handed over items below ``taken``: the writer may free them.

    ``has_sent``: the request's client has something already, of what the reader's side knows.
    """

    number: int
    stream: str
    taken: int
    has_sent: bool = False


class FreeTensors(Message, frozen=True):
    """Nobody reads these any more."""

    keys: list[int]


# --- worker to conductor ------------------------------------------------------------------------------


class PoolInfo(Struct, frozen=True):
    """One cached component's pool: how many pages, tokens per page, and the longest sequence."""

    pages: int
    page_size: int
    context: int


class Loading(Message, frozen=True):
    """A component is being loaded; for progress bars."""

    worker: str
    component: str
    done: bool


class TokenBudget(Struct, frozen=True):
    """How many tokens of long rows one batch of a method may have.

    ``tokens`` where nobody would notice a gap; ``beside`` rows whose client has something already, as pairs:
    up to so many tokens in the cache, so many; the last pair holds beyond as well.
    """

    component: str
    method: str
    tokens: int
    beside: tuple[tuple[int, int], ...] = ()


class WorkerReady(Message, frozen=True):
    """It has loaded. ``calibrates``: it would measure its budgets when a warm-up has passed."""

    worker: str
    address: str
    pid: int
    components: dict[str, str]
    pools: dict[str, PoolInfo]
    budgets: tuple[TokenBudget, ...] = ()
    calibrates: bool = False


class Calibrated(Message, frozen=True):
    """Its budgets, measured."""

    worker: str
    address: str
    budgets: tuple[TokenBudget, ...]


class WorkerFailed(Message, frozen=True):
    """It cannot start, and why."""

    worker: str
    address: str
    fault: Fault


class WorkerLost(Message, frozen=True):
    """Said by whoever watches the processes: this incarnation is gone."""

    worker: str
    address: str
    why: str


class WalkEnded(Message, frozen=True):
    """A Walk is over. ``wrote`` counts its own items per stream, ``emitted`` the request's per output."""

    number: int
    track: str
    walk: int
    ended_by: str
    turns: int
    sampled: int
    values: dict[str, Value]
    wrote: dict[str, int]
    emitted: dict[str, int]
    counts: dict[str, int]


class WalkBroke(Message, frozen=True):
    """A Walk failed; what it had written and emitted before counts. No track: the whole request failed."""

    number: int
    track: str
    walk: int
    fault: Fault
    wrote: dict[str, int] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)


class BranchForked(Message, frozen=True):
    number: int
    track: str
    walk: int


class Blocked(Message, frozen=True):
    """A call of this request waits for room in a stream; said once, by each worker that sees it."""

    number: int


class Stuck(Message, frozen=True):
    """All that runs of this request in one worker waits for streams. ``round`` is that of its ``Watch``.

    ``wrote`` and ``read`` are of the stream ends that are here: (items written, and of them acknowledged),
    (items arrived, and of them handed over). A stream that nobody reads any more is left out.
    """

    number: int
    round: int
    address: str
    wrote: dict[str, tuple[int, int]]
    read: dict[str, tuple[int, int]]
    waits: tuple[StreamWait, ...]


class RequestClosed(Message, frozen=True):
    """Nothing of this request is left in this worker."""

    number: int
    worker: str
    address: str


# --- unions, one per receiver -------------------------------------------------------------------------

ToConductor = (
    Submit
    | WriteStream
    | FinishStream
    | Cancel
    | Attach
    | Drain
    | Halt
    | Loading
    | WorkerReady
    | Calibrated
    | WorkerFailed
    | WorkerLost
    | WalkEnded
    | WalkBroke
    | BranchForked
    | Blocked
    | Stuck
    | StreamTaken
    | RequestClosed
)
ToWorker = (
    OpenRequest
    | SetOptions
    | StartWalk
    | ForkBranch
    | EndStream
    | DiscardStream
    | Watch
    | CloseRequest
    | PeersChanged
    | Calibrate
    | StopWorker
    | Report
    | StreamItems
    | StreamTaken
    | FreeTensors
)
ToClient = (
    Admitted
    | ItemsTaken
    | RequestEnded
    | RequestFailed
    | ServerState
    | Loading
    | Emitted
    | Reported
    | Traced
    | Profiled
)

Post = tuple[str, Message]
"""An address and what is said to it."""


OptionsT = TypeVar("OptionsT")


def restore_options(kind: type[OptionsT], sent: Any) -> OptionsT:
    """The family's Options again: within a process they travel as they are, between two as a mapping.

    Raises:
        BadRequest: They are not this family's; somebody else's gate made them.
    """
    if isinstance(sent, kind):
        return sent
    try:
        return convert(sent, kind)
    except ValidationError as error:
        raise BadRequest(f"options: {error}", param="options") from error
