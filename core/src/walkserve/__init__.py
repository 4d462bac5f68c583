"""walkserve: a server for composite multimodal models."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walkserve.api import Engine as Engine

__version__ = "0.1.0"
__all__ = ["Engine", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Engine":  # imports torch, so only when somebody wants it
        from walkserve.api import Engine

        return Engine
    raise AttributeError(f"module 'walkserve' has no attribute {name!r}")
