"""A picture of an energy landscape over two axes of an action.

::

    energy after one step
     0.08 ┌────────────┐ ┌┐ 1.02        a cell for each action of the grid, the first axis to the right;
          │            │ ││             dark is low: near to what is wanted
     y    │      o +   │ ││             o the lowest, + the plan's first step
          │            │ ││
    -0.08 └────────────┘ └┘ 0.31
        -0.08   x    0.08
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

SIZE = 512
"""Pixels of each side."""

_FINE = 2  # drawn so much larger and then reduced, for edges without steps
_LEFT, _TOP, _SIDE = 74, 46, 348  # of the map
_BAR_LEFT, _BAR_WIDTH = 438, 16

_PAPER, _INK, _QUIET = (255, 255, 255), (34, 38, 46), (112, 118, 130)
_LOWEST, _PLANNED = (255, 255, 255), (255, 122, 46)

# Even steps of lightness from dark to light (after Nuñez et al. 2018), so that equal differences look equal.
_SCALE = np.array(
    [
        (0, 32, 77),
        (40, 62, 108),
        (87, 93, 109),
        (124, 123, 120),
        (165, 156, 116),
        (212, 193, 95),
        (255, 234, 70),
    ]
)

Point = tuple[float, ...]


def draw_landscape(
    energies: NDArray[np.float32],
    ticks: list[float],
    axes: tuple[str, str],
    *,
    lowest: Point,
    planned: Point | None,
) -> NDArray[np.uint8]:
    """The picture, uint8 (512, 512, 3).

    Args:
        energies: (points, points); the first axis is drawn to the right, the second upwards.
        ticks: Where the points of both axes stand.
        lowest: The action with the lowest energy, on these axes.
        planned: The plan's first step on these axes; at the edge where it lies outside, None for no mark.
    """
    page = _Page(reach=max(abs(tick) for tick in ticks), points=len(ticks))
    low, high = float(energies.min()), float(energies.max())
    page.map(energies, low, high)
    page.frame(axes)
    page.bar(low, high)
    page.mark(lowest, planned)
    return page.pixels()


class _Page:
    """Paper, and where on it an action lies."""

    def __init__(self, *, reach: float, points: int) -> None:
        self.reach = reach
        # the outermost cells have their middles at the outermost ticks
        self.cell = _SIDE / points
        self.image = Image.new("RGB", (SIZE * _FINE, SIZE * _FINE), _PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def place(self, at: Point) -> tuple[float, float]:
        """Pixels of a point of the map."""
        inner = _SIDE - self.cell
        across, up = (min(max(one / self.reach, -1.0), 1.0) / 2 + 0.5 for one in at)
        return _LEFT + self.cell / 2 + across * inner, _TOP + _SIDE - self.cell / 2 - up * inner

    def map(self, energies: NDArray[np.float32], low: float, high: float) -> None:
        share = (energies - low) / ((high - low) or 1.0)
        cells = Image.fromarray(_colours(share.T[::-1]))
        side = _SIDE * _FINE
        self.image.paste(cells.resize((side, side), Image.Resampling.NEAREST), (_LEFT * _FINE, _TOP * _FINE))

    def frame(self, axes: tuple[str, str]) -> None:
        self.text((_LEFT, _TOP - 16), "energy after one step", 17, anchor="lm")
        self.box(_LEFT, _TOP, _LEFT + _SIDE, _TOP + _SIDE)
        for value in (-self.reach, 0.0, self.reach):
            x, y = self.place((value, value))
            self.line((x, _TOP + _SIDE, x, _TOP + _SIDE + 5))
            self.line((_LEFT - 5, y, _LEFT, y))
            self.text((x, _TOP + _SIDE + 17), _number(value), 13, fill=_QUIET)
            self.text((_LEFT - 9, y), _number(value), 13, fill=_QUIET, anchor="rm")
        self.text((_LEFT + _SIDE / 2, _TOP + _SIDE + 37), axes[0], 16)
        self.upwards((_LEFT - 56, _TOP + _SIDE / 2), axes[1], 16)

    def bar(self, low: float, high: float) -> None:
        ramp = Image.fromarray(_colours(np.linspace(1, 0, 256)[:, None]))
        size = (_BAR_WIDTH * _FINE, _SIDE * _FINE)
        self.image.paste(ramp.resize(size), (_BAR_LEFT * _FINE, _TOP * _FINE))
        self.box(_BAR_LEFT, _TOP, _BAR_LEFT + _BAR_WIDTH, _TOP + _SIDE)
        for value, y in ((high, _TOP + 7), ((low + high) / 2, _TOP + _SIDE / 2), (low, _TOP + _SIDE - 7)):
            self.text((_BAR_LEFT + _BAR_WIDTH + 6, y), f"{value:.3g}", 13, fill=_QUIET, anchor="lm")

    def mark(self, lowest: Point, planned: Point | None) -> None:
        """Both marks on the map, and below it what they are."""
        below = _TOP + _SIDE + 66
        self.ring(self.place(lowest))
        self.ring((_LEFT + 8, below))
        self.text((_LEFT + 24, below), f"lowest: {_pair(lowest)}", 14, anchor="lm")
        if planned is not None:
            self.cross(self.place(planned))
            self.cross((_LEFT + 190, below))
            self.text((_LEFT + 206, below), f"planned: {_pair(planned)}", 14, anchor="lm")

    def ring(self, at: tuple[float, float]) -> None:
        x, y = at
        for radius, width, colour in ((9.5, 5.5, _INK), (8.0, 2.5, _LOWEST)):
            ends = [each * _FINE for each in (x - radius, y - radius, x + radius, y + radius)]
            self.draw.ellipse(ends, outline=colour, width=round(width * _FINE))

    def cross(self, at: tuple[float, float]) -> None:
        x, y = at
        for arm, width, colour in ((9.0, 6.0, _INK), (7.5, 3.0, _PLANNED)):
            self.line((x - arm, y, x + arm, y), fill=colour, width=width)
            self.line((x, y - arm, x, y + arm), fill=colour, width=width)

    # --- in pixels of the finished picture --------------------------------------------------------

    def line(
        self,
        ends: tuple[float, float, float, float],
        *,
        fill: tuple[int, int, int] = _QUIET,
        width: float = 1.0,
    ) -> None:
        self.draw.line([end * _FINE for end in ends], fill=fill, width=round(width * _FINE))

    def box(self, left: float, top: float, right: float, bottom: float) -> None:
        self.draw.rectangle(
            [each * _FINE for each in (left, top, right, bottom)], outline=_QUIET, width=_FINE
        )

    def text(
        self,
        at: tuple[float, float],
        words: str,
        size: int,
        *,
        fill: tuple[int, int, int] = _INK,
        anchor: str = "mm",
    ) -> None:
        self.draw.text(
            (at[0] * _FINE, at[1] * _FINE), words, fill=fill, anchor=anchor, font=_font(size * _FINE)
        )

    def upwards(self, at: tuple[float, float], words: str, size: int) -> None:
        """Text that is read from below."""
        font = _font(size * _FINE)
        width = round(font.getlength(words)) + 2 * _FINE
        height = 2 * size * _FINE
        strip = Image.new("RGB", (width, height), _PAPER)
        ImageDraw.Draw(strip).text((width / 2, height / 2), words, fill=_INK, anchor="mm", font=font)
        turned = strip.rotate(90, expand=True)
        corner = round(at[0] * _FINE - height / 2), round(at[1] * _FINE - width / 2)
        self.image.paste(turned, corner)

    def pixels(self) -> NDArray[np.uint8]:
        return np.array(self.image.resize((SIZE, SIZE), Image.Resampling.LANCZOS))


def _colours(share: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Of shares in [0, 1], (rows, columns), their colours (rows, columns, 3)."""
    steps = np.linspace(0, 1, len(_SCALE))
    return np.stack([np.interp(share, steps, channel) for channel in _SCALE.T], -1).round().astype(np.uint8)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _number(value: float) -> str:
    return f"{value:+.3g}" if value else "0"


def _pair(at: Point) -> str:
    return ", ".join(f"{one:+.3f}" for one in at)
