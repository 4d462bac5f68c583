"""Plugins: the families that are installed, found by entry points, listed unimported, loaded singly."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from walkserve.errors import SettingError
from walkserve.installed import (
    MODELS,
    Installed,
    Level,
    failed_import,
    installed,
    key_of,
    load_target,
    missing_module,
    other_level,
    unreadable_descriptor,
)
from walkserve_sdk.errors import PluginError, did_you_mean
from walkserve_sdk.models import API_LEVEL, Model

_TARGET = re.compile(r"(?P<module>[A-Za-z_][\w.]*)\s*:\s*(?P<attribute>[A-Za-z_][\w.]*)")


class ModelNotes(Struct, frozen=True):
    """What a descriptor says of one model. ``variants``: name -> a line about it."""

    summary: str = ""
    variants: dict[str, str] = {}
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    surfaces: tuple[str, ...] = ()


class _Descriptor(Struct, frozen=True):
    api: int
    models: dict[str, ModelNotes] = {}


class ModelListing(ModelNotes, frozen=True, kw_only=True):
    """One line of ``list-models``. ``problem`` says why the model cannot be used, or is empty."""

    name: str
    distribution: str
    version: str
    problem: str = ""


@dataclass(frozen=True)
class Claim:
    """One distribution's claim to a model's name.

    Args:
        name: The model's.
        target: ``"package.module:Class"``.
        distribution: Who claims it.
        version: The distribution's.
        notes: From the distribution's descriptor.
        problem: What is wrong with the distribution's metadata, or ``""``.
    """

    name: str
    target: str
    distribution: str
    version: str
    notes: ModelNotes = field(default_factory=ModelNotes)
    problem: str = ""

    @property
    def plugin(self) -> str:
        """``walk-plugin-orpheus 0.1.0``."""
        return f"{self.distribution} {self.version}".strip()


@dataclass(frozen=True)
class Found:
    """Every claim that is installed and allowed: model's name -> who claims it, both sorted.

    Args:
        barred: The same of plugins that are installed and not among those that may be loaded.
    """

    claims: Mapping[str, tuple[Claim, ...]]
    barred: Mapping[str, tuple[Claim, ...]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.claims)

    def one(self, name: str) -> Claim:
        """The only claim to a name.

        Raises:
            SettingError: Nobody claims it; the message has near matches and what is installed.
            PluginError: Two distributions claim it, or the metadata of the one is wrong.
        """
        claims = self.claims.get(name, ())
        if not claims and name in self.barred:
            plugins = " and ".join(claim.distribution for claim in self.barred[name])
            raise SettingError(
                f"the model {name!r} is of {plugins}, which is not among the plugins that may be loaded; "
                f"add it to them, or serve another: {', '.join(self.names) or 'there is none'}"
            )
        if not claims:
            raise SettingError(f"there is no model {name!r}{self._instead_of(name)}")
        if len(claims) > 1:
            raise PluginError(f"{name}: {_claimed_twice(claims)}")
        if claims[0].problem:
            raise PluginError(f"{name} ({claims[0].plugin}): {claims[0].problem}")
        return claims[0]

    def _instead_of(self, name: str) -> str:
        if not self.claims:
            return "; no model is installed: install its plugin with pip"
        near = did_you_mean(name, self.names)
        near = "" if near.startswith("; known") else near
        return f"{near}{';' if not near else ''} installed: {', '.join(self.names)}"


def find_models(plugins: Collection[str] = ()) -> Found:
    """Read the entry points of everything installed. A broken distribution harms no other.

    Args:
        plugins: The only distributions that may be loaded; empty for all.

    Raises:
        SettingError: One of ``plugins`` is not installed, or brings nothing to a server.
    """
    claims: dict[str, list[Claim]] = {}
    barred: dict[str, list[Claim]] = {}
    allowed = {key_of(plugin): plugin for plugin in plugins}
    seen: dict[str, Installed] = {}
    for one in installed():
        seen[one.key] = one
        for claim in _claims(one):
            place = claims if not allowed or one.key in allowed else barred
            place.setdefault(claim.name, []).append(claim)
    found = Found(_sorted(claims), _sorted(barred))
    for key, plugin in allowed.items():
        if key not in seen:
            raise SettingError(_missing_plugin(plugin, found, seen.values()))
    return found


def _sorted(claims: Mapping[str, list[Claim]]) -> dict[str, tuple[Claim, ...]]:
    return {name: tuple(sorted(claims[name], key=lambda claim: claim.plugin)) for name in sorted(claims)}


def _missing_plugin(plugin: str, found: Found, there: Collection[Installed]) -> str:
    every = [claim for claims in (found.claims, found.barred) for each in claims.values() for claim in each]
    of = sorted({claim.distribution for claim in every if claim.name == plugin})
    if of:
        return f"{plugin!r} is a model, not a plugin; write the plugin it is of: {' or '.join(of)}"
    names = sorted({one.name for one in there})
    near = did_you_mean(plugin, names)
    near = "" if near.startswith("; known") else near
    listed = f"installed: {', '.join(names)}" if names else "none is installed"
    return f"there is no plugin {plugin!r}{near}{'' if near else ';'} {listed}"


def list_models() -> list[ModelListing]:
    """Every model that is installed, from metadata alone: no plugin is imported. Broken ones say why."""
    return [
        ModelListing(
            **msgspec.structs.asdict(claim.notes),
            name=claim.name,
            distribution=claim.distribution,
            version=claim.version,
            problem=claim.problem
            or (_claimed_twice(claims) if len(claims) > 1 else missing_module(claim.target)),
        )
        for claims in find_models().claims.values()
        for claim in claims
    ]


def problems(plugins: Collection[str] = (), *, imports: bool) -> dict[str, str]:
    """What is wrong with the plugins that may be loaded: a line for each model that cannot be.

    Args:
        plugins: As for ``find_models``.
        imports: Import every family too; metadata alone says less, and runs nobody's code.
    """
    found = find_models(plugins)
    wrong = {}
    for name in found.names:
        try:
            claim = found.one(name)
            missing = missing_module(claim.target)
            if missing:
                raise PluginError(f"{name} ({claim.plugin}): {missing}")
            if imports:
                load_model(name, plugins)
        except PluginError as error:
            wrong[name] = str(error)
    return wrong


def load_model(name: str, plugins: Collection[str] = ()) -> type[Model]:
    """Import one family.

    Args:
        plugins: As for ``find_models``.

    Raises:
        SettingError: No such model is installed.
        PluginError: It is installed and cannot be used; the message names its distribution, the fact and
            the cure. What it raised is the error's cause.
    """
    claim = find_models(plugins).one(name)
    label = f"{name} ({claim.plugin})"
    try:
        family = load_target(claim.target)
    except (Exception, SystemExit) as error:  # whatever a stranger's module may raise
        wrong = failed_import(claim.target, claim.distribution, error)
        raise PluginError(f"{label} {wrong}") from error
    if not (isinstance(family, type) and issubclass(family, Model)):
        raise PluginError(
            f"{label}: {claim.target} is no subclass of walkserve_sdk.Model, which its entry point must name"
        )
    level = getattr(family, "API_LEVEL", API_LEVEL)
    if level != API_LEVEL:
        raise PluginError(f"{label}: {other_level(level, claim.distribution)}")
    return family


# --- reading one distribution -------------------------------------------------------------------------


def _claims(one: Installed) -> Iterator[Claim]:
    name, version = one.name, one.version
    try:
        targets = one.targets(MODELS)
    except Exception as error:  # importlib_metadata promises nothing about a malformed file
        yield Claim(name, "", name, version, problem=f"its entry_points.txt cannot be read: {error}")
        return
    notes, problem = _read_descriptor(one)
    for model, target in targets:
        fits = _TARGET.fullmatch(target)
        wrong = "" if fits else f"its entry point {target!r} is not 'package.module:Class'"
        yield Claim(model, target, name, version, notes.get(model, ModelNotes()), problem or wrong)
    for model in sorted(set(notes) - {model for model, _ in targets}):
        wrong = f"its descriptor describes {model!r}, for which it has no entry point"
        yield Claim(model, "", name, version, notes[model], wrong)


def _read_descriptor(one: Installed) -> tuple[dict[str, ModelNotes], str]:
    """What it says of its models, and what is wrong with it. None is fine: its models are listed by name."""
    try:
        text = one.descriptor()
        if text is None:
            return {}, ""
        level = msgspec.json.decode(text, type=Level).api
        if level != API_LEVEL:
            return {}, other_level(level, one.name)
        return msgspec.json.decode(text, type=_Descriptor).models, ""
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        return {}, unreadable_descriptor(error)


# --- saying what is wrong -----------------------------------------------------------------------------


def _claimed_twice(claims: tuple[Claim, ...]) -> str:
    return f"{' and '.join(claim.plugin for claim in claims)} both claim this name; uninstall all but one"
