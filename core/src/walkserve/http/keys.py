"""API keys: read from a file, kept as digests, compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from walkserve.errors import SettingError

READ_BY_ALL = 0o006


@dataclass(frozen=True)
class ApiKeys:
    """The keys of those who are answered.

    Args:
        digests: Of each key; the keys themselves are kept nowhere, so nothing can print them.
    """

    digests: tuple[bytes, ...]

    @classmethod
    def of(cls, keys: Iterable[str]) -> Self:
        return cls(tuple(sha256(key.encode()).digest() for key in keys))

    def accepts(self, key: bytes) -> bool:
        """Whether it is one of them. Takes the same time whichever it is, and however much of it is right."""
        digest = sha256(key).digest()
        is_known = False
        for each in self.digests:
            is_known |= hmac.compare_digest(each, digest)
        return is_known


def read_keys(path: Path) -> ApiKeys:
    """Read a file of keys: one a line; ``#`` begins a comment, empty lines do not count.

    Raises:
        SettingError: It cannot be read, holds no key, or a line that cannot be one; no message holds a key.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: these API keys cannot be read: {error}") from None
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) > 1 and not words[1].startswith("#"):
            raise SettingError(f"{path}, line {number}: a key has no spaces; what follows it begins with #")
        if not words[0].isascii() or not words[0].isprintable():
            raise SettingError(f"{path}, line {number}: a key has only letters, digits and signs of ASCII")
        keys.append(words[0])
    if not keys:
        raise SettingError(f"{path}: it holds no API key; write one a line")
    return ApiKeys.of(keys)


def is_read_by_all(path: Path) -> bool:
    """Whether every user of this machine may read or write the file."""
    return bool(path.stat().st_mode & READ_BY_ALL)
