"""The parts of a graph as blocks: how large each is, where lines enter and leave it, and its drawing.

Values flow from left to right along a block's *rail*. Streams come from above and are read on a node's top;
what a node writes leaves below, so that neither crosses a node::

              rise                      rail: values of the turn or the Walk
        ┌───────┼──────────┐            rise: a stream that is read
        │   ┌───▼────┐     │            drop: a stream or an output that is written
     ───┼──▶│  node  ├─────┼───▶
        │   └─────┬──┘     │
        └─────────┼────────┘
                  drop
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from walkserve.graph.drawing import words
from walkserve.graph.drawing.scene import (
    FRAMES,
    LINES,
    NODES,
    TEXT,
    Box,
    Line,
    Scene,
    Words,
    free_start,
    width,
)
from walkserve_sdk import Fan, Loop, Node, Output, Parallel, Sequential, Stream
from walkserve_sdk.graph import Part

PORT = 22.0  # between two lines that enter or leave one node
ARROW = 34.0  # the shortest line with a head
LINE = 16.0  # of text


@dataclass(frozen=True)
class End:
    """Where a line meets the edge of a block: a stream above, a stream or an output below."""

    target: Stream | Output
    x: float

    def moved(self, by: float) -> End:
        return End(self.target, self.x + by)


@dataclass(frozen=True)
class Exit:
    """Where an output leaves a block to the right."""

    output: Output
    y: float


class Palette:
    """Which colour belongs to which component and which stream: their places in the declaration."""

    def __init__(self, components: Sequence[str], streams: Sequence[str]) -> None:
        self._components = {name: hue for hue, name in enumerate(components)}
        self._streams = {name: hue for hue, name in enumerate(streams)}

    def component(self, name: str) -> int:
        return self._components[name]

    def target(self, target: Stream | Output) -> int | None:
        """Of a stream; outputs have one colour of their own."""
        return self._streams[target.name] if isinstance(target, Stream) else None


def line_style(target: Stream | Output) -> str:
    """How a line to or from it is drawn."""
    return "stream" if isinstance(target, Stream) else "output"


class Block:
    """A part with its size; ``rail`` is measured from its top, ends from its left."""

    width: float
    height: float
    rail: float
    rises: tuple[End, ...] = ()
    drops: tuple[End, ...] = ()
    exits: tuple[Exit, ...] = ()

    def draw(self, scene: Scene, x: float, y: float) -> None:
        """Put it into a scene, its upper left corner at (x, y)."""
        raise NotImplementedError


def block(part: Part, palette: Palette, *, is_last: bool) -> Block:
    """Measure a part.

    Args:
        is_last: Nothing stands to the right of it, so that its outputs may leave there.
    """
    match part:
        case Node():
            return NodeBlock(part, palette, is_last)
        case Sequential():
            return SequenceBlock(part.parts, palette, is_last)
        case Parallel():
            return ParallelBlock(part, palette)
        case Loop():
            return LoopBlock(part, palette, is_last)
        case Fan():
            return FanBlock(part, palette, is_last)


class NodeBlock(Block):
    """One call: component and method, values in and out, and what is special about it."""

    def __init__(self, node: Node, palette: Palette, is_last: bool) -> None:
        takes, gives = words.node_flow(node)
        flow = f"{takes} → {gives}".strip() if gives else f"{takes} →"
        is_long = width(flow, "flow") > 230 and takes and gives
        rows = [takes, f"→ {gives}"] if is_long else [flow]
        self._title = words.node_title(node)
        self._lines = [(row, "flow") for row in rows if row != "→"]
        notes = words.node_notes(node)
        self._lines += [(notes, "note")] if notes else []
        self._palette = palette
        self._hue = palette.component(node.component.name)
        self._is_dashed = node.when is not None
        targets = list(dict.fromkeys(target for _, target in node.to))
        leaving = [each for each in targets if is_last and isinstance(each, Output)]
        dropped = [each for each in targets if each not in leaving]
        text = max(width(self._title, "node"), *(width(text, style) for text, style in self._lines), 0)
        self.width = max(text + 34, PORT * (len(node.reads) + len(dropped)) + 28)
        self.height = max(26 + LINE * len(self._lines) + 8, 44.0)
        self.rail = self.height / 2
        self.rises = tuple(End(stream, 20 + PORT * n) for n, stream in enumerate(node.reads))
        self.drops = tuple(End(each, self.width - 20 - PORT * n) for n, each in enumerate(dropped))
        self.exits = tuple(Exit(each, self.height - 9 - 10 * n) for n, each in enumerate(leaving))

    def draw(self, scene: Scene, x: float, y: float) -> None:
        scene.add(
            NODES,
            Box(x, y, self.width, self.height, "node", 7, self._hue, self._is_dashed),
            Box(x, y, 6, self.height, "node-bar", 3, self._hue),
        )
        for end in self.rises:
            points = ((x + end.x, y - 8), (x + end.x, y))
            scene.add(LINES, Line(points, "stream", hue=self._palette.target(end.target)))
        scene.add(TEXT, Words(x + 17, y + 20, self._title, "node"))
        for row, (text, style) in enumerate(self._lines):
            scene.add(TEXT, Words(x + 17, y + 37 + LINE * row, text, style))


class SequenceBlock(Block):
    """Parts from left to right; between two, the names that pass from one to the other."""

    def __init__(self, parts: Sequence[Part], palette: Palette, is_last: bool) -> None:
        self._blocks = [
            block(part, palette, is_last=is_last and index == len(parts) - 1)
            for index, part in enumerate(parts)
        ]
        self._names = [""] + [", ".join(words.passed_on(parts, index)) for index in range(1, len(parts))]
        self._gaps = [0.0] + [max(ARROW, width(names, "value") + 26) for names in self._names[1:]]
        self.rail = max(each.rail for each in self._blocks)
        self.height = self.rail + max(each.height - each.rail for each in self._blocks)
        self._lefts: list[float] = []
        x = 0.0
        for each, gap in zip(self._blocks, self._gaps, strict=True):
            x += gap
            self._lefts.append(x)
            x += each.width
        self.width = x
        placed = list(zip(self._blocks, self._lefts, strict=True))
        self.rises = tuple(end.moved(left) for each, left in placed for end in each.rises)
        self.drops = tuple(end.moved(left) for each, left in placed for end in each.drops)
        self.exits = tuple(
            Exit(out.output, out.y + self.rail - each.rail) for each in self._blocks for out in each.exits
        )
        self._palette = palette

    def draw(self, scene: Scene, x: float, y: float) -> None:
        rail = y + self.rail
        for each, left, gap, names in zip(self._blocks, self._lefts, self._gaps, self._names, strict=True):
            top = rail - each.rail
            if gap:
                scene.add(LINES, Line(((x + left - gap, rail), (x + left, rail)), "value"))
                scene.add(TEXT, Words(x + left - gap / 2 - 3, rail - 7, names, "value", "middle"))
            vertical(scene, self._palette, each.rises, x + left, y, top)
            vertical(scene, self._palette, each.drops, x + left, top + each.height, y + self.height)
            each.draw(scene, x + left, top)


def vertical(
    scene: Scene, palette: Palette, ends: Sequence[End], x: float, top: float, bottom: float
) -> None:
    """Straight pieces of the lines that meet a block's upper or lower edge."""
    for end in ends:
        if bottom > top:
            points = ((x + end.x, top), (x + end.x, bottom))
            hue = palette.target(end.target)
            scene.add(LINES, Line(points, line_style(end.target), False, hue))


class ParallelBlock(Block):
    """Parts one above the other between two bars; lines of those in the middle go around the others."""

    BAR = 5.0

    def __init__(self, part: Parallel, palette: Palette) -> None:
        self._blocks = [block(each, palette, is_last=False) for each in part.parts]
        self._palette = palette
        detours_up = sum(len(each.rises) for each in self._blocks[1:])
        detours_down = sum(len(each.drops) for each in self._blocks[:-1])
        self._left = self.BAR + ARROW + 14 * detours_up
        self._inner = max(each.width for each in self._blocks)
        self.width = self._left + self._inner + ARROW + 14 * detours_down + self.BAR
        self._tops: list[float] = []
        y = 0.0
        for index, each in enumerate(self._blocks):
            if index:
                y += 18 + 10 * (len(each.rises) + len(self._blocks[index - 1].drops))
            self._tops.append(y)
            y += each.height
        self.height = y
        first, last = self._blocks[0], self._blocks[-1]
        self.rail = (first.rail + self._tops[-1] + last.rail) / 2
        ups = iter(range(detours_up))
        downs = iter(range(detours_down))
        self._up_detours = [
            (index, end, self.BAR + 14 + 14 * next(ups))
            for index, each in enumerate(self._blocks)
            if index
            for end in each.rises
        ]
        right = self._left + self._inner
        self._down_detours = [
            (index, end, right + 14 + 14 * next(downs))
            for index, each in enumerate(self._blocks[:-1])
            for end in each.drops
        ]
        self.rises = (
            *(end.moved(self._left) for end in first.rises),
            *(End(end.target, channel) for _, end, channel in self._up_detours),
        )
        self.drops = (
            *(end.moved(self._left) for end in last.drops),
            *(End(end.target, channel) for _, end, channel in self._down_detours),
        )

    def draw(self, scene: Scene, x: float, y: float) -> None:
        top, bottom = y + self._tops[0] + self._blocks[0].rail, y + self._tops[-1] + self._blocks[-1].rail
        right = x + self.width - self.BAR
        for bar in (x, right):
            scene.add(NODES, Box(bar, top - 16, self.BAR, bottom - top + 32, "bar", 2.5))
        for each, start in zip(self._blocks, self._tops, strict=True):
            rail = y + start + each.rail
            scene.add(LINES, Line(((x + self.BAR, rail), (x + self._left, rail)), "value"))
            scene.add(LINES, Line(((x + self._left + each.width, rail), (right, rail)), "value"))
            each.draw(scene, x + self._left, y + start)
        gaps: dict[int, int] = {}
        for index, end, channel in self._down_detours:
            gaps[index] = gaps.get(index, 0) + 1
            below = y + self._tops[index] + self._blocks[index].height
            turn = below + 10 * gaps[index]
            at = x + self._left + end.x
            points = ((at, below), (at, turn), (x + channel, turn), (x + channel, y + self.height))
            scene.add(LINES, Line(points, line_style(end.target), False, self._palette.target(end.target)))
        gaps = {}
        for index, end, channel in self._up_detours:
            gaps[index] = gaps.get(index, 0) + 1
            above = y + self._tops[index]
            turn = above - 10 * gaps[index]
            at = x + self._left + end.x
            points = ((x + channel, y), (x + channel, turn), (at, turn), (at, above))
            scene.add(LINES, Line(points, line_style(end.target), False, self._palette.target(end.target)))


class FrameBlock(Block):
    """A frame with a caption around a sequence; the caption keeps clear of the lines that come from above."""

    SIDE = 30.0
    BELOW = 16.0

    def __init__(
        self, parts: Sequence[Part], palette: Palette, is_last: bool, caption: Sequence[str], strip: float
    ) -> None:
        self._body = SequenceBlock(parts, palette, is_last)
        self._palette = palette
        self._caption = [line for line in caption if line]
        self._above = 10 + LINE * len(self._caption) + strip
        text = max((width(line, "caption") for line in self._caption), default=0)
        spare = text + 28 - (self._body.width + 2 * self.SIDE)
        self._left = self.SIDE if self._body.rises else self.SIDE + max(0.0, spare / 2)
        self.rises = tuple(end.moved(self._left) for end in self._body.rises)
        self.drops = tuple(end.moved(self._left) for end in self._body.drops)
        self._caption_at = free_start(text, [end.x for end in self.rises], 14.0)
        self.width = max(self._body.width + self._left + self.SIDE, self._caption_at + text + 14)
        self.rail = self._above + self._body.rail
        self.height = self._above + self._body.height + self.BELOW
        self.exits = tuple(Exit(each.output, each.y + self._above) for each in self._body.exits)

    @property
    def _end(self) -> float:
        """Where the body ends."""
        return self._left + self._body.width

    def _draw_inside(self, scene: Scene, x: float, y: float) -> None:
        for row, line in enumerate(self._caption):
            scene.add(TEXT, Words(x + self._caption_at, y + 20 + LINE * row, line, "caption"))
        rail, top = y + self.rail, y + self._above
        scene.add(LINES, Line(((x, rail), (x + self._left, rail)), "value"))
        scene.add(LINES, Line(((x + self._end, rail), (x + self.width, rail)), "value", False))
        vertical(scene, self._palette, self._body.rises, x + self._left, y, top)
        vertical(
            scene, self._palette, self._body.drops, x + self._left, top + self._body.height, y + self.height
        )
        for each in self._body.exits:
            points = ((x + self._end, top + each.y), (x + self.width, top + each.y))
            scene.add(LINES, Line(points, "output", False))
        self._body.draw(scene, x + self._left, top)


class LoopBlock(FrameBlock):
    """A loop: an arrow leads back from its end to its beginning, with the names it carries."""

    def __init__(self, loop: Loop, palette: Palette, is_last: bool) -> None:
        end = words.loop_end(loop)
        super().__init__(
            loop.parts, palette, is_last, (f"↻ {end}" if end else "↻", words.loop_collects(loop)), strip=38
        )
        self._carried = ", ".join(loop.carry)
        chip = width(self._carried, "value") + 16
        taken = [each.x for each in self.rises]
        middle = self._left + (self._body.width - chip) / 2
        self._chip = free_start(chip, taken, max(middle, self._left + 4)) if self._carried else 0.0
        if self._carried:
            self.width = max(self.width, self._chip + chip + self.SIDE)
        self._turn_right = max(self._end + 15, self._chip + chip + 8 if self._carried else 0)

    def draw(self, scene: Scene, x: float, y: float) -> None:
        scene.add(FRAMES, Box(x, y, self.width, self.height, "loop", 14))
        self._draw_inside(scene, x, y)
        back = y + self._above - 18
        rail = y + self.rail
        left, right = x + self._left - 15, x + self._turn_right
        scene.add(LINES, Line(((right, rail), (right, back), (left, back), (left, rail)), "back"))
        if self._carried:
            chip = width(self._carried, "value") + 16
            scene.add(NODES, Box(x + self._chip, back - 10, chip, 20, "chip", 10))
            scene.add(TEXT, Words(x + self._chip + chip / 2, back + 4, self._carried, "value", "middle"))


class FanBlock(FrameBlock):
    """A fan: the same once per row, drawn as a stack."""

    STEP = 6.0

    def __init__(self, fan: Fan, palette: Palette, is_last: bool) -> None:
        super().__init__(fan.parts, palette, is_last, (words.fan_over(fan),), strip=14)
        self._card = (self.width, self.height)
        self.width += 2 * self.STEP
        self.height += 2 * self.STEP

    def draw(self, scene: Scene, x: float, y: float) -> None:
        for n in (2, 1, 0):
            scene.add(FRAMES, Box(x + self.STEP * n, y + self.STEP * n, *self._card, "fan", 14))
        self._draw_inside(scene, x, y)
