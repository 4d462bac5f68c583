"""What was said in a conversation, as it stands in a request: texts, and images in data URLs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from walkserve_sdk import ChatMessage, Part
from walkserve_sdk.errors import BadRequest
from walkserve_sdk.media.inline import inline_bytes

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""As a client writes it -> as a family is told it."""


class TextContent(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Some text."""

    text: str


class ImageUrl(Struct, frozen=True, forbid_unknown_fields=True):
    """An image."""

    url: Annotated[
        str,
        Meta(description="A data URL; an address only of a server that was started with `--remote-media`."),
    ]
    detail: Annotated[Literal["auto"] | None, Meta(description="A model sees images in its own way.")] = None


class ImageContent(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="image_url"):
    """An image among texts. One that an answer had may be sent as it came."""

    image_url: ImageUrl
    index: int | None = None


class Said(Struct, frozen=True, forbid_unknown_fields=True):
    """One message. An answer can be sent back as it came: what is null in it may stay."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextContent | ImageContent] | None = None
    images: Annotated[list[ImageContent] | None, Meta(description="Of an answer.")] = None
    refusal: None = None
    audio: None = None
    annotations: None = None
    function_call: None = None
    tool_calls: None = None


def read_messages(messages: Sequence[Said], *, media_bytes: int) -> tuple[ChatMessage, ...]:
    """What a client said, with its images decoded from base64 and no further.

    Args:
        media_bytes: What one image may have.

    Raises:
        BadRequest: There is nothing in it, or an image is none; ``param`` is its place.
    """
    read = tuple(
        ChatMessage(ROLES[said.role], tuple(_parts(said, f"messages[{number}]", media_bytes)))
        for number, said in enumerate(messages)
    )
    if not any(part.data.strip() for message in read for part in message.parts):
        raise BadRequest("messages: there is nothing to answer", param="messages")
    return read


def _parts(said: Said, place: str, media_bytes: int) -> Iterator[Part]:
    if isinstance(said.content, str):
        yield Part("text", said.content)
    elif said.content is not None:
        for number, content in enumerate(said.content):
            yield _part(content, f"{place}.content[{number}]", media_bytes)
    for number, image in enumerate(said.images or ()):
        yield _part(image, f"{place}.images[{number}]", media_bytes)


def _part(content: TextContent | ImageContent, place: str, media_bytes: int) -> Part:
    if isinstance(content, TextContent):
        return Part("text", content.text)
    url = content.image_url.url
    return Part("image", inline_bytes(url, place=f"{place}.image_url.url", limit_bytes=media_bytes))
