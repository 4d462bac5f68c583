"""The tables below a time line: time per component and method, and bytes per edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from walkserve.profiles.scale import bytes_in_words, in_words
from walkserve.profiles.summary import EdgeLine, MethodLine
from walkserve.profiles.svg import Canvas, shortened

ROW = 22
SIZE = 12.5
SHARE_WIDTH = 88.0
"""Pixels of the bar that shows a share of 1."""


@dataclass(frozen=True)
class _Column:
    """Heading, the x at which it begins or, of numbers, ends, and its width."""

    heading: str
    x: float
    width: float
    is_number: bool = False


def draw_methods(
    canvas: Canvas, lines: Sequence[MethodLine], colours: Mapping[str, str], left: float, y: float
) -> float:
    """Time per component and method; returns the y below it."""
    columns = [
        _Column("component.method", left + 18, 172),
        _Column("worker", left + 200, 150),
        _Column("calls", left + 410, 56, is_number=True),
        _Column("rows", left + 470, 52, is_number=True),
        _Column("tokens", left + 538, 62, is_number=True),
        _Column("in batches", left + 632, 84, is_number=True),
        _Column("share of the request", left + 648, 160),
        _Column("own part", left + 884, 76, is_number=True),
        _Column("a stream", left + 980, 84, is_number=True),
        _Column("its turn", left + 1068, 76, is_number=True),
        _Column("a batch", left + 1156, 76, is_number=True),
    ]
    canvas.text(left, y, "Time per component and method", "title")
    first, last = columns[-3].x - 58, columns[-1].x
    canvas.text((first + last) / 2, y + 2, "waited for", "heading", text_anchor="middle")
    canvas.add("path", d=f"M{first} {y + 8}H{last}", stroke="#cbd5e1", stroke_width=1)
    y = _headings(canvas, columns, left, y + 24)
    for line in lines:
        colour = colours.get(line.name.rpartition(".")[0], "#64748b")
        canvas.add("rect", x=left, y=y - 10, width=10, height=10, rx=2, fill=colour)
        cells = [
            line.name,
            line.worker,
            f"{line.calls:,}",
            f"{line.mean_rows:.2f}",
            f"{line.tokens:,}",
            in_words(line.busy_us),
            "",
            in_words(line.cost_us),
            in_words(line.stream_wait_us),
            in_words(line.branch_wait_us),
            in_words(line.batch_wait_us),
        ]
        _row(canvas, columns, cells, y)
        x = columns[6].x
        canvas.add("rect", x=x, y=y - 9, width=SHARE_WIDTH, height=8, rx=2, fill="#e2e8f0")
        share = min(line.share, 1.0) * SHARE_WIDTH
        canvas.add("rect", x=x, y=y - 9, width=max(share, 1.0), height=8, rx=2, fill=colour)
        canvas.text(x + SHARE_WIDTH + 8, y, f"{100 * line.share:.1f} %", "cell")
        y += ROW
    return y


def draw_edges(canvas: Canvas, lines: Sequence[EdgeLine], left: float, y: float) -> float:
    """Bytes per edge; returns the y below it."""
    columns = [
        _Column("edge", left + 18, 172),
        _Column("from", left + 200, 220),
        _Column("to", left + 430, 220),
        _Column("items", left + 730, 70, is_number=True),
        _Column("bytes", left + 832, 90, is_number=True),
        _Column("bytes per item", left + 960, 110, is_number=True),
    ]
    canvas.text(left, y, "Bytes per edge", "title")
    y = _headings(canvas, columns, left, y + 24)
    for line in lines:
        per_item = bytes_in_words(round(line.size_bytes / line.items)) if line.items else ""
        cells = [
            f"{line.kind} {line.name}",
            line.source,
            line.target,
            f"{line.items:,}",
            bytes_in_words(line.size_bytes),
            per_item,
        ]
        _row(canvas, columns, cells, y)
        y += ROW
    return y


def _headings(canvas: Canvas, columns: Sequence[_Column], left: float, y: float) -> float:
    _row(canvas, columns, [column.heading for column in columns], y, "heading")
    canvas.add("path", d=f"M{left} {y + 7}H{left + 1156}", stroke="#cbd5e1", stroke_width=1)
    return y + ROW + 4


def _row(
    canvas: Canvas, columns: Sequence[_Column], cells: Sequence[str], y: float, cls: str = "cell"
) -> None:
    for column, cell in zip(columns, cells, strict=True):
        text = shortened(cell, SIZE, column.width)
        if column.is_number:
            canvas.text(column.x, y, text, cls, text_anchor="end")
        else:
            canvas.text(column.x, y, text, cls)
