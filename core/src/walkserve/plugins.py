"""Plugins: the families that are installed, found by entry points, listed unimported, loaded singly."""

from __future__ import annotations

import importlib.util
import re
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder

import importlib_metadata
import msgspec
from importlib_metadata import IDistribution
from msgspec import Struct

from walkserve.errors import SettingError
from walkserve_sdk.errors import PluginError, did_you_mean
from walkserve_sdk.models import API_LEVEL, Model

GROUP = "walkserve.models"
DESCRIPTORS = ("extra_metadata/walkserve.json", "walkserve.json")
"""What a distribution says of its models; `list-models` reads nothing else. Looked for in its ``.dist-info``
folder: where hatchling puts extra metadata, or directly there for builders that can do that."""

_TARGET = re.compile(r"(?P<module>[A-Za-z_][\w.]*)\s*:\s*(?P<attribute>[A-Za-z_][\w.]*)")


class ModelNotes(Struct, frozen=True):
    """What a descriptor says of one model. ``variants``: name -> a line about it."""

    summary: str = ""
    variants: dict[str, str] = {}
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    surfaces: tuple[str, ...] = ()


class _Level(Struct, frozen=True):
    api: int


class _Descriptor(_Level, frozen=True):
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
        SettingError: One of ``plugins`` is not installed, or brings no model.
    """
    claims: dict[str, list[Claim]] = {}
    barred: dict[str, list[Claim]] = {}
    allowed = {_key(plugin): plugin for plugin in plugins}
    seen: set[str] = set()
    for distribution in importlib_metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt")
        except (OSError, UnicodeDecodeError):
            continue  # nothing says that it is one of ours
        if not text or GROUP not in text:
            continue
        name, version = _identity(distribution)
        key = _key(name)
        if key in seen:  # the first on sys.path is the one that is imported
            continue
        seen.add(key)
        for claim in _claims(distribution, name, version):
            place = claims if not allowed or key in allowed else barred
            place.setdefault(claim.name, []).append(claim)
    found = Found(_sorted(claims), _sorted(barred))
    for key, plugin in allowed.items():
        if key not in seen:
            raise SettingError(_missing_plugin(plugin, found))
    return found


def _key(distribution: str) -> str:
    """The name of a distribution as all its spellings have it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _sorted(claims: Mapping[str, list[Claim]]) -> dict[str, tuple[Claim, ...]]:
    return {name: tuple(sorted(claims[name], key=lambda claim: claim.plugin)) for name in sorted(claims)}


def _missing_plugin(plugin: str, found: Found) -> str:
    every = [claim for claims in (found.claims, found.barred) for each in claims.values() for claim in each]
    of = sorted({claim.distribution for claim in every if claim.name == plugin})
    if of:
        return f"{plugin!r} is a model, not a plugin; write the plugin it is of: {' or '.join(of)}"
    installed = sorted({claim.distribution for claim in every})
    near = did_you_mean(plugin, installed)
    near = "" if near.startswith("; known") else near
    listed = f"installed: {', '.join(installed)}" if installed else "none is installed"
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
            or (_claimed_twice(claims) if len(claims) > 1 else _missing_module(claim.target)),
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
            missing = _missing_module(claim.target)
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
    module, _, attribute = claim.target.partition(":")
    try:
        family: object = importlib.import_module(module.strip())
        for part in attribute.strip().split("."):
            family = getattr(family, part)
    except (Exception, SystemExit) as error:  # whatever a stranger's module may raise
        what = traceback.format_exception_only(error)[-1].strip()
        raise PluginError(f"{label} failed to import: {what}; {_cure(claim, error)}") from error
    if not (isinstance(family, type) and issubclass(family, Model)):
        raise PluginError(
            f"{label}: {claim.target} is no subclass of walkserve_sdk.Model, which its entry point must name"
        )
    level = getattr(family, "API_LEVEL", API_LEVEL)
    if level != API_LEVEL:
        raise PluginError(f"{label}: {_other_level(level, claim.distribution)}")
    return family


# --- reading one distribution -------------------------------------------------------------------------


def _identity(distribution: IDistribution) -> tuple[str, str]:
    try:
        return distribution.name, distribution.version
    except Exception:  # a folder that pip left half removed has no METADATA
        return "(a plugin without METADATA)", ""


def _claims(distribution: IDistribution, name: str, version: str) -> Iterator[Claim]:
    try:
        targets = [(point.name, point.value) for point in distribution.entry_points if point.group == GROUP]
    except Exception as error:  # importlib_metadata promises nothing about a malformed file
        yield Claim(name, "", name, version, problem=f"its entry_points.txt cannot be read: {error}")
        return
    notes, problem = _read_descriptor(distribution, name)
    for model, target in sorted(targets):
        fits = _TARGET.fullmatch(target)
        wrong = "" if fits else f"its entry point {target!r} is not 'package.module:Class'"
        yield Claim(model, target, name, version, notes.get(model, ModelNotes()), problem or wrong)
    for model in sorted(set(notes) - {model for model, _ in targets}):
        wrong = f"its descriptor describes {model!r}, for which it has no entry point"
        yield Claim(model, "", name, version, notes[model], wrong)


def _read_descriptor(distribution: IDistribution, name: str) -> tuple[dict[str, ModelNotes], str]:
    """What it says of its models, and what is wrong with it. None is fine: its models are listed by name."""
    try:
        texts = (distribution.read_text(path) for path in DESCRIPTORS)
        text = next((each for each in texts if each is not None), None)
        if text is None:
            return {}, ""
        level = msgspec.json.decode(text, type=_Level).api
        if level != API_LEVEL:
            return {}, _other_level(level, name)
        return msgspec.json.decode(text, type=_Descriptor).models, ""
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        return {}, f"its descriptor walkserve.json cannot be read: {error}; reinstall or mend the plugin"


def _missing_module(target: str) -> str:
    """Why a target cannot be imported, found out without importing it; ``""`` if its file is there."""
    path = target.partition(":")[0].strip().split(".")
    folders: list[str] = []
    for depth in range(1, len(path) + 1):
        name = ".".join(path[:depth])
        try:
            # only a search among the parent's folders does not import the parent
            spec = PathFinder.find_spec(name, folders) if depth > 1 else importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            return f"its entry point is {target!r}, and there is no module {name!r}; reinstall the plugin"
        folders = list(spec.submodule_search_locations or ())
    return ""


# --- saying what is wrong -----------------------------------------------------------------------------


def _claimed_twice(claims: tuple[Claim, ...]) -> str:
    return f"{' and '.join(claim.plugin for claim in claims)} both claim this name; uninstall all but one"


def _other_level(level: object, distribution: str) -> str:
    newer = f"a newer {distribution}" if isinstance(level, int) and level < API_LEVEL else "a newer walkserve"
    return (
        f"it is written for API level {level}, and this walkserve has API level {API_LEVEL}; "
        f"install {newer}, so that the two levels are the same"
    )


def _cure(claim: Claim, error: BaseException) -> str:
    own = claim.target.partition(".")[0].partition(":")[0].strip()
    match error:
        case ModuleNotFoundError(name=str(missing)) if missing.partition(".")[0] != own:
            return f"install what it needs: pip install --upgrade {claim.distribution}"
        case ImportError() | AttributeError():
            return f"reinstall it: pip install --force-reinstall {claim.distribution}"
        case _:
            return "this is the plugin's mistake: report it to its authors"
