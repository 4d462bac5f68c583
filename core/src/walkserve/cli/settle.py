"""What each setting is in the end: a file, then the environment, then flags; each knows who said it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import rich_click as click

from walkserve.cli.settings import MODELS, PREFIX, Setting
from walkserve.errors import SettingError
from walkserve_sdk.errors import did_you_mean


class Source(IntEnum):
    """Who may set something; a later one wins."""

    DEFAULT = 0
    FILE = 1
    VARIABLE = 2
    FLAG = 3


@dataclass(frozen=True)
class Settled:
    """A setting's value, and where it came from: "default", a place in a file, a variable, a flag."""

    value: Any
    source: Source = Source.DEFAULT
    origin: str = "default"


def settle(
    settings: Sequence[Setting],
    *,
    file: Mapping[str, Settled],
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
) -> dict[str, Settled]:
    """Each setting by its name.

    Args:
        file: What a file says, checked already.
        environ: The process's environment.
        flags: As click gives them; None or empty where a flag is not given.

    Raises:
        SettingError: A value cannot be; with the variable or the flag.
    """
    settled = {}
    for setting in settings:
        given = flags.get(setting.name)
        if given is not None and given != ():
            flag = f"--no-{setting.flag[2:]}" if given is False else setting.flag
            settled[setting.name] = Settled(check(setting, given, flag), Source.FLAG, flag)
            continue
        variable = next((name for name in setting.variables if environ.get(name, "").strip()), None)
        if variable is not None:
            value = read_text(setting, environ[variable], variable)
            settled[setting.name] = Settled(value, Source.VARIABLE, variable)
        else:
            settled[setting.name] = file.get(setting.name, Settled(setting.default))
    return settled


def read_text(setting: Setting, text: str, where: str) -> Any:
    """The value that a variable says. A list is parted at its commas."""
    if not setting.is_many:
        return check(setting, convert(setting, text.strip(), where), where)
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    return check(setting, tuple(convert(setting, word, where) for word in words), where)


def convert(setting: Setting, value: Any, where: str) -> Any:
    """What the setting's type makes of a value. Raises SettingError with the place."""
    try:
        return setting.type.convert(value, None, None)
    except click.BadParameter as error:
        hint = ""
        if isinstance(value, str) and value.startswith(("tcp://", "udp://")):
            hint = (
                "; Kubernetes sets this variable for a service of that name: "
                "give the pod enableServiceLinks: false"
            )
        raise SettingError(f"{where}: {error.message.rstrip('.')}{hint}") from None


def check(setting: Setting, value: Any, where: str) -> Any:
    """The value, if it can be. Raises SettingError with the place."""
    try:
        for one in value if setting.is_many else (value,):
            setting.check(one)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error
    return value


def unknown_variables(
    settings: Sequence[Setting], environ: Mapping[str, str], also: Sequence[str]
) -> list[str]:
    """A line for each variable that looks like a setting and is none.

    No error: Kubernetes, for one, sets variables of such names by itself.
    """
    known = {setting.variable for setting in settings} | {PREFIX + MODELS.upper(), *also}
    return [
        f"the variable {name} is no setting{did_you_mean(name, known)}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known
    ]
