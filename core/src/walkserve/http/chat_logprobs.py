"""What a family tells of the tokens of its text, as OpenAI's ``logprobs`` have it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from walkserve.http.calls import Item
from walkserve_sdk.errors import ComponentError


class TopLogprob(Struct, frozen=True):
    """One that was likely. ``token`` is its bytes as text, as far as they are any."""

    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(Struct, frozen=True):
    """One that was written, and the likeliest at its place."""

    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[TopLogprob]


class _Told(Struct, frozen=True):
    """A record of a family's ``token_scores``."""

    token: Any
    logprob: float
    top: list[Any]
    top_logprobs: list[float]


class Tokens:
    """Holds what is told of tokens until the text they stand in is sent.

    A text may lag behind its tokens, and a stop string ends it before some of them: a token is told of once
    the text sent reaches beyond the place where its bytes begin.
    """

    def __init__(self, top: int) -> None:
        self.count = 0
        """Told of by the family."""
        self._top = top
        self._waiting: list[tuple[int, TokenLogprob]] = []
        self._end_bytes = 0
        self._sent_bytes = 0

    @property
    def are_enough(self) -> bool:
        """Whether all tokens are there whose text has been sent."""
        return self._end_bytes >= self._sent_bytes

    def came(self, item: Item) -> None:
        """A record of the family's. Raises ComponentError where it is none of those it declares."""
        told = _read(item, self._top)
        self.count += 1
        self._waiting.append((self._end_bytes, told))
        self._end_bytes += len(told.bytes)

    def sent(self, text: str) -> None:
        """So much of the text goes to the client."""
        self._sent_bytes += len(text.encode())

    def take(self, *, all: bool = False) -> list[TokenLogprob]:
        """Those that can be told of now.

        Args:
            all: The text has come to its end, by itself.
        """
        ready = [one for begin, one in self._waiting if all or begin < self._sent_bytes]
        del self._waiting[: len(ready)]
        return ready


def _read(item: Item, top: int) -> TokenLogprob:
    try:
        told = msgspec.convert(item, _Told)
        likely = zip(told.top, told.top_logprobs, strict=True)
        others = [TopLogprob(*_spelled(token), logprob) for token, logprob in likely]
        return TokenLogprob(*_spelled(told.token), told.logprob, others[:top])
    except ValueError as error:
        raise ComponentError(
            f"token_scores: each is what walkserve_sdk.nn.score_record makes: {error}"
        ) from error


def _spelled(token: Any) -> tuple[str, list[int]]:
    data = np.asarray(token, np.uint8).tobytes()
    return data.decode(errors="replace"), list(data)
