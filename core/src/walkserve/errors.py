"""The core's own error: what a user asked of a server before there was one. The others are the sdk's."""

from __future__ import annotations

from walkserve_sdk.errors import WalkserveError


class SettingError(WalkserveError):
    """A setting cannot be: a model's name, an option of the command line, a line of a placement file."""
