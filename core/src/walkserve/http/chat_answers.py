"""How answers of a conversation leave: all in one JSON object, or piece by piece as events."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from walkserve.http.answers import Client
from walkserve.http.chat_logprobs import TokenLogprob
from walkserve.http.chat_reading import Chat
from walkserve.http.chat_writing import Added, Answers
from walkserve.http.problems import told
from walkserve.http.sse import EventStream, event
from walkserve.messages import RequestEnded

log = logging.getLogger(__name__)
LAST = b"data: [DONE]\n\n"


class Usage(Struct, frozen=True):
    """As OpenAI counts it. What was read for all answers together is counted once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Url(Struct, frozen=True):
    """A data URL."""

    url: str


class ShownImage(Struct, frozen=True):
    """An image of an answer. OpenAI has none; this is how others that speak its language send them."""

    image_url: Url
    index: int
    type: Literal["image_url"] = "image_url"


class Logprobs(Struct, frozen=True):
    """What is told of tokens."""

    content: list[TokenLogprob]
    refusal: None = None


class AnswerMessage(Struct, frozen=True):
    """An answer: its text is null where none was asked for, and ``images`` there where some were."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    images: list[ShownImage] | UnsetType = UNSET


class Choice(Struct, frozen=True):
    """One of the answers. ``seed`` is its own; OpenAI does not tell it."""

    index: int
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: str
    seed: int


class ChatAnswer(Struct, frozen=True):
    """All of them."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"


class Delta(Struct, frozen=True):
    """What is added to an answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    images: list[ShownImage] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    """To which answer something is added."""

    index: int
    delta: Delta
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    seed: int | UnsetType = UNSET


class ChatChunk(Struct, frozen=True):
    """One event. The last has ``usage`` and no choices, where that was asked for."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


async def write_chat(chat: Chat, answers: Answers, client: Client) -> None:
    """Send what is written. A failure before the first byte is raised, and becomes an error response."""
    if chat.is_streamed:
        await _write_events(chat, answers, client)
    else:
        await _write_whole(chat, answers, client)


async def _write_whole(chat: Chat, answers: Answers, client: Client) -> None:
    whole = [Added(index) for index in range(len(chat.requests))]
    while came := await answers.take():
        for added in came:
            whole[added.index].join(added)
    answer = ChatAnswer(
        id=answers.id,
        created=int(time.time()),
        model=chat.model,
        choices=[_choice(chat, one) for one in whole],
        usage=_usage([one.ended for one in whole if one.ended is not None]),
    )
    body = msgspec.json.encode(answer)
    headers = _headers(chat) | {"content-type": "application/json", "content-length": str(len(body))}
    await client.start(200, headers)
    await client.send(body, more=False)


def _choice(chat: Chat, whole: Added) -> Choice:
    assert whole.ended is not None
    message = AnswerMessage(
        content=whole.text if chat.text is not None else None,
        images=_images(whole, 0) if chat.image is not None else UNSET,
    )
    return Choice(
        index=whole.index,
        message=message,
        logprobs=Logprobs(whole.tokens) if chat.top is not None else None,
        finish_reason=whole.ended.finish_reason,
        seed=chat.requests[whole.index].seed,
    )


async def _write_events(chat: Chat, answers: Answers, client: Client) -> None:
    events = EventStream(client, _headers(chat))
    created = int(time.time())
    begun: dict[int, int] = {}
    """Answer -> how many images it has."""
    ended: list[RequestEnded] = []
    no_usage = None if chat.has_usage else UNSET

    def chunk(*choices: ChunkChoice, usage: Usage | UnsetType | None = no_usage) -> bytes:
        return event(ChatChunk(answers.id, created, chat.model, list(choices), usage))

    def tell(added: Added) -> list[bytes]:
        index, chunks = added.index, []
        if index not in begun:
            begun[index] = 0
            content = "" if chat.text is not None else None
            chunks.append(chunk(ChunkChoice(index, Delta(role="assistant", content=content))))
        if added.text or added.tokens or added.images:
            delta = Delta(
                content=added.text if added.text or added.tokens else UNSET,
                images=_images(added, begun[index]) if added.images else UNSET,
            )
            begun[index] += len(added.images)
            told_of = Logprobs(added.tokens) if added.tokens else None
            chunks.append(chunk(ChunkChoice(index, delta, told_of)))
        if added.ended is not None:
            ended.append(added.ended)
            seed, reason = chat.requests[index].seed, added.ended.finish_reason
            chunks.append(chunk(ChunkChoice(index, Delta(), finish_reason=reason, seed=seed)))
        return chunks

    try:
        while came := await answers.take():
            chunks = [each for added in came for each in tell(added)]
            is_last = len(ended) == len(chat.requests)
            if is_last:
                chunks += [chunk(usage=_usage(ended)), LAST] if chat.has_usage else [LAST]
            await events.send(*chunks, more=not is_last)
    except Exception as error:  # whatever it is: a client that reads already has to be told
        if not events.is_started:
            raise
        status, problem = told(error, f"{chat.model}: a stream that had begun")
        if status < 500:
            log.warning("%s: a stream is cut: %s", chat.model, problem.message)
        await events.fail(problem)


def _images(added: Added, first: int) -> list[ShownImage]:
    return [ShownImage(Url(url), index) for index, url in enumerate(added.images, start=first)]


def _usage(ended: Sequence[RequestEnded]) -> Usage:
    read = max(one.usage.get("input_tokens", 0) for one in ended)
    wrote = sum(one.usage.get("output_tokens", 0) for one in ended)
    return Usage(read, wrote, read + wrote)


def _headers(chat: Chat) -> dict[str, str]:
    return {"x-seed": str(chat.requests[0].seed)}
