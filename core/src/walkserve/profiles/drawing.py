"""A request's profile drawn as an SVG time line, with what it comes to in tables below."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, pairwise

from walkserve.profiles.lanes import Bar, Fill, Lane, Span, fills, lanes, outputs, phases, walks
from walkserve.profiles.report import Profile, ProfiledRequest
from walkserve.profiles.scale import Scale, in_words
from walkserve.profiles.summary import edge_lines, method_lines
from walkserve.profiles.svg import Canvas, boxes, number, shortened, text_width
from walkserve.profiles.tables import draw_edges, draw_methods

WIDTH = 1240.0
MARGIN = 36.0
GUTTER = 176.0
"""Left of the time line, for the names of lanes."""
LANE, FILL, GAP = 34.0, 46.0, 8.0
BAR = 24.0
SMALL = 11.5
BINS = 4
"""Batches closer than this many pixels on the average are drawn as how busy each pixel was."""
FEW = 40
"""Batches that are drawn one by one all the same."""
LEVELS = 8

COLOURS = ("#2563eb", "#ea580c", "#0d9488", "#9333ea", "#ca8a04", "#db2777", "#65a30d", "#475569")
FIRST = "#be123c"
PHASE_COLOURS = {"prepare": "#94a3b8", "wait for room": "#fbbf24", "run": "#cbd5e1"}
STYLE = """
.name { font-size: 20px; font-weight: 600; fill: #0f172a }
.about { font-size: 13.5px; fill: #475569 }
.process { font-size: 12px; font-weight: 600; fill: #475569 }
.lane { font-size: 13px; fill: #0f172a }
.note { font-size: 11.5px; fill: #64748b }
.tick { font-size: 11.5px; fill: #64748b }
.first { font-size: 12px; font-weight: 600; fill: #be123c }
.on { font-size: 11.5px; fill: #1e293b }
.title { font-size: 14.5px; font-weight: 600; fill: #0f172a }
.heading { font-size: 11.5px; fill: #64748b }
.cell { font-size: 12.5px; fill: #1e293b }
"""
DEFINITIONS = (
    '<pattern id="waits" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#f1f5f9"/><rect width="2" height="6" fill="#cbd5e1"/></pattern>'
)


def draw(request: ProfiledRequest) -> str:
    """The whole picture, a file.

    Raises:
        ValueError: The request has no profile.
    """
    if request.profile is None:
        raise ValueError(f"the request {request.id} has no profile")
    return _Picture(request, request.profile).draw()


class _Picture:
    """One picture; ``y`` is how far down it has come."""

    def __init__(self, request: ProfiledRequest, profile: Profile) -> None:
        self.request = request
        self.profile = profile
        self.canvas = Canvas()
        self.ground = Canvas()
        self.lanes = lanes(profile)
        ends = [bar.ended_us for lane in self.lanes for bar in lane.bars[-1:]]
        left = MARGIN + GUTTER
        self.scale = Scale(max([profile.took_us, *ends]), left, WIDTH - MARGIN - left - 14)
        components = dict.fromkeys(lane.component for lane in self.lanes)
        self.colours = dict(zip(components, cycle(COLOURS), strict=False))
        first_us = profile.first_output_us
        self.first_x = None if first_us is None else self.scale.x(first_us)
        self.y = MARGIN

    def draw(self) -> str:
        self._head()
        top = self._axis()
        self._http()
        self._conductor()
        for worker in dict.fromkeys(lane.worker for lane in self.lanes):
            self._worker(worker)
        self._moments(top, self.y - GAP)
        self._legend()
        self.y = draw_methods(self.canvas, method_lines(self.profile), self.colours, MARGIN, self.y + 34)
        self.y = draw_edges(self.canvas, edge_lines(self.profile), MARGIN, self.y + 22)
        request = self.request
        return self.canvas.document(
            WIDTH,
            self.y + MARGIN / 2,
            title=f"Time line of {request.id}, {request.model}",
            style=STYLE,
            definitions=DEFINITIONS,
        )

    # --- head and axis --------------------------------------------------------------------------------

    def _head(self) -> None:
        request, width = self.request, WIDTH - 2 * MARGIN
        self.canvas.text(MARGIN, self.y + 8, shortened(request.model, 20, width, bold=True), "name")
        self.canvas.text(MARGIN, self.y + 32, shortened(self._about(), 13.5, width), "about")
        note = shortened(f"{request.id} · {self.profile.clock}", SMALL, width)
        self.canvas.text(MARGIN, self.y + 52, note, "note")
        self.y += 62

    def _about(self) -> str:
        request, took_us = self.request, self.profile.took_us
        said = []
        for output, sound_s in request.audio_s.items():
            name = f" of {output}" if len(request.audio_s) > 1 else ""
            said.append(f"{sound_s:.2f} s of sound{name} in {in_words(took_us)}")
            if sound_s:
                said.append(f"real-time factor {took_us / 1e6 / sound_s:.2f}")
        if not said:
            said.append(f"took {in_words(took_us)}")
        if self.profile.first_output_us is not None:
            said.append(f"first output after {in_words(self.profile.first_output_us)}")
        read, wrote = (request.usage.get(name) for name in ("input_tokens", "output_tokens"))
        if read is not None and wrote is not None:
            said.append(f"{read:,} tokens in, {wrote:,} out")
        if request.underruns:
            said.append(f"{request.underruns} underruns")
        said.append(f"{request.state}: {request.finish_reason}" if request.finish_reason else request.state)
        if not self.profile.complete:
            said.append("not all of it is known")
        return " · ".join(said)

    def _axis(self) -> float:
        """Where the ticks are; the lines themselves are drawn when their length is known."""
        self.y += 40  # the first output's name stands above the ticks
        for x, text in self.scale.ticks():
            half = text_width(text, SMALL) / 2
            is_crossed = self.first_x is not None and abs(self.first_x - x) < half + 3
            if x + half <= WIDTH - MARGIN / 2 and not is_crossed:
                self.canvas.text(x, self.y, text, "tick", text_anchor="middle")
        self.y += 8
        return self.y

    def _moments(self, top: float, bottom: float) -> None:
        """Lines through all lanes: ticks below what is in them, the first output above it."""
        lines = "".join(f"M{number(x)} {number(top)}V{number(bottom)}" for x, _ in self.scale.ticks())
        self.ground.add("path", d=lines, stroke="#e2e8f0", stroke_width=1)
        self.canvas.under(self.ground)
        if self.first_x is None:
            return
        x, line = self.first_x, f"M{number(self.first_x)} {number(top - 24)}V{number(bottom)}"
        self.canvas.add("path", d=line, stroke=FIRST, stroke_width=1.5)
        text = f"first output, {in_words(self.profile.first_output_us or 0)}"
        is_left = x + 6 + text_width(text, 12, bold=True) > self.scale.right
        anchor = "end" if is_left else "start"
        self.canvas.text(x - 6 if is_left else x + 6, top - 24, text, "first", text_anchor=anchor)

    # --- processes ------------------------------------------------------------------------------------

    def _process(self, name: str, height: float) -> None:
        """The ground of one process's lanes, and its name."""
        self.ground.add(
            "rect",
            x=MARGIN - 12,
            y=self.y,
            width=WIDTH - 2 * MARGIN + 24,
            height=height + 26,
            rx=8,
            fill="#f8fafc",
        )
        self.canvas.text(MARGIN, self.y + 18, shortened(name, 12, GUTTER, bold=True), "process")
        self.y += 24

    def _lane(self, name: str, note: str = "") -> None:
        """The name of a lane, and what else there is to say of it."""
        middle, room = self.y + BAR / 2 + 4.5, GUTTER - 20
        note = shortened(note, SMALL, room / 2)
        taken = text_width(note, SMALL) + 8 if note else 0
        self.canvas.text(MARGIN + 10, middle, shortened(name, 13, room - taken), "lane")
        self.canvas.text(MARGIN + GUTTER - 10, middle, note, "note", text_anchor="end")

    def _http(self) -> None:
        given = outputs(self.profile)
        self._process("http", LANE * (1 + len(given)))
        self._lane("request")
        self._spans([Span("accepted to answered", 0, self.profile.took_us)], {}, "#dbeafe")
        self.y += LANE
        for name, moments in given.items():
            self._lane(name, _counted(len(moments), "item"))
            self.canvas.add(
                "path",
                d=boxes([(self.scale.x(at_us) - 0.75, self.y, 1.5, BAR) for at_us in moments]),
                fill=FIRST,
            )
            self.y += LANE
        self.y += GAP + 2

    def _conductor(self) -> None:
        tracks: dict[str, list[Span]] = {}
        steps: list[Span] = []
        for call in self.profile.calls:
            steps += phases(call)
            for track, spans in walks(call, self.profile.took_us).items():
                tracks.setdefault(track, []).extend(spans)
        self._process("conductor", LANE * (1 + len(tracks)))
        self._lane("phases")
        self._spans(steps, PHASE_COLOURS, "#cbd5e1")
        self.y += LANE
        for track, spans in tracks.items():
            self._lane(track, "track")
            self._spans(spans, {}, "#e2e8f0")
            self.y += LANE
        self.y += GAP + 2

    def _spans(self, spans: Sequence[Span], colours: dict[str, str], otherwise: str) -> None:
        """Stretches with their names in them, where there is room."""
        for span in spans:
            x, end = self.scale.x(span.began_us), self.scale.x(span.ended_us)
            width = max(end - x, 1.0)
            fill = colours.get(span.name, otherwise)
            self.canvas.add("rect", x=x, y=self.y, width=width, height=BAR, rx=min(3, width / 3), fill=fill)
            text = f"{span.name}, {in_words(span.ended_us - span.began_us)}"
            needed = text_width(text, SMALL)
            if self.first_x is not None and x - 4 < self.first_x < x + 6 + needed + 4:
                x = max(x, self.first_x + 2)  # the line of the first output would run through it
            if needed <= end - x - 12:
                self.canvas.text(x + 6, self.y + BAR / 2 + 4, text, "on")

    def _worker(self, worker: str) -> None:
        own = [lane for lane in self.lanes if lane.worker == worker]
        names = {lane.component for lane in own}
        held = [fill for fill in fills(self.profile) if (fill.target or fill.source) in names]
        self._process(worker, LANE * len(own) + FILL * len(held))
        for lane in own:
            self._lane(lane.component, _counted(len(lane.bars), "call"))
            self._component(lane)
            self.y += LANE
        for fill in held:
            self._fill(fill)
            self.y += FILL
        self.y += GAP + 2

    def _component(self, lane: Lane) -> None:
        """Waits behind, batches before them: light the whole batch, full this request's part of it."""
        colour = self.colours[lane.component]
        for kind, look in (("stream", "url(#waits)"), ("branch", "#e2e8f0"), ("batch", "#e2e8f0")):
            spans = [(wait.began_us, wait.ended_us) for wait in lane.waits if wait.name == kind]
            rectangles = [(x, self.y + 3, width, BAR - 6) for x, width in _joined(self.scale, spans)]
            if rectangles:
                self.canvas.add("path", d=boxes(rectangles), fill=look)
        extent = self.scale.width * _extent(lane, self.scale.until_us)
        if len(lane.bars) > FEW and len(lane.bars) * BINS > extent:
            self._dense(lane.bars, colour)
            return
        whole, parts = [], []
        for bar in lane.bars:
            x, end = self.scale.x(bar.began_us), self.scale.x(bar.ended_us)
            width = max(end - x - 0.4, 1.2)  # a gap between a batch and the next
            whole.append((x, self.y, width, BAR))
            parts.append((x, self.y + BAR * (1 - bar.part), width, BAR * bar.part))
        self.canvas.add("path", d=boxes(whole), fill=colour, fill_opacity=0.3)
        self.canvas.add("path", d=boxes(parts), fill=colour)

    def _dense(self, bars: Sequence[Bar], colour: str) -> None:
        """Too many to be told apart: per pixel, how busy it was, and how much of that was this request's."""
        busy, own = _density(bars, self.scale)
        for heights, opacity in ((busy, 0.3), (own, 1.0)):
            rectangles, start = [], 0
            levels = [round(height * LEVELS) for height in heights]
            for n in range(1, len(levels) + 1):
                if n == len(levels) or levels[n] != levels[start]:
                    height = BAR * levels[start] / LEVELS
                    if height:
                        rectangles.append((self.scale.left + start, self.y + BAR - height, n - start, height))
                    start = n
            self.canvas.add("path", d=boxes(rectangles), fill=colour, fill_opacity=opacity)

    def _fill(self, fill: Fill) -> None:
        """What a stream holds, as a hill."""
        self._lane(fill.stream, f"most {fill.most:,}")
        ends = shortened(f"{fill.source} → {fill.target}", SMALL, GUTTER - 20)
        self.canvas.text(MARGIN + 10, self.y + BAR / 2 + 20, ends, "note")
        floor, height = self.y + FILL - 12, FILL - 14
        is_dense = len(fill.held) * BINS > self.scale.width
        hill = _mean(fill.held, self.scale) if is_dense else [(self.scale.x(at), n) for at, n in fill.held]
        path = f"M{number(self.scale.left)} {number(floor)}"
        for x, items in hill:
            path += f"H{number(x)}V{number(floor - height * items / max(fill.most, 1))}"
        path += f"V{number(floor)}z"
        line = "none" if is_dense else "#0284c7"
        self.canvas.add("path", d=path, fill="#0ea5e9", fill_opacity=0.35, stroke=line)
        base = f"M{number(self.scale.left)} {number(floor)}H{number(self.scale.right)}"
        self.canvas.add("path", d=base, stroke="#cbd5e1")

    # --- legend ---------------------------------------------------------------------------------------

    def _legend(self) -> None:
        self.y += 18
        x, canvas = MARGIN, self.canvas
        colour = next(iter(self.colours.values()), COLOURS[0])
        entries = (
            ("batch", "a batch; full: this request's part of it"),
            ("waits", "waits for a stream"),
            ("light", "waits for its turn or a batch"),
            ("fill", "items a stream holds"),
            ("first", "output leaves"),
        )
        for kind, text in entries:
            match kind:
                case "batch":
                    canvas.add("rect", x=x, y=self.y - 10, width=14, height=12, fill=colour, fill_opacity=0.3)
                    canvas.add("rect", x=x, y=self.y - 6, width=14, height=8, fill=colour)
                case "waits":
                    canvas.add("rect", x=x, y=self.y - 10, width=14, height=12, fill="url(#waits)")
                case "light":
                    canvas.add("rect", x=x, y=self.y - 10, width=14, height=12, fill="#e2e8f0")
                case "fill":
                    canvas.add(
                        "rect", x=x, y=self.y - 10, width=14, height=12, fill="#0ea5e9", fill_opacity=0.35
                    )
                case _:
                    canvas.add("rect", x=x + 6, y=self.y - 10, width=1.5, height=12, fill=FIRST)
            canvas.text(x + 20, self.y, text, "note")
            x += 20 + text_width(text, SMALL) + 22


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _extent(lane: Lane, until_us: int) -> float:
    """Which part of the time line a lane's batches are on."""
    return (max(bar.ended_us for bar in lane.bars) - lane.bars[0].began_us) / max(until_us, 1)


def _joined(scale: Scale, spans: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """(x, width) of spans; those that touch on the screen become one."""
    found: list[list[float]] = []
    for began_us, ended_us in sorted(spans):
        x, end = scale.x(began_us), scale.x(ended_us)
        if found and x - found[-1][1] < 0.3:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([x, end])
    return [(x, end - x) for x, end in found if end - x >= 0.3]


def _density(bars: Sequence[Bar], scale: Scale) -> tuple[list[float], list[float]]:
    """Per pixel: the part of its time that batches took, and the part of that which was the request's."""
    pixels = int(scale.width)
    busy, own = [0.0] * pixels, [0.0] * pixels
    for bar in bars:
        x, end = scale.x(bar.began_us) - scale.left, scale.x(bar.ended_us) - scale.left
        for n in range(int(x), min(int(end) + 1, pixels)):
            covered = max(min(end, n + 1) - max(x, n), 0.0)
            busy[n] += covered
            own[n] += covered * bar.part
    return [min(one, 1.0) for one in busy], [min(one, 1.0) for one in own]


def _mean(held: Sequence[tuple[int, int]], scale: Scale) -> list[tuple[float, float]]:
    """(x, items) per pixel: what was held on the average of its time."""
    sums = [0.0] * (int(scale.width) + 1)
    for (at_us, items), (until_us, _) in pairwise(held):
        x, end = scale.x(at_us) - scale.left, scale.x(until_us) - scale.left
        for n in range(int(x), int(end) + 1):
            sums[n] += items * max(min(end, n + 1) - max(x, n), 0.0)
    return [(scale.left + n, items) for n, items in enumerate(sums)]
