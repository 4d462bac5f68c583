"""How a user names a model to serve: ``NAME[:VARIANT][=CHECKPOINT]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from walkserve.errors import SettingError

FORM = "NAME[:VARIANT][=CHECKPOINT]"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # also part of a worker's name, and so of a socket's


@dataclass(frozen=True)
class ModelName:
    """A model as a user named it.

    Args:
        family: Its entry point's name.
        variant: One of the family's variants; with a checkpoint, any name to serve it under; or ``""``.
        checkpoint: A folder or a hub id, ``owner/name[@revision]``, or ``""`` for the family's own.
    """

    family: str
    variant: str = ""
    checkpoint: str = ""

    @property
    def served(self) -> str:
        """As clients know it: ``orpheus`` or ``orpheus:toy``."""
        return f"{self.family}:{self.variant}" if self.variant else self.family


def parse_model_name(text: str) -> ModelName:
    """Take a name apart. Raises SettingError, which says what is wrong with it."""
    name, has_checkpoint, checkpoint = text.partition("=")
    family, has_variant, variant = name.partition(":")
    if not family:
        raise SettingError(f"{text!r} names no model; write {FORM}")
    if "/" in family and not has_checkpoint:
        raise SettingError(
            f"{text!r} is no model's name; a checkpoint comes after the family's name: FAMILY={text}"
        )
    if not _WORD.fullmatch(family):
        raise SettingError(
            f"{text!r}: {family!r} is no model's name; a name has letters, digits, '.', '_' and '-'"
        )
    if has_variant and not _WORD.fullmatch(variant):
        is_what = f"{variant!r} is no variant's name" if variant else "no variant follows the ':'"
        raise SettingError(f"{text!r}: {is_what}; a name has letters, digits, '.', '_' and '-'")
    if has_checkpoint and not checkpoint.strip():
        raise SettingError(f"{text!r}: no checkpoint follows the '='; give a folder or a hub id")
    return ModelName(family, variant, checkpoint.strip())
