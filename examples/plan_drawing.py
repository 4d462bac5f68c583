"""Drawing a trip through the toy world: what was seen, the path that was imagined, the path that was taken.

White is where the disc has been, orange rings where the model imagined it, the blue ring where it is to go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Camera = Callable[[NDArray[np.float32]], NDArray[np.uint8]]
Point = tuple[float, float]

PIXELS = 64
_FINE = 2  # drawn so much larger and then reduced, for edges without steps
_PAPER, _INK, _QUIET = (255, 255, 255), (34, 38, 46), (112, 118, 130)
_TRUE, _IMAGINED, _WANTED = (255, 255, 255), (255, 150, 60), (120, 205, 255)


def strip(
    camera: Camera, start: NDArray[np.float32], goal: NDArray[np.float32], rounds: Sequence[Any]
) -> Image.Image:
    """The start, the state after each plan, and the goal, side by side."""
    side, gap = 224, 16
    titles = ["start", *(f"after plan {number + 1}" for number in range(len(rounds))), "goal"]
    page = Image.new("RGB", (len(titles) * (side + gap) + gap, side + 3 * gap + 16), _PAPER)
    for column, title in enumerate(titles):
        done = rounds[: min(column, len(rounds))]
        state = goal if title == "goal" else done[-1].true[-1] if done else start
        view = View(camera, state, side)
        if title != "goal":
            view.ring(goal, 8, _WANTED)
            view.path([start, *(each for one in done for each in one.true)])
            for one in done[-1:]:
                for place in one.imagined:
                    view.ring(place, 4, _IMAGINED)
        left = gap + column * (side + gap)
        page.paste(view.finished(), (left, gap + 24))
        _write(page, (left, gap + 8), title, 16)
    return page


def animation(
    camera: Camera,
    start: NDArray[np.float32],
    goal: NDArray[np.float32],
    rounds: Sequence[Any],
    path: str,
) -> None:
    """Write a GIF: each plan is imagined ring by ring, then taken step by step."""
    frames, lasts, been = [], [], [start]
    for number, one in enumerate(rounds):
        for shown in range(len(one.imagined) + 1):
            words = [f"plan {number + 1}", "imagined", f"energy {one.energy:.3f}"]
            frames.append(_frame(camera, been, goal, one.imagined[:shown], words))
            lasts.append(300)
        lasts[-1] = 700
        for state in one.true:
            been.append(state)
            away = float(np.linalg.norm((state - goal)[:3]))
            words = [f"plan {number + 1}", "taken", f"{away:.3f} away"]
            frames.append(_frame(camera, been, goal, one.imagined, words))
            lasts.append(300)
        lasts[-1] = 900
    lasts[-1] = 2500
    small = [_few_colours(frame) for frame in frames]
    small[0].save(path, save_all=True, append_images=small[1:], duration=lasts, loop=0, optimize=True)


class View:
    """A frame, large, with marks on it."""

    def __init__(self, camera: Camera, state: NDArray[np.float32], side: int) -> None:
        self.side = side
        self.scale = side * _FINE / PIXELS
        self.image = Image.fromarray(camera(np.asarray(state, np.float32)[None])[0]).resize(
            (side * _FINE, side * _FINE), Image.Resampling.BICUBIC
        )
        self.draw = ImageDraw.Draw(self.image)

    def at(self, place: NDArray[np.float32]) -> Point:
        return (32.5 + 90 * float(place[0])) * self.scale, (32.5 - 90 * float(place[1])) * self.scale

    def ring(self, place: NDArray[np.float32], radius: float, colour: tuple[int, int, int]) -> None:
        x, y = self.at(place)
        for grown, width, ink in ((1.0, 4.0, _INK), (0.0, 2.0, colour)):
            reach = (radius + grown) * _FINE
            self.draw.ellipse(
                (x - reach, y - reach, x + reach, y + reach), outline=ink, width=round(width * _FINE)
            )

    def path(self, states: Sequence[NDArray[np.float32]]) -> None:
        points = [self.at(state) for state in states]
        for width, ink in ((4.0, _INK), (2.0, _TRUE)):
            if len(points) > 1:
                self.draw.line(points, fill=ink, width=round(width * _FINE), joint="curve")
            for x, y in points:
                reach = (width / 2 + 1.5) * _FINE
                self.draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=ink)

    def finished(self) -> Image.Image:
        return self.image.resize((self.side, self.side), Image.Resampling.LANCZOS)


def _frame(
    camera: Camera,
    been: Sequence[NDArray[np.float32]],
    goal: NDArray[np.float32],
    imagined: NDArray[np.float32],
    words: Sequence[str],
) -> Image.Image:
    page = Image.new("RGB", (560, 400), _PAPER)
    view = View(camera, been[-1], 368)
    view.ring(goal, 11, _WANTED)
    view.path(been)
    for place in imagined:
        view.ring(place, 6, _IMAGINED)
    page.paste(view.finished(), (16, 16))
    _write(page, (400, 24), "goal", 15, _QUIET)
    page.paste(View(camera, goal, 144).finished(), (400, 40))
    for line, told in enumerate(words):
        _write(page, (400, 216 + 26 * line), told, 18 if line == 0 else 16, _INK if line == 0 else _QUIET)
    for line, (colour, told) in enumerate(((_IMAGINED, "imagined"), (_TRUE, "taken"), (_WANTED, "goal"))):
        y = 316 + 24 * line
        draw = ImageDraw.Draw(page)
        draw.ellipse((400, y - 6, 412, y + 6), fill=colour, outline=_INK, width=2)
        _write(page, (420, y), told, 14, _QUIET)
    return page


def _few_colours(frame: Image.Image) -> Image.Image:
    """At most 256, as a GIF has; those of the marks, which are rare, for certain."""
    kept = [each for colour in (_PAPER, _INK, _QUIET, _IMAGINED, _WANTED) for each in colour]
    common = frame.quantize(240).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette(kept + common[: 768 - len(kept)])
    return frame.quantize(palette=palette, dither=Image.Dither.NONE)


def _write(page: Image.Image, at: Point, words: str, size: int, ink: tuple[int, int, int] = _INK) -> None:
    font = ImageFont.load_default(size)
    ImageDraw.Draw(page).text(at, words, fill=ink, font=font, anchor="lm")
