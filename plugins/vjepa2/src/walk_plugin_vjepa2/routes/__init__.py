"""The routes of this plugin's own."""

from __future__ import annotations

from walk_plugin_vjepa2.routes.control import ROUTE as CONTROL
from walkserve_sdk.hooks import hookimpl
from walkserve_sdk.serving import SocketRoute


@hookimpl
def walkserve_extend_app() -> list[SocketRoute]:
    """All of them."""
    return [CONTROL]
