"""The picture of a family as a scene: what ``rows`` has arranged, the lines between, a title and a legend."""

from __future__ import annotations

from dataclasses import dataclass

from walkserve.descriptions import first_line
from walkserve.graph.drawing import words
from walkserve.graph.drawing.blocks import Palette
from walkserve.graph.drawing.rows import INSIDE, MARGIN, PILL, PILL_STEP, PIPE, Arrangement, Pipe, Row
from walkserve.graph.drawing.scene import (
    GROUND,
    LINES,
    NODES,
    TEXT,
    Box,
    Line,
    Point,
    Scene,
    Words,
    width,
)
from walkserve_sdk import Model, Output

LEGEND_ROW = 24.0


@dataclass(frozen=True)
class Picture:
    """A scene with its size, and what it shows in words."""

    scene: Scene
    width: float
    height: float
    title: str
    description: str


def lay_out(model: type[Model]) -> Picture:
    """The picture of a family."""
    spec, about = model.spec, first_line(model)
    palette = Palette(list(spec.components), list(spec.streams))
    scene = Scene()
    at = Arrangement(model, palette, top=MARGIN + (50 if about else 28))
    scene.add(TEXT, Words(MARGIN, MARGIN + 20, spec.name, "title"))
    scene.add(TEXT, *([Words(MARGIN, MARGIN + 44, about, "summary")] if about else []))
    _draw_lanes(scene, at)
    edges = [at.right, MARGIN + width(about, "summary"), MARGIN + width(spec.name, "title")]
    for index, row in enumerate(at.rows):
        _draw_row(scene, row)
        edges += _draw_outputs(scene, at, index)
    for stream in spec.streams.values():
        if any(end.target is stream for row in at.rows for end in row.rises()):
            pipe, below = at.pipe(stream)
            _draw_stream(scene, at, palette, pipe, below)
    edges.append(_draw_legend(scene, model, palette, at.bottom))
    height = at.bottom + LEGEND_ROW * len(spec.components) + MARGIN
    said = "; ".join(
        f"{name} asks for {', '.join(graph.name for graph in graphs) or 'nothing'}"
        for name, graphs in words.lanes(model)
    )
    return Picture(scene, max(edges) + MARGIN, height, f"Walks and tracks of {spec.name}", f"{said}.")


def _draw_lanes(scene: Scene, at: Arrangement) -> None:
    for first in (row for row in at.rows if row.is_first):
        last = next(row for row in at.rows if row.lane == first.lane and row.is_last)
        top, bottom = first.top - INSIDE, last.top + last.height + INSIDE
        scene.add(GROUND, Box(MARGIN - 8, top, at.right - MARGIN + 8, bottom - top, "lane", 16))
        middle = (top + bottom) / 2
        is_before = first.lane == "prepare"
        scene.add(TEXT, Words(MARGIN + 8, middle + (0 if is_before else 5), first.lane, "lane"))
        if is_before:
            scene.add(TEXT, Words(MARGIN + 8, middle + 17, "before admission", "lane-note"))


def _draw_row(scene: Scene, row: Row) -> None:
    for index, (panel, left) in enumerate(zip(row.panels, row.lefts, strict=True)):
        panel.draw(scene, left, row.top)
        if index:
            y = row.top + 22
            before = row.lefts[index - 1] + row.panels[index - 1].width
            scene.add(LINES, Line(((before + 8, y), (left - 6, y)), "then"))


def _draw_outputs(scene: Scene, at: Arrangement, index: int) -> list[float]:
    """Those that a row writes, to its right and below it; their right edges."""
    row, gutter, edges, free = at.rows[index], at.gutters[index + 1], [], 0.0
    for out in sorted(row.panels[-1].exits, key=lambda each: each.y):
        y = row.top + out.y
        middle = max(y, free)
        free = middle + PILL_STEP
        turn = at.right + 14
        bend: tuple[Point, ...] = () if middle == y else ((turn, y), (turn, middle))
        edges.append(_draw_output(scene, at, out.output, ((row.right, y), *bend), middle))
    below = sorted(row.drops(), key=lambda each: -each.x)  # so that none crosses another
    for n, end in enumerate(each for each in below if isinstance(each.target, Output)):
        assert isinstance(end.target, Output)
        middle = gutter.output_y(n)
        edges.append(_draw_output(scene, at, end.target, ((end.x, end.y), (end.x, middle)), middle))
    return edges


def _draw_output(
    scene: Scene, at: Arrangement, output: Output, way: tuple[Point, ...], middle: float
) -> float:
    """A pill at the right of all lanes, and the line that leads there; the pill's right edge."""
    left, kind = at.right + 40, words.output_kind(output)
    across = max(width(output.name, "output"), width(kind, "note")) + 32
    scene.add(LINES, Line((*way, (left, middle)), "output"))
    scene.add(NODES, Box(left, middle - PILL / 2, across, PILL, "output", 13))
    scene.add(TEXT, Words(left + across / 2, middle - 3, output.name, "output", "middle"))
    scene.add(TEXT, Words(left + across / 2, middle + 13, kind, "output-kind", "middle"))
    return left + across


def _draw_stream(scene: Scene, at: Arrangement, palette: Palette, pipe: Pipe, below: int) -> None:
    hue = palette.target(pipe.stream)
    scene.add(NODES, Box(pipe.left, pipe.y, pipe.right - pipe.left, PIPE, "pipe", PIPE / 2, hue))
    label = words.stream_label(pipe.stream)
    scene.add(TEXT, Words((pipe.left + pipe.right) / 2, pipe.y + 18.5, label, "pipe", "middle", hue))
    for index, row in enumerate(at.rows):
        for end in (each for each in row.drops() if each.target is pipe.stream):
            way: tuple[Point, ...] = ((end.x, end.y), (end.x, pipe.y))
            if pipe.stream in at.far:
                channel, middle = at.channel(pipe.stream), pipe.y + PIPE / 2
                y = at.gutters[index + 1].passing_y(pipe.stream)
                way = ((end.x, end.y), (end.x, y), (channel, y), (channel, middle), (pipe.left, middle))
            scene.add(LINES, Line(way, "stream", hue=hue))
    for row in at.rows[below:]:
        for end in (each for each in row.rises() if each.target is pipe.stream):
            scene.add(LINES, Line(((end.x, pipe.y + PIPE), (end.x, end.y)), "stream", False, hue))


def _draw_legend(scene: Scene, model: type[Model], palette: Palette, top: float) -> float:
    """A line for each component; the right edge of the longest."""
    components = model.spec.components.values()
    paths = MARGIN + 26 + max((width(part.name, "node") for part in components), default=0) + 22
    keeps = paths + max((width(part.path, "legend-path") for part in components), default=0) + 22
    right = keeps
    for n, part in enumerate(components):
        y = top + LEGEND_ROW * n + 16
        about = words.component_keeps(part)
        hue = palette.component(part.name)
        scene.add(
            NODES, Box(MARGIN, y - 12, 16, 16, "node", 5, hue), Box(MARGIN, y - 12, 5, 16, "node-bar", 2, hue)
        )
        scene.add(
            TEXT,
            Words(MARGIN + 26, y + 1, part.name, "node"),
            Words(paths, y + 1, part.path, "legend-path"),
            Words(keeps, y + 1, about, "legend"),
        )
        right = max(right, keeps + width(about, "legend"))
    return right
