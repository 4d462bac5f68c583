"""The marker of hooks: functions of a plugin that the server calls, each by its name.

A distribution has them in a module that an entry point of the group ``walkserve`` names; which there are, and
what each is asked for, stands in the server's ``walkserve.hookspecs``.
"""

from __future__ import annotations

import pluggy

PROJECT = "walkserve"

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function as a hook: ``@hookimpl`` above ``def walkserve_extend_app(): ...``."""
