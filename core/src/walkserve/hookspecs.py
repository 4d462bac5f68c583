"""The hooks that a plugin may implement: what each is asked for, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pluggy

from walkserve_sdk.hooks import PROJECT
from walkserve_sdk.serving import Route, SocketRoute

hookspec = pluggy.HookspecMarker(PROJECT)


@hookspec
def walkserve_extend_app() -> Sequence[Route[Any] | SocketRoute]:  # type: ignore[empty-body]
    """Routes that the plugin adds to the server; asked once, before anything is started."""
