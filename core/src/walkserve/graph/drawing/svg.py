"""A scene as SVG. It brings its own background, light or dark as the viewer prefers, and no font file."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from walkserve.graph.drawing.layout import Picture, lay_out
from walkserve.graph.drawing.scene import BOLD, MONO, SIZES, Box, Line, Point, Thing, Words
from walkserve_sdk import Model

SANS = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"
MONOSPACE = "ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace"

COMPONENTS = 8
"""Colours there are for components; of more, the first ones come again."""
STREAMS = 6

_LIGHT = {
    "paper": "#ffffff", "lane": "#f1f4f9", "panel": "#ffffff", "panel-edge": "#c3ccda",
    "loop": "#f7f9fc", "loop-edge": "#8593a8", "ink": "#1b2432", "soft": "#55627a", "faint": "#9aa6b8",
    "value": "#66738a", "pin": "#e8edf4", "chip": "#ffffff",
    "output": "#0f766e", "output-fill": "#d5f2ec", "output-ink": "#0b4f4a",
}  # fmt: skip
_DARK = {
    "paper": "#12161d", "lane": "#1a2029", "panel": "#222a36", "panel-edge": "#3d4a5e",
    "loop": "#1c232e", "loop-edge": "#6d7c94", "ink": "#e8edf5", "soft": "#aab6c9", "faint": "#67748a",
    "value": "#93a1b8", "pin": "#313c4d", "chip": "#2a3443",
    "output": "#2dd4bf", "output-fill": "#134540", "output-ink": "#b5f5ea",
}  # fmt: skip
# fill, edge; light and dark
_COMPONENTS = [
    ("#e3edfd", "#3b76d6", "#1e3252", "#6ea4f5"),  # blue
    ("#fdebd9", "#d9772b", "#4b3119", "#f2a45f"),  # orange
    ("#e4f3e0", "#4f9a3d", "#23401d", "#86cf73"),  # green
    ("#f0e7fb", "#8657c9", "#382a52", "#b792ee"),  # violet
    ("#fbe4ea", "#cb4a6d", "#4c222f", "#f08ba7"),  # rose
    ("#fbf3d0", "#b38b14", "#453a12", "#e2bd4d"),  # yellow
    ("#def2f6", "#2a90a6", "#17404a", "#66c5d8"),  # cyan
    ("#ece8e4", "#85705c", "#3a322b", "#bda792"),  # brown
]
_STREAMS = [
    ("#efe9fe", "#7446d8", "#33265c", "#a987f7"),
    ("#fde6f1", "#c9307c", "#4f1f38", "#f37fb5"),
    ("#fff1d6", "#c07a08", "#4a3510", "#f0b548"),
    ("#e0f0fe", "#1d7fc4", "#153a57", "#62b7f2"),
    ("#e9f6d9", "#64911a", "#2e4011", "#a8d35a"),
    ("#fde7e1", "#d0512d", "#50281c", "#f58f70"),
]


def draw_svg(model: type[Model]) -> str:
    """A family's tracks, Walks and streams as one SVG document."""
    picture = lay_out(model)
    things = "\n".join(f"  {_thing(each)}" for each in picture.scene.in_order())
    across, down = _number(picture.width), _number(picture.height)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" width="{across}" height="{down}"
     role="img" aria-labelledby="title description">
  <title id="title">{escape(picture.title)}</title>
  <desc id="description">{escape(picture.description)}</desc>
  <style>
{_style(picture)}
  </style>
  <defs>
{_heads(picture)}
  </defs>
  <rect class="paper" width="{across}" height="{down}" rx="14"/>
{things}
</svg>
"""


def component_colours(hue: int) -> tuple[str, str]:
    """Fill and edge of the component with this number, for a light page."""
    return _COMPONENTS[hue % COMPONENTS][:2]


# --- things -------------------------------------------------------------------------------------------


def _thing(thing: Thing) -> str:
    match thing:
        case Box():
            dashes = ' stroke-dasharray="5 4"' if thing.is_dashed else ""
            return (
                f'<rect class="{_class(thing)}" x="{_number(thing.x)}" y="{_number(thing.y)}" '
                f'width="{_number(thing.width)}" height="{_number(thing.height)}" '
                f'rx="{_number(thing.radius)}"{dashes}/>'
            )
        case Line():
            head = f' marker-end="url(#{_head(thing)})"' if thing.has_head else ""
            return f'<path class="{_class(thing)}" d="{_path(thing)}"{head}/>'
        case Words():
            anchor = "" if thing.anchor == "start" else f" text-anchor={quoteattr(thing.anchor)}"
            where = f'x="{_number(thing.x)}" y="{_number(thing.y)}"'
            return f'<text class="{_class(thing)}" {where}{anchor}>{escape(thing.text)}</text>'


def _class(thing: Thing) -> str:
    kind = {Box: "box", Line: "line", Words: "words"}[type(thing)]
    return f"{kind}-{thing.style}" + (f" {_hue(thing)}" if thing.hue is not None else "")


def _hue(thing: Thing) -> str:
    is_stream = thing.style in ("stream", "pipe")
    assert thing.hue is not None
    return f"s{thing.hue % STREAMS}" if is_stream else f"c{thing.hue % COMPONENTS}"


def _head(line: Line) -> str:
    return f"head-{line.style}" + (f"-{_hue(line)}" if line.hue is not None else "")


def _path(line: Line, radius: float = 8) -> str:
    """Straight pieces with round corners."""
    points = _without_doubles(line.points)
    said = f"M{_at(points[0])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        said += (
            f" L{_at(_towards(corner, before, radius))} Q{_at(corner)} {_at(_towards(corner, after, radius))}"
        )
    return f"{said} L{_at(points[-1])}"


def _without_doubles(points: tuple[Point, ...]) -> list[Point]:
    return [point for n, point in enumerate(points) if not n or point != points[n - 1]]


def _towards(start: Point, end: Point, most: float) -> Point:
    """From ``start`` towards ``end``, at most half of the way."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = (across**2 + down**2) ** 0.5
    share = min(most, length / 2) / length
    return start[0] + across * share, start[1] + down * share


def _at(point: Point) -> str:
    return f"{_number(point[0])} {_number(point[1])}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# --- looks --------------------------------------------------------------------------------------------


def _style(picture: Picture) -> str:
    """Plain rules for light, which every viewer knows, and the same once more for those that prefer dark."""
    dark = "\n".join(f"  {rule}" for rule in _colours(picture, is_dark=True))
    rules = [
        *_shapes(picture),
        *_colours(picture, is_dark=False),
        f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}",
    ]
    return "\n".join(f"    {line}" for rule in rules for line in rule.splitlines())


def _shapes(picture: Picture) -> list[str]:
    styles = sorted({each.style for each in picture.scene.in_order() if isinstance(each, Words)})
    rules = [
        ".line-value, .line-back, .line-then { fill: none; stroke-width: 1.5 }",
        ".line-back { stroke-dasharray: 5 4 }",
        ".line-then { stroke-width: 2; stroke-dasharray: 1 5; stroke-linecap: round }",
        ".line-stream { fill: none; stroke-width: 3.2 }",
        ".line-output { fill: none; stroke-width: 2.4 }",
        ".box-loop, .box-fan, .box-node, .box-pipe, .box-output { stroke-width: 1.5 }",
    ]
    for style in styles:
        family = MONOSPACE if style in MONO else SANS
        weight = "; font-weight: 600" if style in BOLD else ""
        rules.append(f".words-{style} {{ font-family: {family}; font-size: {SIZES[style]:g}px{weight} }}")
    return rules


def _colours(picture: Picture, *, is_dark: bool) -> list[str]:
    c = _DARK if is_dark else _LIGHT
    rules = [
        f".paper {{ fill: {c['paper']} }}",
        f".box-lane {{ fill: {c['lane']} }}",
        f".box-panel {{ fill: {c['panel']}; stroke: {c['panel-edge']} }}",
        f".box-loop, .box-fan {{ fill: {c['loop']}; stroke: {c['loop-edge']} }}",
        f".box-pin {{ fill: {c['pin']} }}",
        f".box-chip {{ fill: {c['chip']}; stroke: {c['loop-edge']} }}",
        f".box-bar {{ fill: {c['value']} }}",
        f".box-output {{ fill: {c['output-fill']}; stroke: {c['output']} }}",
        f".line-value, .line-back {{ stroke: {c['value']} }}",
        f".line-then {{ stroke: {c['faint']} }}",
        f".line-output {{ stroke: {c['output']} }}",
        f".head-value, .head-back {{ fill: {c['value']} }}",
        f".head-then {{ fill: {c['faint']} }}",
        f".head-output {{ fill: {c['output']} }}",
        f"text {{ fill: {c['ink']} }}",
        ".words-summary, .words-lane-note, .words-caption, .words-flow, .words-note, .words-value, "
        f".words-legend, .words-legend-path {{ fill: {c['soft']} }}",
        f".words-output, .words-output-kind {{ fill: {c['output-ink']} }}",
    ]
    hues = {_hue(each) for each in picture.scene.in_order() if each.hue is not None}
    for prefix, colours in (("c", _COMPONENTS), ("s", _STREAMS)):
        for n, four in enumerate(colours):
            name = f"{prefix}{n}"
            fill, edge = four[2:] if is_dark else four[:2]
            if name not in hues:
                continue
            if prefix == "c":
                rules.append(f".box-node.{name} {{ fill: {fill}; stroke: {edge} }}")
                rules.append(f".box-node-bar.{name} {{ fill: {edge} }}")
            else:
                rules.append(f".box-pipe.{name} {{ fill: {fill}; stroke: {edge} }}")
                rules.append(f".line-stream.{name} {{ stroke: {edge} }}")
                rules.append(f".head-stream.{name} {{ fill: {edge} }}")
    return rules


def _heads(picture: Picture) -> str:
    """A marker for each style of line that ends in an arrow."""
    lines = [each for each in picture.scene.in_order() if isinstance(each, Line) and each.has_head]
    heads = dict.fromkeys(
        (_head(each), each.style, _hue(each) if each.hue is not None else "") for each in lines
    )
    return "\n".join(
        f'    <marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" '
        f'markerWidth="{size}" markerHeight="{size}" orient="auto">'
        f'<path class="head-{style} {hue}" d="M0 0.8 L10 5 L0 9.2 z"/></marker>'
        for name, style, hue in heads
        for size in [13 if style in ("stream", "output") else 9]
    )
