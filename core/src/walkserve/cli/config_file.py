"""A server's settings in a YAML or TOML file; what is wrong is told with its line or key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rich_click as click

from walkserve.cli.settings import FILE, FOLDER, MODELS, CountOrAuto, Setting
from walkserve.cli.settle import Settled, Source, check, convert
from walkserve.spots import Spot, read_spots, shown_kind

NAME, CHECKPOINT = "name", "checkpoint"


@dataclass(frozen=True)
class NamedModel:
    """A model to serve, as whoever named it did.

    Args:
        name: ``NAME[:VARIANT][=CHECKPOINT]``.
        where: Its place in the file; of others a word for where it stands.
        own: What the file sets for it alone.
    """

    name: str
    where: str
    own: Mapping[str, Settled] = field(default_factory=dict)


@dataclass(frozen=True)
class ConfigFile:
    """What a file says: settings by name, and models to serve."""

    settings: Mapping[str, Settled] = field(default_factory=dict)
    models: tuple[NamedModel, ...] = ()


def read_config(path: Path, settings: Sequence[Setting]) -> ConfigFile:
    """Read a file.

    Raises:
        SettingError: It cannot be read, or says what no setting can be. With the line (YAML) or the
            key (TOML).
    """
    top = read_spots(path, "config file")
    if top.value is None:
        return ConfigFile()
    reader = _Reader(path.parent, settings)
    return reader.read(top)


class _Reader:
    """Reads one file; paths in it are from the folder it lies in."""

    def __init__(self, folder: Path, settings: Sequence[Setting]) -> None:
        self._folder = folder
        self._settings = {setting.name: setting for setting in settings}
        self._own = {setting.name: setting for setting in settings if setting.is_own}

    def read(self, top: Spot) -> ConfigFile:
        keys = top.known("a config file maps names of settings to values", (*self._settings, MODELS))
        models = keys.get(MODELS)
        return ConfigFile(
            {
                name: self._setting(self._settings[name], spot)
                for name, spot in keys.items()
                if name != MODELS
            },
            () if models is None else self._models(models),
        )

    def _setting(self, setting: Setting, spot: Spot) -> Settled:
        value: Any
        if setting.is_many:
            spots = spot.list(f"{setting.name!r} is a list")
            value = tuple(self._value(setting, one) for one in spots)
        else:
            value = self._value(setting, spot)
        return Settled(check(setting, value, spot.where), Source.FILE, spot.where)

    def _value(self, setting: Setting, spot: Spot) -> Any:
        what, kinds = _python_kinds(setting)
        if not isinstance(spot.value, kinds) or (isinstance(spot.value, bool) and bool not in kinds):
            one = "an entry of " if setting.is_many else ""
            raise spot.wrong(f"{one}{setting.name!r} is {what}, not {shown_kind(spot.value)}")
        value: Any = spot.value
        if setting.type in (FILE, FOLDER):
            value = str(self._folder / os.path.expanduser(value))
        return convert(setting, value, spot.where)

    def _models(self, spot: Spot) -> tuple[NamedModel, ...]:
        form = f"{MODELS!r} is a list of names, or of mappings with a {NAME!r}"
        return tuple(self._model(entry, form) for entry in spot.list(form))

    def _model(self, entry: Spot, form: str) -> NamedModel:
        if isinstance(entry.value, str):
            return NamedModel(self._with_checkpoint(entry), entry.where)
        keys = dict(entry.known(form, (NAME, CHECKPOINT, *self._own)))
        if NAME not in keys:
            raise entry.wrong(f"this model lacks the key {NAME!r}")
        name = self._with_checkpoint(_text(NAME, keys.pop(NAME)))
        if CHECKPOINT in keys:
            checkpoint = _text(CHECKPOINT, keys.pop(CHECKPOINT))
            if "=" in name:
                raise checkpoint.wrong(f"{name!r} has a checkpoint already; give it once")
            name = f"{name}={self._from_folder(checkpoint.value)}"
        own = {key: self._setting(self._own[key], spot) for key, spot in keys.items()}
        return NamedModel(name, entry.where, own)

    def _with_checkpoint(self, spot: Spot) -> str:
        name, has_checkpoint, checkpoint = spot.value.partition("=")
        return f"{name}={self._from_folder(checkpoint)}" if has_checkpoint else name

    def _from_folder(self, checkpoint: str) -> str:
        """A path that says it is one is from the file's folder; ``owner/name`` may be of the hub."""
        if not checkpoint.strip().startswith("."):
            return checkpoint
        return str((self._folder / checkpoint.strip()).absolute())


def _text(key: str, spot: Spot) -> Spot:
    if not isinstance(spot.value, str):
        raise spot.wrong(f"{key!r} is a text, not {shown_kind(spot.value)}")
    return spot


def _python_kinds(setting: Setting) -> tuple[str, tuple[type, ...]]:
    """What a file may hold for a setting, in words and as types."""
    if setting.is_switch:
        return "true or false", (bool,)
    match setting.type:
        case click.FloatRange():
            return "a number", (int, float)
        case click.IntRange():
            return "a whole number", (int,)
        case CountOrAuto():
            return "a whole number or auto", (int, str)
        case _:
            return "a text", (str,)
