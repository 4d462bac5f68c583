"""Where everything of a picture lies: a lane per track, its Walks in rows, streams in the gutters between.

::

    track    ┌ walk ───────┐ ┌ walk ──────────────┐
             │             │ │        node        │────▶ output
             └─────────────┘ └─────────┼──────────┘
                               ╭───────▼────────╮
    gutter                     │ stream         │         a pipe above who reads it
                               ╰──┬─────────────╯
    track           ┌ walk ───────▼───────┐
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from walkserve.graph.drawing import words
from walkserve.graph.drawing.blocks import Palette
from walkserve.graph.drawing.panels import Panel
from walkserve.graph.drawing.scene import width
from walkserve_sdk import Model, Output, Stream, WalkGraph

MARGIN = 28.0
WIDEST_ROW = 1300.0  # of more panels, the next row has the rest
BETWEEN_PANELS = 40.0
INSIDE = 14.0  # between a lane's edge and its panels
GUTTER = 14.0  # of a gutter in which nothing lies
CHANNEL = 16.0  # between two lines beside each other
PIPE = 28.0
PIPE_STEP = 42.0
PILL = 42.0
PILL_STEP = 50.0


@dataclass(frozen=True)
class Meeting:
    """Where a line meets a panel's edge, across and down the picture."""

    target: Stream | Output
    x: float
    y: float


@dataclass
class Row:
    """Panels beside each other."""

    lane: str
    panels: list[Panel]
    is_first: bool = True
    is_last: bool = True
    lefts: list[float] = field(default_factory=list)
    top: float = 0.0

    @property
    def height(self) -> float:
        return max(panel.height for panel in self.panels)

    @property
    def right(self) -> float:
        return self.lefts[-1] + self.panels[-1].width

    def place(self, left: float) -> None:
        """Give every panel its x."""
        for panel in self.panels:
            self.lefts.append(left)
            left += panel.width + BETWEEN_PANELS

    def rises(self) -> list[Meeting]:
        """Streams that are read, at the upper edges of panels."""
        return [
            Meeting(end.target, left + end.x, self.top)
            for panel, left in zip(self.panels, self.lefts, strict=True)
            for end in panel.rises
        ]

    def drops(self) -> list[Meeting]:
        """Streams and outputs that are written, at the lower edges of panels."""
        return [
            Meeting(end.target, left + end.x, self.top + panel.height)
            for panel, left in zip(self.panels, self.lefts, strict=True)
            for end in panel.drops
        ]


@dataclass
class Pipe:
    """A stream, as wide as the lines that meet it are apart. ``level`` counts from the top of its gutter."""

    stream: Stream
    left: float
    right: float
    level: int = 0
    y: float = 0.0


@dataclass
class Gutter:
    """What lies above a row, or below the last: the outputs of the row above, streams that pass, pipes."""

    outputs: int
    passing: list[Stream]
    pipes: list[Pipe]
    top: float = 0.0

    @property
    def passing_top(self) -> float:
        return self.top + GUTTER + PILL_STEP * self.outputs

    @property
    def height(self) -> float:
        levels = max((pipe.level + 1 for pipe in self.pipes), default=0)
        beyond = self.passing_top - self.top + CHANNEL * len(self.passing)
        return beyond + PIPE_STEP * levels + (4 if levels else 0)

    def place(self, top: float) -> None:
        """Give everything its y."""
        self.top = top
        first = self.passing_top + CHANNEL * len(self.passing) + 2
        for pipe in self.pipes:
            pipe.y = first + PIPE_STEP * pipe.level

    def output_y(self, n: int) -> float:
        """The middle of the n-th output that leaves here."""
        return self.top + GUTTER + PILL_STEP * n + PILL / 2 - 6

    def passing_y(self, stream: Stream) -> float:
        """Where a stream that goes far runs to its channel."""
        return self.passing_top + CHANNEL * self.passing.index(stream) + 4


class Arrangement:
    """Rows and gutters of a family at their places.

    Args:
        top: Where the first gutter begins.
    """

    def __init__(self, model: type[Model], palette: Palette, top: float) -> None:
        lanes = words.lanes(model)
        self.rows = [row for name, graphs in lanes for row in _rows(name, graphs, palette)]
        self.far = [stream for stream in model.spec.streams.values() if self._goes_far(stream)]
        names = max((width(name, "lane") for name, _ in lanes), default=0.0)
        self.channels = MARGIN + max(names, width("before admission", "lane-note")) + 26
        left = self.channels + CHANNEL * len(self.far) + (8 if self.far else 0)
        for row in self.rows:
            row.place(left)
        self.right = max((row.right for row in self.rows), default=left) + INSIDE
        self.gutters = [self._gutter(index) for index in range(len(self.rows) + 1)]
        self.bottom = self._place(top)

    def channel(self, stream: Stream) -> float:
        """Beside the rows, where a stream goes down that does not go to the next row."""
        return self.channels + CHANNEL * self.far.index(stream)

    def pipe(self, stream: Stream) -> tuple[Pipe, int]:
        """A stream's pipe, and the number of the row below it."""
        return next(
            (pipe, index)
            for index, gutter in enumerate(self.gutters)
            for pipe in gutter.pipes
            if pipe.stream is stream
        )

    def _place(self, y: float) -> float:
        for row, gutter in zip(self.rows, self.gutters, strict=False):
            gutter.place(y)
            row.top = y + gutter.height + (INSIDE if row.is_first else 0)
            y = row.top + row.height + (INSIDE if row.is_last else 0)
        self.gutters[-1].place(y)
        return y + self.gutters[-1].height

    def _goes_far(self, stream: Stream) -> bool:
        reads = [n for n, row in enumerate(self.rows) if any(m.target is stream for m in _ends(row, "rises"))]
        writes = [
            n for n, row in enumerate(self.rows) if any(m.target is stream for m in _ends(row, "drops"))
        ]
        return any(row + 1 != reads[0] for row in writes)

    def _gutter(self, index: int) -> Gutter:
        drops = self.rows[index - 1].drops() if index else []
        passing = [each.target for each in drops if each.target in self.far]
        return Gutter(
            sum(isinstance(each.target, Output) for each in drops),
            [each for each in dict.fromkeys(passing) if isinstance(each, Stream)],
            self._pipes(index, drops),
        )

    def _pipes(self, index: int, drops: Sequence[Meeting]) -> list[Pipe]:
        """Those of streams whose first reading row this is; none on top of another."""
        made: list[Pipe] = []
        rises = self.rows[index].rises() if index < len(self.rows) else []
        before = {each.target for row in self.rows[:index] for each in row.rises()}
        for stream in dict.fromkeys(each.target for each in rises):
            if not isinstance(stream, Stream) or stream in before:
                continue
            is_far = stream in self.far
            meets = [each.x for each in rises if each.target is stream]
            meets += [each.x for each in drops if each.target is stream and not is_far]
            left, right = min(meets) - 20, max(meets) + 20
            right = max(right, left + width(words.stream_label(stream), "pipe") + 32)
            pipe = Pipe(stream, left, right)
            while any(
                other.level == pipe.level
                and (is_far or (other.left - 16 < right and left < other.right + 16))
                for other in made
            ):
                pipe.level += 1
            made.append(pipe)
        return made


def _ends(row: Row, which: str) -> list[Meeting]:
    return [Meeting(end.target, end.x, 0) for panel in row.panels for end in getattr(panel, which)]


def _rows(lane: str, graphs: Sequence[WalkGraph], palette: Palette) -> list[Row]:
    rows: list[list[WalkGraph]] = []
    taken = 0.0
    for graph in graphs:
        across = Panel(graph, palette, is_last=True).width + BETWEEN_PANELS
        if not rows or taken + across > WIDEST_ROW:
            rows.append([])
            taken = 0.0
        rows[-1].append(graph)
        taken += across
    return [
        Row(
            lane,
            [Panel(graph, palette, is_last=graph is row[-1]) for graph in row],
            is_first=row is rows[0],
            is_last=row is rows[-1],
        )
        for row in rows
    ]
