"""Where a text may be cut, so that its pieces can be spoken one after another."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_CHARS = 200
"""The longest piece: about 15 seconds of speech. A longer sentence is cut after a comma or its like, or at a
space; a longer word in its middle."""

_ABBREVIATIONS = """
mr mrs ms dr prof rev hon st sr jr gen col capt lt sgt maj gov sen rep pres
vs etc e.g i.e cf al approx dept est inc ltd co corp no nos vol fig figs pp p ch sec
jan feb mar apr jun jul aug sep sept oct nov dec mt ave blvd rd
z.b d.h u.a bzw ca usw nr bd hr fr mme mlle sra srta dra
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
BEFORE_NUMBERS = frozenset(
    {"no", "nos", "nr", "vol", "fig", "figs", "p", "pp", "ch", "sec", "bd", "mar", "ca"}
)
"""Those that are words as well, or end a sentence as often: they go on only where a number follows."""

_STOP = re.compile(
    r"(?P<gap>\n[^\S\n]*\n)"  # an empty line, whatever was before it; a single line break is a space
    r"|(?P<marks>[.!?…؟۔।॥]+|[。！？｡]+)"  # what ends a sentence
    r"[\"'”’“‘»«›‹)\]}」』）】》〉]*"  # and may be followed by what closes a quotation
)
_WIDE = frozenset("。！？｡」』）】》〉")
"""After these no space is needed."""
_CLAUSE = re.compile(r"[,;:–—](?=\s)|[、，；：]")
_SPACE = re.compile(r"\s+")
_INK = re.compile(r"\S")
_WORD = re.compile(r"\S*\Z")
_SLICE_CHARS = 4096


class SentenceSplitter:
    """Cuts a text that comes in any number of parts; how it came makes no difference to the pieces.

    Joined, the pieces are the text: what is between two of them belongs to the first. None of them is blank,
    and none has more than ``most_chars`` characters, spaces around it not counted. A sentence is over when
    the first character of the next is known.
    """

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self._most = most_chars
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """Take more of it, and return the pieces that are complete."""
        return self._cut(self._rest + text)

    def finish(self) -> list[str]:
        """The last piece, if there is one; the next text begins anew."""
        rest, self._rest = self._rest, ""
        return [rest] if rest.strip() else []

    def _cut(self, text: str) -> list[str]:
        pieces: list[str] = []
        start = 0
        while (end := self._end_of_piece(text, start)) is not None:
            pieces.append(text[start:end])
            start = end
        self._rest = text[start:]
        return pieces

    def _end_of_piece(self, text: str, start: int) -> int | None:
        """Where the piece that starts here is over, at a character that is no space; None if unknown yet."""
        first = _INK.search(text, start)
        if first is None:
            return None
        stop = first.start() + self._most
        beyond = _INK.search(text, stop)
        limit = len(text) if beyond is None else beyond.start()
        end = _sentence_end(text, first.start(), limit)
        if end is None and beyond is not None:
            return self._forced(text, first.start(), stop, limit)
        return end

    def _forced(self, text: str, first: int, stop: int, limit: int) -> int:
        """The best place to cut a sentence that is longer than up to ``stop``."""
        if limit > stop or text[stop - 1].isspace():
            return limit  # it happens to be between two words
        late = first + max(1, self._most // 2)
        clauses = [_INK.search(text, found.end()) for found in _CLAUSE.finditer(text, late, stop)]
        if clauses and (last := clauses[-1]) is not None:
            return last.start()
        spaces = [found.end() for found in _SPACE.finditer(text, first, stop)]
        return spaces[-1] if spaces else stop


def each_sentence(text: str) -> Iterator[str]:
    """The pieces of a text that is complete, each cut when it is asked for: a long text holds nobody up."""
    splitter = SentenceSplitter()
    for start in range(0, len(text), _SLICE_CHARS):
        yield from splitter.feed(text[start : start + _SLICE_CHARS])
    yield from splitter.finish()


def _sentence_end(text: str, first: int, limit: int) -> int | None:
    """Where the next sentence begins, if that is no later than ``limit``, and known."""
    for found in _STOP.finditer(text, first, limit):
        after = _INK.search(text, found.end())
        if after is None or after.start() > limit:
            return None
        if found["gap"] or _ends_here(text, first, found, after.start()):
            return after.start()
    return None


def _ends_here(text: str, first: int, found: re.Match[str], after: int) -> bool:
    """Whether these marks end a sentence, or stand within one."""
    if not _WIDE.isdisjoint(found.group()):
        return True
    if after == found.end() or text[after].islower():
        return False  # 3.14, example.org; "Stop!" he said, wait ... and then
    return found["marks"] != "." or not _is_abbreviation(text, first, found.start(), text[after])


def _is_abbreviation(text: str, first: int, stop: int, after: str) -> bool:
    """Whether the full stop at ``stop`` belongs to the word before it."""
    found = _WORD.search(text, max(first, stop - 20), stop)
    word = found.group().lstrip("\"'“‘«‹([{„") if found is not None else ""
    if word.isdigit():  # "1. First", but "in 1999. Then"
        return stop - len(word) == first or text[first : stop - len(word)].endswith("\n")
    if word.lower() in ABBREVIATIONS:
        return word.lower() not in BEFORE_NUMBERS or after.isdigit()
    return len(word.rpartition(".")[2]) == 1 and word.isupper() and word != "I"  # J. S. Bach, the U.S. Navy
