"""What requests of the standard routes look like, before a family makes them its own.

A family has a surface when it overrides the method of ``Model`` that reads it. Those of routes that its
plugin adds it names in ``own_surfaces``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from walkserve_sdk.requests import Part


@dataclass(frozen=True)
class SpeechAsk:
    """``POST /v1/audio/speech``, as OpenAI defines it.

    Args:
        text: What to say (``input`` on the wire).
        voice: As the client spelled it; None where it was left out.
        instructions: How to say it; None where absent, and in families without ``takes_instructions``.
        speed: 0.25 to 4; 1.0 is the voice's own, and the only one in families without ``takes_speed``.
        options: Further fields, by the names of the family's options.
    """

    text: str
    voice: str | None = None
    instructions: str | None = None
    speed: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageAsk:
    """``POST /v1/images/generations`` and ``POST /v1/images/edits``, as OpenAI defines them.

    Args:
        prompt: What is to be seen.
        images: Those that are to be edited, as the bytes that came, in order; none of them to paint anew.
        size: ``(width, height)``; None for the model's own, or that of what is edited.
        partial_images: How often the client wants to see what it looks like before it is done, at most; 0 in
            families without ``previews``.
        options: Further fields, by the names of the family's options. Of several pictures each has its own
            ``seed``.
    """

    prompt: str
    images: tuple[bytes, ...] = ()
    size: tuple[int, int] | None = None
    partial_images: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What goes in: the images, and what is said of them."""
        return (*(Part("image", image) for image in self.images), Part("text", self.prompt))


@dataclass(frozen=True)
class ChatMessage:
    """What somebody said in a conversation: ``role`` is ``"system"``, ``"user"`` or ``"assistant"``."""

    role: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ChatAsk:
    """``POST /v1/chat/completions``, as OpenAI defines it. A stop string is none of the family's business:
    its text is cut by who sends it.

    Args:
        messages: In the order they were sent.
        modalities: What the answer is to have: ``"text"``, ``"image"`` or both; kinds of its outputs.
        top_logprobs: For each token, how many likely ones are to be told with it, 0 to 20; None where nothing
            is to be told of tokens, and in families without ``token_scores``.
        options: Further fields, by the names of the family's options; how long the answer may be is its
            ``length_option``. Of several answers each has its own ``seed``.
    """

    messages: tuple[ChatMessage, ...]
    modalities: tuple[str, ...] = ("text",)
    top_logprobs: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What goes in, for families that know no roles: all that was said in order, but the system first."""
        ordered = sorted(self.messages, key=lambda message: message.role != "system")
        return tuple(part for message in ordered for part in message.parts)


SURFACES = {
    "audio.speech": "speech_request",
    "images.generations": "image_request",
    "images.edits": "edit_request",
    "chat.completions": "chat_request",
}
"""Surface name -> the method of Model that a family overrides to have it."""
