"""What a worker holds of one request: its runs, its branches, its ends of streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from walkserve.cache.pages import PageTable
from walkserve.streams.ends import ReadEnd, WriteEnd

if TYPE_CHECKING:
    from walkserve.messages import OpenRequest
    from walkserve.worker.profile import RequestProfile
    from walkserve.worker.samples import Samples
    from walkserve.worker.walk_run import Call, WalkRun


_contents = count(1)


class Branch:
    """One continuation of one component for one request: pages, state, and what sampling has seen.

    Calls that write it, or that have a state, take turns; ``waiting`` holds those whose turn has not come.

    Attributes:
        content: Branches with the same number hold the same; 0 is nothing. None after something was kept,
            until somebody asks.
    """

    __slots__ = ("content", "is_busy", "is_of_row", "seen", "state", "table", "waiting")

    def __init__(self, table: PageTable | None) -> None:
        self.table = table
        self.state: Any = None
        self.seen: Any = None
        self.content: int | None = 0
        self.is_busy = False
        self.is_of_row = False  # a fork that is dropped when a row of a Fan ends
        self.waiting: deque[Call] = deque()

    def fork(self) -> Branch:
        """A second continuation of what is committed: pages and state are shared until one is written."""
        other = Branch(self.table.fork() if self.table is not None else None)
        other.state = self.state
        other.seen = self.seen
        other.content = self.content_id()
        return other

    def content_id(self) -> int:
        """What it holds, as a number that only forks of it share."""
        if self.content is None:
            self.content = next(_contents)
        return self.content

    def remember(self) -> Callable[[], None]:
        """What brings it back to where it is now."""
        length = self.table.length if self.table is not None else 0
        state, seen, content = self.state, self.seen, self.content

        def restore() -> None:
            if self.table is not None:
                self.table.rewind(length)
            self.state, self.seen, self.content = state, seen, content

        return restore

    def drop(self) -> None:
        """Give back the pages."""
        if self.table is not None:
            self.table.drop()


class Live:
    """One open request in one worker."""

    __slots__ = (
        "branches",
        "emitted",
        "exports",
        "fans",
        "has_blocked",
        "has_sent_elsewhere",
        "in_flight",
        "is_closed",
        "opened",
        "options",
        "parked",
        "profile",
        "read_ends",
        "runs",
        "samples",
        "write_ends",
    )

    def __init__(
        self,
        opened: OpenRequest,
        options: Any,
        profile: RequestProfile | None = None,
        samples: Samples | None = None,
    ) -> None:
        self.opened = opened
        self.options = options
        self.profile = profile  # None where profiles are off
        self.samples = samples  # what notes the rows of a warm-up; None of any other request
        self.runs: dict[tuple[str, int], WalkRun] = {}
        self.branches: dict[tuple[str, str], Branch] = {}
        self.read_ends: dict[str, ReadEnd] = {}
        self.write_ends: dict[str, WriteEnd] = {}
        self.has_blocked = False  # a stream of it was full, and the conductor knows
        self.parked: dict[str, list[Call]] = {}  # by the stream they wait for, at either end
        self.emitted: dict[str, int] = {}
        self.fans = 0  # that have begun
        self.has_sent_elsewhere = False
        self.exports: set[int] = set()  # tensors lent to others, freed at the latest with the request
        self.in_flight = 0  # rows in a batch that is not finished
        self.is_closed = False

    @property
    def has_sent(self) -> bool:
        """Whether the client has something of it already, from here or from a worker further on."""
        return self.has_sent_elsewhere or bool(self.emitted)
