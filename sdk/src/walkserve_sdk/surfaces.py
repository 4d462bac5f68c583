"""What requests of the standard routes look like, before a family makes them its own.

A family has a surface when it overrides the method of ``Model`` that reads it. Those of routes that its
plugin adds it names in ``own_surfaces``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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


SURFACES = {"audio.speech": "speech_request"}
"""Surface name -> the method of Model that a family overrides to have it."""
