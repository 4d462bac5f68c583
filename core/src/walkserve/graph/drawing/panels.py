"""One WalkGraph as a panel: its verb, the names it is asked with, its parts, and the names it gives back."""

from __future__ import annotations

from walkserve.graph.drawing import words
from walkserve.graph.drawing.blocks import ARROW, Block, Exit, Palette, SequenceBlock, vertical
from walkserve.graph.drawing.scene import (
    LINES,
    NODES,
    PANELS,
    TEXT,
    Box,
    Line,
    Scene,
    Words,
    free_start,
    width,
)
from walkserve_sdk import WalkGraph

HEADER = 40.0
SIDE = 16.0
BELOW = 16.0
PIN = 22.0  # a name's height
PIN_STEP = 28.0


class Panel(Block):
    """A WalkGraph, measured."""

    def __init__(self, graph: WalkGraph, palette: Palette, *, is_last: bool) -> None:
        self._palette = palette
        self._verb = graph.name
        self._takes = words.graph_inputs(graph)
        self._gives = words.results(graph)
        self._body = SequenceBlock(graph.parts, palette, is_last)
        self._left = SIDE + _column(self._takes)
        right = SIDE + _column(self._gives)
        above = max(self._body.rail, _stack(self._takes) / 2, _stack(self._gives) - PIN / 2)
        below = max(self._body.height - self._body.rail, _stack(self._takes) / 2)
        self.rail = HEADER + above
        self.height = self.rail + below + BELOW
        self.rises = tuple(end.moved(self._left) for end in self._body.rises)
        self.drops = tuple(end.moved(self._left) for end in self._body.drops)
        verb = width(self._verb, "verb")
        self._verb_at = free_start(verb, [end.x for end in self.rises], SIDE)
        self.width = max(self._left + self._body.width + right, self._verb_at + verb + SIDE)
        self.exits = tuple(
            Exit(each.output, each.y + self.rail - self._body.rail) for each in self._body.exits
        )

    def draw(self, scene: Scene, x: float, y: float) -> None:
        scene.add(PANELS, Box(x, y, self.width, self.height, "panel", 12))
        scene.add(TEXT, Words(x + self._verb_at, y + 26, self._verb, "verb"))
        top = y + self.rail - self._body.rail
        left, bottom = x + self._left, top + self._body.height
        vertical(scene, self._palette, self._body.rises, left, y, top)
        vertical(scene, self._palette, self._body.drops, left, bottom, y + self.height)
        for each in self._body.exits:
            points = ((left + self._body.width, top + each.y), (x + self.width, top + each.y))
            scene.add(LINES, Line(points, "output", False))
        self._body.draw(scene, left, top)
        self._draw_takes(scene, x + SIDE, y + self.rail)
        self._draw_gives(scene, left + self._body.width, y + self.rail)

    def _draw_takes(self, scene: Scene, x: float, rail: float) -> None:
        """Names in the middle of the rail's height, and lines that join on it."""
        if not self._takes:
            return
        joint, end = x + _column(self._takes) - ARROW + 8, x + _column(self._takes)
        for n, name in enumerate(self._takes):
            middle = rail + PIN_STEP * (n - (len(self._takes) - 1) / 2)
            right = _pin(scene, x, middle, name)
            points = ((right, middle), (joint, middle), (joint, rail))
            scene.add(
                LINES, Line(points if middle != rail else ((right, rail), (joint, rail)), "value", False)
            )
        scene.add(LINES, Line(((joint, rail), (end, rail)), "value"))

    def _draw_gives(self, scene: Scene, x: float, rail: float) -> None:
        """Names above the rail, the last on it: below it outputs leave."""
        left, joint = x + ARROW, x + 12
        for n, name in enumerate(reversed(self._gives)):
            middle = rail - PIN_STEP * n
            _pin(scene, left, middle, name)
            points = ((x, rail), (joint, rail), (joint, middle), (left, middle))
            scene.add(LINES, Line(points if n else ((x, rail), (left, rail)), "value"))


def _column(names: list[str]) -> float:
    return max(width(name, "value") + 18 for name in names) + ARROW if names else 0.0


def _stack(names: list[str]) -> float:
    return PIN_STEP * len(names) - (PIN_STEP - PIN) if names else 0.0


def _pin(scene: Scene, x: float, middle: float, name: str) -> float:
    """A name in a pill; where its right edge is."""
    across = width(name, "value") + 18
    scene.add(NODES, Box(x, middle - PIN / 2, across, PIN, "pin", PIN / 2))
    scene.add(TEXT, Words(x + across / 2, middle + 4, name, "value", "middle"))
    return x + across
