"""What is added to the answers of a conversation as their calls give it, with stop strings applied."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from walkserve.delivery import Done
from walkserve.http.calls import Item, Items
from walkserve.http.chat_logprobs import TokenLogprob, Tokens
from walkserve.http.chat_reading import Chat
from walkserve.http.siblings import Siblings
from walkserve.http.stop_strings import StopStrings
from walkserve.media.pictures import FORMATS, encode_picture
from walkserve.messages import RequestEnded
from walkserve_sdk.errors import ComponentError


@dataclass(slots=True)
class Added:
    """What has been added to one answer: text, images as data URLs, what is told of tokens, its end."""

    index: int
    text: str = ""
    images: list[str] = field(default_factory=list)
    tokens: list[TokenLogprob] = field(default_factory=list)
    ended: RequestEnded | None = None

    def join(self, later: Added) -> None:
        """What was added after it."""
        self.text += later.text
        self.images += later.images
        self.tokens += later.tokens
        self.ended = later.ended


class Answers:
    """All answers to one request."""

    def __init__(self, chat: Chat, siblings: Siblings) -> None:
        self.id = f"chatcmpl-{siblings.record.id.removeprefix('req-')}"
        self._chat = chat
        self._siblings = siblings
        self._writing = [_Writing(chat) for _ in chat.requests]

    async def take(self) -> list[Added]:
        """Wait for something to be added; nothing is the end.

        Raises:
            Faulted: An answer has failed, and with it the whole.
        """
        while came := await self._siblings.take():
            added: dict[int, Added] = {}
            for index, event in came:
                writing = self._writing[index]
                if writing.ended is not None:
                    continue  # it was complete before
                one = added.setdefault(index, Added(index))
                if isinstance(event, Items):
                    await self._hear(writing, event, one)
                self._end_if_done(index, event, one)
            told = [one for one in added.values() if one.text or one.images or one.tokens or one.ended]
            if told:
                return told
        return []

    async def _hear(self, writing: _Writing, items: Items, added: Added) -> None:
        if items.output == self._chat.text:
            added.text += writing.read(items.items)
        elif items.output == self._chat.image and not writing.stops.is_found:
            added.images += [await self._url(item) for item in items.items]
        elif items.output == self._chat.token_scores and writing.tokens is not None:
            for item in items.items:
                writing.tokens.came(item)
        if writing.tokens is not None:
            added.tokens += writing.tokens.take()

    def _end_if_done(self, index: int, event: Items | Done, added: Added) -> None:
        writing = self._writing[index]
        if writing.stops.is_found and (writing.has_tokens or isinstance(event, Done)):
            writing.ended = self._siblings.settle(index, "stop", writing.count)
        elif isinstance(event, Done):
            added.text += writing.flush()
            if writing.tokens is not None:
                added.tokens += writing.tokens.take(all=True)
            writing.ended = event.ended
        added.ended = writing.ended

    async def _url(self, item: Item) -> str:
        what = f"{self._chat.model}: its output {self._chat.image!r}"
        if not isinstance(item, np.ndarray):
            raise ComponentError(f"{what} is a {type(item).__name__}, not a picture")
        try:
            data = await asyncio.to_thread(encode_picture, item, FORMATS["png"])
        except ValueError as error:
            raise ComponentError(f"{what}: {error}") from error
        return f"data:image/png;base64,{base64.b64encode(data).decode()}"


class _Writing:
    """One answer while it is written."""

    def __init__(self, chat: Chat) -> None:
        self.ended: RequestEnded | None = None
        self.stops = StopStrings(chat.stops)
        self.tokens = Tokens(chat.top) if chat.top is not None else None
        self._what = f"{chat.model}: its output {chat.text!r}"
        self._pieces = 0

    @property
    def count(self) -> int:
        """Tokens that were written up to a stop string: a family gives a piece of text for each."""
        return self._pieces if self.tokens is None else self.tokens.count

    @property
    def has_tokens(self) -> bool:
        """Whether of all text that was sent the tokens are there."""
        return self.tokens is None or self.tokens.are_enough

    def read(self, pieces: Sequence[Item]) -> str:
        """What of the text may be sent now."""
        ready = ""
        for piece in pieces:
            if not isinstance(piece, str):
                raise ComponentError(f"{self._what} is a {type(piece).__name__}, not text")
            self._pieces += not self.stops.is_found
            ready += self.stops.feed(piece)
        return self._sent(ready)

    def flush(self) -> str:
        """What was held back in case that it became a stop string."""
        return self._sent(self.stops.flush())

    def _sent(self, text: str) -> str:
        if self.tokens is not None:
            self.tokens.sent(text)
        return text
