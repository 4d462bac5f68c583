"""What a picture consists of: boxes, lines and words at their places, and how wide words are."""

from __future__ import annotations

from dataclasses import dataclass, field

Point = tuple[float, float]

SIZES = {
    "title": 24.0,
    "summary": 14.0,
    "lane": 15.0,
    "lane-note": 11.5,
    "verb": 15.0,
    "node": 13.0,
    "flow": 11.5,
    "note": 11.0,
    "caption": 11.5,
    "value": 11.5,
    "pipe": 12.0,
    "output": 12.5,
    "output-kind": 11.0,
    "legend": 12.0,
    "legend-path": 11.5,
}
"""Style of a text -> its size in pixels."""
MONO = frozenset({"node", "flow", "value", "legend-path"})
BOLD = frozenset({"title", "lane", "verb", "node", "output"})

_NARROW, _WIDE = frozenset("iljtfrI.,:;'|!()[] /"), frozenset("mwMW@%→↻")


@dataclass(frozen=True)
class Box:
    """A rectangle with round corners. ``hue`` is the number of a component or stream, for its colour."""

    x: float
    y: float
    width: float
    height: float
    style: str
    radius: float = 8
    hue: int | None = None
    is_dashed: bool = False


@dataclass(frozen=True)
class Line:
    """A path of straight pieces; its corners are rounded when it is drawn."""

    points: tuple[Point, ...]
    style: str
    has_head: bool = True
    hue: int | None = None


@dataclass(frozen=True)
class Words:
    """One line of text; ``y`` is its base line."""

    x: float
    y: float
    text: str
    style: str
    anchor: str = "start"
    hue: int | None = None


Thing = Box | Line | Words

GROUND, PANELS, FRAMES, LINES, NODES, TEXT = range(6)
"""What lies on what."""


@dataclass
class Scene:
    """A picture while it grows."""

    things: list[tuple[int, Thing]] = field(default_factory=list)

    def add(self, depth: int, *things: Thing) -> None:
        """Put something at a depth; of one depth, what came later lies on top."""
        self.things += [(depth, thing) for thing in things]

    def in_order(self) -> list[Thing]:
        """From the ground up."""
        return [thing for _, thing in sorted(self.things, key=lambda each: each[0])]


def width(text: str, style: str) -> float:
    """How wide a text may become, whichever font of its kind a viewer has: rather too much."""
    size = SIZES[style]
    if style in MONO:
        return len(text) * size * 0.62
    letters = sum(0.36 if c in _NARROW else 0.92 if c in _WIDE else 0.7 if c.isupper() else 0.6 for c in text)
    return letters * size * (1.08 if style in BOLD else 1.0)


def free_start(wanted: float, taken: list[float], start: float, margin: float = 12) -> float:
    """The leftmost x from ``start`` at which ``wanted`` pixels keep clear of vertical lines at ``taken``."""
    for x in sorted(taken):
        if x < start - margin:
            continue
        if x - margin >= start + wanted:
            break
        start = x + margin
    return start
