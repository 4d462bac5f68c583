"""YAML and TOML files whose values know their place, so that what is wrong with one is told with its line."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from walkserve.errors import SettingError
from walkserve_sdk.errors import did_you_mean


@dataclass(frozen=True)
class Spot:
    """A value of the file and its place in it. Mappings and lists hold spots."""

    value: Any
    where: str

    def wrong(self, what: str) -> SettingError:
        return SettingError(f"{self.where}: {what}")

    def mapping(self, what: str) -> dict[str, Spot]:
        if not isinstance(self.value, dict):
            raise self.wrong(f"{what}, not {shown_kind(self.value)}")
        return self.value

    def list(self, what: str) -> list[Spot]:
        if not isinstance(self.value, list):
            raise self.wrong(f"{what}, not {shown_kind(self.value)}")
        return self.value

    def known(self, what: str, keys: Collection[str]) -> dict[str, Spot]:
        """The mapping, which has no other than these keys."""
        found = self.mapping(what)
        for key, value in found.items():
            if key not in keys:
                raise value.wrong(f"unknown key {key!r}{did_you_mean(key, keys)}")
        return found


def shown_kind(value: Any) -> str:
    """A value as a message has it."""
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return repr(value)


def read_spots(path: Path, what: str) -> Spot:
    """Read a file; the value of an empty YAML file is None.

    Args:
        what: The file is, in messages: "placement file".

    Raises:
        SettingError: It cannot be read, or is neither YAML nor TOML. With the line (YAML) or the key (TOML).
    """
    kinds = {".yaml": _read_yaml, ".yml": _read_yaml, ".toml": _read_toml}
    if path.suffix not in kinds:
        raise SettingError(f"{path}: a {what} ends in {', '.join(kinds)}")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: this {what} cannot be read: {error}") from error
    return kinds[path.suffix](str(path), text)


def _read_yaml(path: str, text: str) -> Spot:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise SettingError(f"{path}{line}: this is no YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise SettingError(f"{path}: this is no YAML: {error}") from error
    if root is None:
        return Spot(None, f"{path}, line 1")
    return _from_yaml(path, root, root)


def _from_yaml(path: str, node: yaml.Node, at: yaml.Node) -> Spot:
    """``at`` is what the line is taken from: a value in a mapping is looked for at its key."""
    where = f"{path}, line {at.start_mark.line + 1}"
    match node:
        case yaml.MappingNode():
            found: dict[str, Spot] = {}
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise SettingError(f"{path}, line {key.start_mark.line + 1}: a key is a word")
                if key.value in found:
                    raise SettingError(
                        f"{path}, line {key.start_mark.line + 1}: the key {key.value!r} is there a second "
                        f"time; it is also in {found[key.value].where}"
                    )
                found[key.value] = _from_yaml(path, value, key)
            return Spot(found, where)
        case yaml.SequenceNode():
            return Spot([_from_yaml(path, each, each) for each in node.value], where)
        case _:
            return Spot(yaml.constructor.SafeConstructor().construct_object(node), where)


def _read_toml(path: str, text: str) -> Spot:
    try:
        return _from_toml(path, "", tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path}: this is no TOML: {error}") from error


def _from_toml(path: str, key: str, value: Any) -> Spot:
    where = f"{path}, {key}" if key else path
    match value:
        case dict():
            prefix = f"{key}." if key else ""
            return Spot({name: _from_toml(path, prefix + name, each) for name, each in value.items()}, where)
        case list():
            return Spot([_from_toml(path, f"{key}[{n}]", each) for n, each in enumerate(value)], where)
        case _:
            return Spot(value, where)
