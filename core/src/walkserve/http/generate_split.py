"""A text that is spoken sentence by sentence: a request of the family for each, once it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from walkserve.http.generate_ask import Ask
from walkserve.http.sentences import SentenceSplitter
from walkserve_sdk import Request
from walkserve_sdk.errors import BadRequest

SLICE_CHARS = 4096
"""As much of a long text is cut at a time: a megabyte would hold up everybody for a second."""


class Split:
    """The requests of one text. All have the seed of the first, and all other parts.

    Raises:
        BadRequest: There is not exactly one text to split.
    """

    def __init__(self, ask: Ask) -> None:
        texts = [number for number, part in enumerate(ask.parts) if part.kind == "text"]
        if len(texts) != 1:
            raise BadRequest(f"split: it takes exactly one text, {len(texts)} were given", param="split")
        self._ask = ask
        self._place = texts[0]
        self._splitter = SentenceSplitter()
        self._seed: int | None = None

    def feed(self, text: str) -> list[Request]:
        """Take more of the text; the requests of the sentences that are complete.

        Raises:
            BadRequest: The family refuses one.
        """
        return self._requests(self._splitter.feed(text))

    def finish(self) -> list[Request]:
        """The text is complete. Where it has no sentence at all, the family says what it thinks of that."""
        return self._requests(self._splitter.finish() or ([""] if self._seed is None else []))

    def each(self) -> Iterator[Request]:
        """Of a text that is among the parts already; each is cut when it is asked for."""
        text = str(self._ask.parts[self._place].data)
        for start in range(0, len(text), SLICE_CHARS):
            yield from self.feed(text[start : start + SLICE_CHARS])
        yield from self.finish()

    def _requests(self, sentences: Iterable[str]) -> list[Request]:
        return [self._request(sentence.strip()) for sentence in sentences]

    def _request(self, sentence: str) -> Request:
        parts = list(self._ask.parts)
        parts[self._place] = replace(parts[self._place], data=sentence)
        if self._seed is None:
            request = self._ask.request(tuple(parts))
            self._seed = request.seed
            return request
        return self._ask.request(tuple(parts), seed=self._seed)
