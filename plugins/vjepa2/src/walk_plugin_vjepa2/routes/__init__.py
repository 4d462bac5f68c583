"""The routes of V-JEPA 2's families; each file has one, and says what its fields are."""

from __future__ import annotations

from typing import Any

from walkserve_sdk.hooks import hookimpl
from walkserve_sdk.serving import Route, SocketRoute


@hookimpl
def walkserve_extend_app() -> list[Route[Any] | SocketRoute]:
    from walk_plugin_vjepa2.routes import control, encodings, plans, rollouts

    return [encodings.ROUTE, rollouts.ROUTE, plans.ROUTE, control.ROUTE]
