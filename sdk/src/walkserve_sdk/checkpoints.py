"""Where a model's files come from: hub repositories, or one folder with a sub-folder per further part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from walkserve_sdk.errors import LoadError


@dataclass(frozen=True)
class Hub:
    """A published repository.

    Args:
        repo: ``"owner/name"``; empty where no hub has it, and then a folder has to be given.
        files: Patterns of the files that are needed; the rest is not downloaded.
        revision: Branch, tag or commit; None takes the hub's default.
        in_folder: Patterns of what a folder must hold that is given instead; None for all of ``files``. A
            family that reads other layouts too asks for less, and says itself what it misses.
        elsewhere: Where to get it if no hub has it, as the end of a sentence: ``"download …"``.
    """

    repo: str
    files: tuple[str, ...] = ("*.json", "*.safetensors")
    revision: str | None = None
    in_folder: tuple[str, ...] | None = None
    elsewhere: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine.

    Args:
        folders: By the names of the family's ``checkpoints``; the main one is ``"main"``.
        label: How a user named it: a hub id, a folder, a variant.
    """

    folders: Mapping[str, Path] = field(default_factory=dict)
    label: str = ""

    def folder(self, part: str = "main") -> Path:
        """The folder of one part. Raises LoadError, naming what is there, if this checkpoint lacks it."""
        try:
            return self.folders[part]
        except KeyError:
            raise LoadError(
                f"{self.label or 'checkpoint'}: no part {part!r}; it has {sorted(self.folders)}"
            ) from None

    def file(self, name: str, part: str = "main") -> Path:
        """A file that must be there. Raises LoadError with the folder's other files if it is not."""
        path = self.folder(part) / name
        if not path.is_file():
            there = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
            raise LoadError(f"{path} is missing; the folder holds {', '.join(there) or 'nothing'}")
        return path
