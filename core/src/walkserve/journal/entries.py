"""What a journal says, line by line: one entry for each thing that a request's tracks asked for or were told.

Orders and facts stand in the order in which the conductor gave and heard them, which is all a track's course
depends on. There is an entry per Walk, never one per token; what a client wrote to streams while the request
ran is there item by item.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from walkserve.journal.notes import BytesNote, Note
from walkserve.messages import Fault, PoolInfo

FORMAT = 1
"""Raised when a reader of an earlier one would misunderstand a journal."""


def _words(name: str) -> str:
    """``WalkStarted`` -> ``walk_started``."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()


class Entry(Struct, frozen=True, kw_only=True, tag_field="entry", tag=_words, omit_defaults=True):
    """One line. ``at_ms`` counts from when the request was opened."""

    at_ms: float


class PartNote(Struct, frozen=True, omit_defaults=True):
    """One part of a request: text as it came, media by reference."""

    kind: str
    text: str | None = None
    media: BytesNote | None = None
    name: str = ""


class Origin(Struct, frozen=True):
    """What serves a model: its family, the plugin that brings it, and the checkpoint."""

    family: str
    plugin: str
    version: str  # of the plugin
    checkpoint: str  # as a user named it


class Opened(Entry, frozen=True, kw_only=True):
    """A request was accepted.

    Args:
        journal: The format of this file.
        time: Of day, in UTC.
        number: What the runtime calls the request.
        label: Its id as its client knows it.
        model: As it is served.
        options: All of the family's, complete; ``given`` names those the client set.
        pools: What each cached component could hold; a budget is held against them.
        writes: Streams that its client was going to write.
    """

    journal: int
    time: str
    number: int
    label: str
    model: str
    origin: Origin
    parts: tuple[PartNote, ...]
    outputs: tuple[str, ...]
    options: dict[str, Any]
    given: tuple[str, ...]
    seed: int
    pools: dict[str, PoolInfo] = field(default_factory=dict)
    writes: tuple[str, ...] = ()


class Sized(Entry, frozen=True, kw_only=True):
    """Its sizes are known.

    Args:
        budget: Cached component, or a branch of one (``llm@no_text``) -> tokens it starts with, and the most
            it may add.
        pages: Cached component -> pages to reserve.
        cut: The option that was cut to what fits, with its new value.
    """

    budget: dict[str, tuple[int, int]] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    cut: dict[str, Any] = field(default_factory=dict)


class Admitted(Entry, frozen=True, kw_only=True):
    """It was given its caches, and its tracks start."""


class WalkStarted(Entry, frozen=True, kw_only=True):
    """A track asked for a Walk; the track ``prepare`` is what runs before admission."""

    track: str
    walk: int
    graph: str
    inputs: dict[str, Note] = field(default_factory=dict)


class WalkEnded(Entry, frozen=True, kw_only=True):
    """A Walk is over: what its track was told, and what it counted."""

    track: str
    walk: int
    ended_by: str
    turns: int = 0
    sampled: int = 0
    values: dict[str, Note] = field(default_factory=dict)
    wrote: dict[str, int] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class WalkBroke(Entry, frozen=True, kw_only=True):
    """A Walk failed, which its track was told. No track: the whole request failed in a worker."""

    track: str
    walk: int
    fault: Fault
    wrote: dict[str, int] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)


class ForkStarted(Entry, frozen=True, kw_only=True):
    """A track asked for a fork; ``walk`` is the number of the Walk after it."""

    track: str
    walk: int
    component: str
    branch: str | None
    to: str


class Forked(Entry, frozen=True, kw_only=True):
    """The fork is made."""

    track: str
    walk: int


class ClientWrote(Entry, frozen=True, kw_only=True):
    """Its client wrote items to a stream, from index ``first``."""

    stream: str
    first: int
    items: list[Note]


class ClientFinished(Entry, frozen=True, kw_only=True):
    """Its client writes no more to a stream; it wrote ``total`` items."""

    stream: str
    total: int


class TrackFinished(Entry, frozen=True, kw_only=True):
    """A track returned, with the finish reason it gave."""

    track: str
    reason: str | None = None


class Ended(Entry, frozen=True, kw_only=True):
    """All tracks have returned: what its client was told."""

    finish_reason: str
    emitted: dict[str, int] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class Failed(Entry, frozen=True, kw_only=True):
    """The request failed: by its plan, by a Walk that no track took, by its time, or with a worker."""

    fault: Fault


class Cancelled(Entry, frozen=True, kw_only=True):
    """Whoever asked has left."""


class BrokenOff(Entry, frozen=True, kw_only=True):
    """What came next could not be written down; the request went on without its journal."""

    why: str


Line = (
    Opened
    | Sized
    | Admitted
    | WalkStarted
    | WalkEnded
    | WalkBroke
    | ForkStarted
    | Forked
    | ClientWrote
    | ClientFinished
    | TrackFinished
    | Ended
    | Failed
    | Cancelled
    | BrokenOff
)
END = (Ended, Failed, Cancelled)
"""What a whole journal ends with."""
