"""Pictures of families: nothing lies on words, everything declared is there, and they are well formed."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from walk_plugin_orpheus import Orpheus
from walkserve.graph.drawing import draw_mermaid, draw_svg
from walkserve.graph.drawing.layout import Picture, lay_out
from walkserve.graph.drawing.scene import SIZES, Box, Line, Words, free_start, width
from walkserve.graph.drawing.words import loop_end, passed_on, results
from walkserve_sdk import (
    Audio,
    Component,
    Fan,
    Fixed,
    Loop,
    Model,
    Node,
    Output,
    PagedKV,
    Parallel,
    Sequential,
    Stream,
    Text,
    WalkGraph,
    track,
)

TOYS = Path(__file__).parents[3] / "sdk/tests"


def _toy(file: str, name: str) -> type[Model]:
    spec = importlib.util.spec_from_file_location(f"drawn_{file}", TOYS / f"{file}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


class Knot(Model):
    """As much at once as may be declared: streams out of the middle of branches, and to far tracks."""

    ears = Component("nowhere.at.all:Ears", device="cpu", state=True)
    a_rather_long_name = Component("nowhere.at.all:Long", kv=PagedKV(branches=("other",)))
    mouth = Component("nowhere.at.all:Mouth")

    heard = Stream(by="client")
    upper = Stream()
    middle = Stream(Fixed(3, most=9))
    lower = Stream()
    said = Output(Text())
    sound = Output(Audio(rate=22_050, channels=2))
    draft = Output(Text())

    listen = WalkGraph(Loop(Node(ears, "hear", takes=heard, gives="word", to={"word": (upper, draft)})))
    think = WalkGraph(
        Node(a_rather_long_name, "begin", takes=("a", "b", "c", "d"), gives=("x", "y", "z")),
        Loop(
            Parallel(
                Node(a_rather_long_name, "over", takes="x", gives="over", to=middle, branch="other"),
                Sequential(
                    Node(
                        a_rather_long_name, "under", takes=(upper, "y"), gives="under", to=lower, when="sure"
                    ),
                    Node(mouth, "murmur", takes="under", gives="murmured", to=draft),
                ),
                Node(mouth, "hum", takes="z", gives="hummed", branch="main"),
            ),
            Node(a_rather_long_name, "join", takes=("over", "murmured", "hummed"), gives=("x", "z")),
            carry=("x", "z"),
            times="most",
            each={"sure": "certainties"},
            collect={"all": "over"},
        ),
        Fan(Node(mouth, "choose", takes="one", gives="best"), over={"one": "all"}),
        Node(mouth, "tell", takes="best", gives="told", to=said),
    )
    talk = WalkGraph(
        Loop(
            Parallel(
                Node(mouth, "form", takes=middle, gives="shape"),
                Node(mouth, "breathe", takes=lower, gives="air"),
            ),
            Node(mouth, "speak", takes=("shape", "air"), gives="pcm", to=sound),
        )
    )

    @track(writes=upper)
    def listening(self, request, prepared):
        yield self.listen()

    @track
    def talking(self, request, prepared):
        yield self.talk()

    @track(writes=(middle, lower))
    def thinking(self, request, prepared):
        yield self.think(a=1, b=2, c=3, d=4, most=5, certainties=[])


FAMILIES = {
    "orpheus": Orpheus,
    "bagel": _toy("test_toy_bagel", "Bagel"),
    "vjepa": _toy("test_toy_vjepa", "VJepa"),
    "omni": _toy("test_toy_thinker_talker", "Omni"),
    "knot": Knot,
}
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)

Rectangle = tuple[float, float, float, float]


def _around(words: Words) -> Rectangle:
    size, across = SIZES[words.style], width(words.text, words.style)
    left = words.x - {"start": 0, "middle": across / 2, "end": across}[words.anchor]
    return left, words.y - 0.78 * size, left + across, words.y + 0.22 * size


def _meet(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _pieces(line: Line) -> list[Rectangle]:
    return [
        (min(a[0], b[0]) - 1, min(a[1], b[1]) - 1, max(a[0], b[0]) + 1, max(a[1], b[1]) + 1)
        for a, b in itertools.pairwise(line.points)
    ]


def _things(picture: Picture, kind):
    return [each for each in picture.scene.in_order() if isinstance(each, kind)]


@every_family
def test_no_words_lie_on_others_and_all_lie_in_the_picture(family):
    picture = lay_out(family)
    words = _things(picture, Words)
    for one, other in itertools.combinations(words, 2):
        assert not _meet(_around(one), _around(other)), (one.text, other.text)
    for each in words:
        left, top, right, bottom = _around(each)
        assert left >= 0 and top >= 0 and right <= picture.width and bottom <= picture.height, each


@every_family
def test_no_line_runs_through_words(family):
    picture = lay_out(family)
    order = picture.scene.in_order()
    for index, line in enumerate(order):
        if not isinstance(line, Line):
            continue
        covers = [each for each in order[index:] if isinstance(each, Box)]
        for words in _things(picture, Words):
            around = _around(words)
            if any(_holds(box, around) for box in covers):
                continue  # the line passes below the box in which they stand
            for piece in _pieces(line):
                assert not _meet(piece, around), (words.text, line)


def _holds(box: Box, inner: Rectangle) -> bool:
    return (
        box.x <= inner[0]
        and box.y <= inner[1]
        and inner[2] <= box.x + box.width
        and inner[3] <= box.y + box.height
    )


@every_family
def test_nodes_pills_and_pipes_lie_beside_each_other(family):
    picture = lay_out(family)
    boxes = [box for box in _things(picture, Box) if box.style in ("node", "pin", "pipe", "output")]
    for one, other in itertools.combinations(boxes, 2):
        corners = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in (one, other)]
        assert not _meet(*corners), (one, other)


@every_family
def test_lines_are_level_or_upright_and_lead_somewhere(family):
    for line in _things(lay_out(family), Line):
        for a, b in itertools.pairwise(line.points):
            assert a[0] == pytest.approx(b[0]) or a[1] == pytest.approx(b[1]), line
        assert line.points[0] != line.points[-1]


@every_family
def test_what_is_declared_is_drawn(family):
    spec = family.spec
    said = [each.text for each in _things(lay_out(family), Words)]
    for name in (*spec.tracks, *spec.graphs, *spec.outputs, *spec.components):
        assert name in said
    for graph in spec.graphs.values():
        for node in graph.nodes():
            assert f"{node.component.name}.{node.method}" in said
    for stream in spec.streams:
        assert any(text.startswith(stream) for text in said)


@every_family
def test_every_stream_and_output_that_a_node_writes_has_its_line(family):
    """Ends of lines touch what they join: a pipe, a pill, or a node."""
    picture = lay_out(family)
    pipes = [box for box in _things(picture, Box) if box.style == "pipe"]
    drawn = [line for line in _things(picture, Line) if line.style == "stream"]
    for number, stream in enumerate(family.spec.streams.values()):
        (pipe,) = [box for box in pipes if box.hue == number]
        written = [line for line in drawn if line.hue == number and line.has_head and _touches(pipe, line)]
        writers = [
            node
            for name in family.spec.graphs
            for node in family.spec.graphs[name].nodes()
            if any(target is stream for _, target in node.to)
        ]
        assert len(written) == len(writers)
    pills = [box for box in _things(picture, Box) if box.style == "output"]
    led = [line for line in _things(picture, Line) if line.style == "output" and line.has_head]
    assert len(pills) == len(led) >= len(family.spec.outputs)
    assert all(any(_touches(pill, line) for pill in pills) for line in led)


@every_family
def test_lines_of_streams_and_outputs_are_joined_from_end_to_end(family):
    picture = lay_out(family)
    boxes = [box for box in _things(picture, Box) if box.style in ("node", "pipe", "output")]
    lines = [line for line in _things(picture, Line) if line.style in ("stream", "output")]
    for line in lines:
        others = [
            each for each in lines if each is not line and (each.style, each.hue) == (line.style, line.hue)
        ]
        for x, y in (line.points[0], line.points[-1]):
            on_box = any(_touches(box, replace(line, points=((x, y),))) for box in boxes)
            spot = (x - 0.1, y - 0.1, x + 0.1, y + 0.1)
            assert on_box or any(_meet(spot, piece) for each in others for piece in _pieces(each)), line


def _touches(box: Box, line: Line) -> bool:
    x, y = line.points[-1]
    return box.x - 1 <= x <= box.x + box.width + 1 and box.y - 1 <= y <= box.y + box.height + 1


@every_family
def test_an_svg_is_well_formed_has_its_own_ground_and_asks_for_nothing(family):
    text = draw_svg(family)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"https?://\S+", text) == ['http://www.w3.org/2000/svg"']
    names = set(re.findall(r'<marker id="([\w-]+)"', text))
    assert set(re.findall(r"url\(#([\w-]+)\)", text)) == names
    assert 'class="paper"' in text and "prefers-color-scheme: dark" in text
    assert text == draw_svg(family)


@every_family
def test_every_class_of_an_svg_has_a_rule(family):
    text = draw_svg(family)
    used = {name for names in re.findall(r'class="([^"]+)"', text) for name in names.split()}
    style = text[text.index("<style>") : text.index("</style>")]
    assert {name for name in used if f".{name}" not in style} <= {"box-node-bar"}


def test_names_are_escaped():
    class Odd(Model):
        """Less < more & "so"."""

        part = Component("nowhere:Part")
        out = Output(Text())
        go = WalkGraph(Node(part, "go", takes="text", gives="words", to=out))

        @track
        def going(self, request, prepared):
            yield self.go(text="")

    assert "Less &lt; more &amp; " in draw_svg(Odd)
    ElementTree.fromstring(draw_svg(Odd))


@every_family
def test_a_mermaid_chart_opens_and_closes_its_frames_and_links_what_it_names(family):
    text = draw_mermaid(family)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "flowchart LR"
    assert sum(line.startswith("subgraph ") for line in lines) == lines.count("end")
    named = {found[1] for line in lines if (found := re.match(r"(\w+)(?:\[|\{\{|\(\[)", line))}
    links = [line for line in lines if re.search(r" (-->|==>|\.->|-\.->)", line)]
    assert links
    for link in links:
        first, last = re.match(r"(\w+) ", link), re.search(r" (\w+)$", link)
        assert first is not None and first[1] in named, link
        assert last is not None and last[1] in named, link
    classes = set(re.findall(r":::(\w+)", text)) | {"lane", "walk"}
    assert classes <= set(re.findall(r"classDef (\w+)", text))
    assert all(line.count('"') % 2 == 0 for line in lines)


def test_words_say_how_loops_end():
    component = Component("nowhere:Part")
    read = Node(component, "read", takes=Stream(), gives="x")
    go = Node(component, "go", takes="x", gives="x")
    read.reads[0].name = "codes"
    assert loop_end(Loop(go, carry="x", times="most")) == "until a stop, at most most turns"
    assert loop_end(Loop(go, carry="x", times=2)) == "2 turns"
    assert loop_end(Loop(go, carry="x", times=1)) == "1 turn"
    assert loop_end(Loop(go, each={"x": "xs", "y": "ys"}, times=4)) == (
        "a turn for each of xs and ys, at most 4 turns"
    )
    assert loop_end(Loop(read)) == "until codes ends"
    assert loop_end(Loop(read, go, carry="x")) == "until a stop"


def test_words_say_which_names_pass_from_part_to_part():
    bagel = FAMILIES["bagel"].spec.graphs["denoise"].parts
    assert passed_on(bagel, 1) == passed_on(bagel, 2) == ["latents"]
    vjepa = FAMILIES["vjepa"].spec.graphs["imagine"].parts
    assert set(passed_on(vjepa, 1)) == {"pose", "rollout"}
    assert results(Orpheus.spec.graphs["encode"]) == ["ids", "length"]
    assert results(Orpheus.spec.graphs["write"]) == []


def test_a_caption_keeps_clear_of_lines_that_cross_its_height():
    assert free_start(100, [], 14) == 14
    assert free_start(100, [50], 14) == 62
    assert free_start(20, [50], 14) == 14
    assert free_start(100, [20, 60, 300], 14) == 72


def test_a_picture_is_drawn_without_torch():
    program = (
        "import sys\nfrom walkserve.cli import main\nmain(['graph', 'orpheus', '--format', 'svg'])\n"
        "print(*(name for name in ('torch', 'transformers', 'litestar') if name in sys.modules), "
        "file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("<svg ")
    assert done.stderr.split() == []
