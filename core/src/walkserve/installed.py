"""What is installed and says that it belongs to a server, read from metadata: nothing is imported."""

from __future__ import annotations

import importlib.util
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder

import importlib_metadata
import msgspec
from importlib_metadata import IDistribution
from msgspec import Struct

from walkserve_sdk.models import API_LEVEL

MODELS = "walkserve.models"
"""The group of entry points that are families."""
EXTENSIONS = "walkserve"
"""The group of entry points that are modules with hooks."""
DESCRIPTORS = ("extra_metadata/walkserve.json", "walkserve.json")
"""What a distribution says of its models; `list-models` reads nothing else. Looked for in its ``.dist-info``
folder: where hatchling puts extra metadata, or directly there for builders that can do that."""

_OURS = re.compile(rf"^\[({re.escape(MODELS)}|{re.escape(EXTENSIONS)})\]", re.MULTILINE)


class Level(Struct, frozen=True):
    """For which API level a distribution is written, as its descriptor says it."""

    api: int


@dataclass(frozen=True)
class Installed:
    """One distribution that has entry points of ours."""

    distribution: IDistribution
    name: str
    version: str

    @property
    def key(self) -> str:
        return key_of(self.name)

    def targets(self, group: str) -> list[tuple[str, str]]:
        """Name and target of each entry point of a group, sorted.

        Raises:
            Exception: Whatever importlib_metadata finds in a malformed file; it promises nothing.
        """
        points = self.distribution.entry_points
        return sorted((point.name, point.value) for point in points if point.group == group)

    def descriptor(self) -> str | None:
        """The text of its ``walkserve.json``, if it has one. Raises OSError or UnicodeDecodeError."""
        texts = (self.distribution.read_text(path) for path in DESCRIPTORS)
        return next((each for each in texts if each is not None), None)


def installed() -> Iterator[Installed]:
    """Every distribution that has entry points of ours, once: the first on sys.path is what is imported."""
    seen: set[str] = set()
    for distribution in importlib_metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt")
        except (OSError, UnicodeDecodeError):
            continue  # nothing says that it is one of ours
        if not text or not _OURS.search(text):
            continue
        one = Installed(distribution, *_identity(distribution))
        if one.key not in seen:
            seen.add(one.key)
            yield one


def key_of(distribution: str) -> str:
    """The name of a distribution as all its spellings have it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _identity(distribution: IDistribution) -> tuple[str, str]:
    try:
        return distribution.name, distribution.version
    except Exception:  # a folder that pip left half removed has no METADATA
        return "(a plugin without METADATA)", ""


# --- saying what is wrong -----------------------------------------------------------------------------


def missing_module(target: str) -> str:
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


def unreadable_descriptor(error: Exception) -> str:
    """What is said of a descriptor that cannot be read."""
    return f"its descriptor walkserve.json cannot be read: {error}; reinstall or mend the plugin"


def other_level(level: object, distribution: str) -> str:
    """What is said of a plugin that is written for another API level."""
    newer = f"a newer {distribution}" if isinstance(level, int) and level < API_LEVEL else "a newer walkserve"
    return (
        f"it is written for API level {level}, and this walkserve has API level {API_LEVEL}; "
        f"install {newer}, so that the two levels are the same"
    )


def wrong_level(one: Installed) -> str:
    """What is wrong with the level that a descriptor says; ``""`` where it is this one, or there is none."""
    try:
        text = one.descriptor()
        level = API_LEVEL if text is None else msgspec.json.decode(text, type=Level).api
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        return unreadable_descriptor(error)
    return "" if level == API_LEVEL else other_level(level, one.name)


def failed_import(target: str, distribution: str, error: BaseException) -> str:
    """What is said of a plugin that raised when it was imported, with the cure."""
    what = traceback.format_exception_only(error)[-1].strip()
    return f"failed to import: {what}; {_cure(target, distribution, error)}"


def _cure(target: str, distribution: str, error: BaseException) -> str:
    own = target.partition(".")[0].partition(":")[0].strip()
    match error:
        case ModuleNotFoundError(name=str(missing)) if missing.partition(".")[0] != own:
            return f"install what it needs: pip install --upgrade {distribution}"
        case ImportError() | AttributeError():
            return f"reinstall it: pip install --force-reinstall {distribution}"
        case _:
            return "this is the plugin's mistake: report it to its authors"


def load_target(target: str) -> object:
    """Import what an entry point names: a module, or something in one. Raises whatever that raises."""
    module, _, attribute = target.partition(":")
    found: object = importlib.import_module(module.strip())
    for part in attribute.strip().split(".") if attribute else ():
        found = getattr(found, part)
    return found
