"""Writing SVG: elements that come out well-formed, numbers that come out short, text whose width is known."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

FONTS = "-apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"
# Helvetica's widths in thousandths of the size; wider fonts are allowed for below.
_WIDTHS = {
    **dict.fromkeys("ijl'|", 222),
    **dict.fromkeys(" .,:;ft/I!\\[]·", 278),
    **dict.fromkeys("()-r`", 333),
    **dict.fromkeys("ckssvxyzJ", 500),
    **dict.fromkeys("FTZL", 611),
    **dict.fromkeys("ABEKPSVXY&", 667),
    **dict.fromkeys("wCDHNRU", 722),
    **dict.fromkeys("GOQ", 778),
    **dict.fromkeys("mM%", 861),
    **dict.fromkeys("W→×…", 1000),
}
_WIDEST_FONT = 1.14  # DejaVu Sans, against Helvetica
_BOLD = 1.07


def number(value: float) -> str:
    """At most one decimal, and none that is zero."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """An upper bound in pixels, for any of the fonts that may be there."""
    thousandths = sum(_WIDTHS.get(letter, 556) for letter in text)
    return thousandths / 1000 * size * _WIDEST_FONT * (_BOLD if bold else 1)


def shortened(text: str, size: float, width: float, *, bold: bool = False) -> str:
    """The text, cut with an ellipsis in its middle where it is too long: both of its ends tell something."""
    if text_width(text, size, bold=bold) <= width:
        return text
    for kept in range(len(text) - 1, 0, -1):
        cut = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
        if text_width(cut, size, bold=bold) <= width:
            return cut
    return ""


def boxes(rectangles: Sequence[tuple[float, float, float, float]]) -> str:
    """Many rectangles (x, y, width, height) as the ``d`` of one path."""
    return "".join(
        f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z"
        for x, y, width, height in rectangles
    )


class Canvas:
    """What is drawn so far. Attributes are given with ``_`` where SVG has ``-``, and ``cls`` is ``class``."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, tag: str, text: str | None = None, **attributes: str | float) -> None:
        """One element, with text in it or none."""
        said = "".join(f" {_name(name)}={_quoted(value)}" for name, value in attributes.items())
        self._parts.append(f"<{tag}{said}/>" if text is None else f"<{tag}{said}>{escape(text)}</{tag}>")

    def text(self, x: float, y: float, text: str, cls: str, **attributes: str | float) -> None:
        """A line of text whose baseline begins at (x, y)."""
        if text:
            self.add("text", text, x=x, y=y, cls=cls, **attributes)

    def under(self, other: Canvas) -> None:
        """Put what ``other`` holds below all that is here."""
        self._parts[:0] = other._parts

    def document(self, width: float, height: float, *, title: str, style: str, definitions: str = "") -> str:
        """All of it as a file, on a white ground."""
        size = f"{number(width)} {number(height)}"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{number(width)}" '
            f'height="{number(height)}" role="img" font-family="{FONTS}">'
        )
        ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
        body = "\n".join(self._parts)
        return (
            f"{head}\n<title>{escape(title)}</title>\n<defs>{definitions}</defs>\n"
            f"<style>{style}</style>\n{ground}\n{body}\n</svg>\n"
        )


def _name(name: str) -> str:
    return "class" if name == "cls" else name.replace("_", "-")


def _quoted(value: str | float) -> str:
    return quoteattr(value if isinstance(value, str) else number(value))
