"""Which media type an answer has, of those that a route offers: what its client accepts decides."""

from __future__ import annotations

from collections.abc import Sequence

from walkserve.http.problems import NotAcceptable


def choose(accept: str, offered: Sequence[str]) -> str:
    """The media type of an answer, of those that are offered.

    Args:
        accept: The header; empty where there is none.
        offered: Where a client accepts several equally, the first of these is sent.

    Raises:
        NotAcceptable: None of them is accepted.
    """
    ranges = [_range(each) for each in accept.split(",") if each.strip()] or [("*/*", 1.0)]
    best, best_quality = "", 0.0
    for each in offered:
        quality = _quality(each, ranges)
        if quality > best_quality:
            best, best_quality = each, quality
    if not best:
        raise NotAcceptable(
            f"accept: {accept[:100]!r} is not offered; there is {', '.join(offered)}", param="accept"
        )
    return best


def _range(text: str) -> tuple[str, float]:
    name, *parameters = (each.strip().lower() for each in text.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, float(parameter[2:])
            except ValueError:
                return name, 0.0
    return name, 1.0


def _quality(offered: str, ranges: Sequence[tuple[str, float]]) -> float:
    """By the most exact range that covers it, as RFC 9110 (12.5.1) has it."""
    for covering in (offered, offered.split("/")[0] + "/*", "*/*"):
        found = [quality for name, quality in ranges if name == covering]
        if found:
            return max(found)
    return 0.0
