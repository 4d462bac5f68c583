"""Extensions: modules of plugins with hooks, loaded one by one, and the routes that they add."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pluggy
from pluggy import PluginManager, PluginValidationError

from walkserve import hookspecs
from walkserve.installed import (
    EXTENSIONS,
    Installed,
    failed_import,
    installed,
    key_of,
    load_target,
    other_level,
    wrong_level,
)
from walkserve_sdk.errors import PluginError, WalkserveError
from walkserve_sdk.hooks import PROJECT
from walkserve_sdk.models import API_LEVEL
from walkserve_sdk.serving import Route, SocketRoute

AnyRoute = Route[Any] | SocketRoute

CORE_PATHS = (
    *("/health", "/ready", "/metrics", "/schema", "/schema/{path:path}"),
    *("/v1/server", "/v1/models", "/v1/models/{model_id:path}", "/v1/requests/{request_id:str}"),
    *("/v1/audio/speech", "/v1/audio/voices", "/v1/images/generations", "/v1/images/edits"),
    *("/v1/chat/completions", "/v1/generate", "/v1/stream"),
)
"""The server's own. Known without its routes, which take a while to import; a test holds them to those."""


@dataclass(frozen=True)
class Extension:
    """One of a distribution's entry points, and what it adds once it is loaded.

    Args:
        target: The module, or what in a module, that the entry point names.
    """

    name: str
    target: str
    distribution: str
    version: str
    routes: tuple[AnyRoute, ...] = ()

    @property
    def plugin(self) -> str:
        """``walk-plugin-orpheus 0.1.0``."""
        return f"{self.distribution} {self.version}".strip()

    @property
    def label(self) -> str:
        """How errors call it."""
        return f"{self.name} ({self.plugin})"


@dataclass(frozen=True)
class Extensions:
    """All that may be loaded.

    Args:
        broken: Those that are left out, each with why; what was raised is the error's cause.
        clashes: What two of them, or one and the server itself, both claim: nobody can say who is meant.
    """

    loaded: tuple[Extension, ...] = ()
    broken: tuple[tuple[Extension, PluginError], ...] = ()
    clashes: tuple[str, ...] = ()

    @property
    def routes(self) -> tuple[AnyRoute, ...]:
        return tuple(route for each in self.loaded for route in each.routes)

    @property
    def surfaces(self) -> dict[str, tuple[str, ...]]:
        """Surface -> the routes that are added for it."""
        found: dict[str, tuple[str, ...]] = {}
        for route in self.routes:
            found[route.surface] = (*found.get(route.surface, ()), str(route))
        return found

    def check(self) -> None:
        """Raise PluginError where two claim the same."""
        if self.clashes:
            raise PluginError("; ".join(self.clashes))


def load_extensions(plugins: Collection[str] = ()) -> Extensions:
    """Import every extension that is installed and ask it for its routes; a broken one harms no other.

    Args:
        plugins: The only distributions that may be loaded; empty for all.
    """
    allowed = {key_of(plugin) for plugin in plugins}
    manager = PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    loaded: list[Extension] = []
    broken: list[tuple[Extension, PluginError]] = []
    for one in sorted(installed(), key=lambda each: each.key):
        if allowed and one.key not in allowed:
            continue
        for name, target in _targets(one):
            extension = Extension(name, target, one.name, one.version)
            try:
                loaded.append(_load(manager, one, extension))
            except PluginError as error:
                broken.append((extension, error))
    return Extensions(tuple(loaded), tuple(broken), tuple(_clashes(loaded)))


def _targets(one: Installed) -> list[tuple[str, str]]:
    try:
        return one.targets(EXTENSIONS)
    except Exception:  # a malformed file: `plugins` says so
        return []


def _load(manager: PluginManager, one: Installed, extension: Extension) -> Extension:
    """Import it, register its hooks and call them. Raises PluginError."""
    label = extension.label
    if wrong := wrong_level(one):
        raise PluginError(f"{label}: {wrong}")
    try:
        module = load_target(extension.target)
    except (Exception, SystemExit) as error:  # whatever a stranger's module may raise
        raise PluginError(f"{label} {failed_import(extension.target, one.name, error)}") from error
    level = getattr(module, "API_LEVEL", API_LEVEL)
    if level != API_LEVEL:
        raise PluginError(f"{label}: {other_level(level, one.name)}")
    try:
        return _register(manager, module, extension)
    except PluginError as error:
        if manager.is_registered(module):
            manager.unregister(module)
        raise PluginError(f"{label}: {error}") from error.__cause__


def _register(manager: PluginManager, module: object, extension: Extension) -> Extension:
    others = manager.get_plugins()
    try:
        manager.register(module, f"{extension.distribution}:{extension.name}")
        manager.check_pending()
    except (PluginValidationError, ValueError) as error:
        what = str(error).replace("\n", " ")
        raise PluginError(f"{what}; known hooks: {', '.join(_hooks())}") from error
    if not manager.get_hookcallers(module):
        raise PluginError(
            f"{extension.target} has no hook; mark a function with walkserve_sdk.hooks.hookimpl: "
            f"{', '.join(_hooks())}"
        )
    # each asked alone, so that what one raises is known to be its own
    extend: pluggy.HookCaller = manager.subset_hook_caller("walkserve_extend_app", others)
    try:
        answers = extend()
    except (Exception, SystemExit) as error:
        raise PluginError(f"walkserve_extend_app raised {_shown(error)}") from error
    routes = tuple(route for answer in answers for route in _routes(answer))
    return replace(extension, routes=routes)


def _routes(answer: object) -> Iterator[AnyRoute]:
    if not isinstance(answer, Sequence):
        raise PluginError(f"walkserve_extend_app returns a list of routes, not {type(answer).__name__}")
    for route in answer:
        if not isinstance(route, Route | SocketRoute):
            raise PluginError(
                "walkserve_extend_app returns Routes and SocketRoutes of walkserve_sdk.serving, "
                f"not {route!r:.60}"
            )
        yield route


def _hooks() -> list[str]:
    return sorted(name for name in vars(hookspecs) if name.startswith(f"{PROJECT}_"))


def _shown(error: BaseException) -> str:
    return str(error) if isinstance(error, WalkserveError) else f"{type(error).__name__}: {error}"


# --- what two claim -----------------------------------------------------------------------------------


def _clashes(loaded: Sequence[Extension]) -> Iterator[str]:
    names: dict[str, Extension] = {}
    paths: dict[str, tuple[Extension, AnyRoute]] = {}
    for each in loaded:
        if each.name in names:
            both = f"{names[each.name].plugin} and {each.plugin}"
            yield f"{both} both have an extension {each.name!r}; uninstall all but one"
        names[each.name] = each
        for route in each.routes:
            core = next((path for path in CORE_PATHS if _pattern(path).fullmatch(route.path)), None)
            if core is not None:
                yield f"{each.plugin} adds {route}, and {core} is walkserve's own; rename or uninstall it"
            if route.path in paths:
                other, there = paths[route.path]
                yield (
                    f"{other.plugin} adds {there}, and {each.plugin} adds {route}; uninstall one of them, "
                    "or name with --plugin which may be loaded"
                )
            paths[route.path] = each, route


def _pattern(path: str) -> re.Pattern[str]:
    """What a path with parameters covers."""
    parts = re.split(r"(\{[^}]*\})", path)
    return re.compile(
        "".join(
            re.escape(part) if not part.startswith("{") else ".+" if part.endswith(":path}") else "[^/]+"
            for part in parts
        )
    )
