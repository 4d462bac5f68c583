"""Strings that end a text: found also where they are cut across pieces, and never sent."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Reads a text piece by piece, and lets through what cannot be the beginning of a stop string.

    Which string ends the text does not depend on how it was cut: it is the one whose last character comes
    first, and of several that end there the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.is_found = False
        """One has come; nothing is let through any more."""
        self._stops = stops
        self._held = ""

    def feed(self, piece: str) -> str:
        """What of the text may be sent now that this has come."""
        if self.is_found:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.is_found, self._held = True, ""
            return text[: min(found)[1]]
        cut = len(text) - max(_begun(text, stop) for stop in self._stops)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """What was held back, when no more comes."""
        held, self._held = self._held, ""
        return held


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop string."""
    most = min(len(text), len(stop) - 1)
    return next((count for count in range(most, 0, -1) if text.endswith(stop[:count])), 0)
