"""The folder of a server's journals: one file per request, written as it goes on.

No file is kept open: what has gathered in one round of the conductor's loop is appended with one write per
request, and closed again. A round is written down before anything of it is said, so a journal has all that
anybody was told, however the process dies.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import msgspec

from walkserve import messages as m
from walkserve.errors import SettingError
from walkserve.journal import entries as e
from walkserve.journal.recorder import Recorder
from walkserve.logs import about
from walkserve_sdk import Request

log = logging.getLogger(__name__)

ENDING = ".jsonl"
LONGEST_NAME = 128
"""Characters of a label that are part of a file's name; of a longer one there is a hash."""
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_encode = msgspec.json.Encoder().encode


def usable_folder(folder: Path) -> Path:
    """Make the folder, for its owner alone, unless it is there; its absolute path.

    Raises:
        SettingError: No file can be written there.
    """
    try:
        folder = folder.expanduser().absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise SettingError(
            f"no journal can be written to {folder}: {error.strerror or error}; name a folder that can be "
            "made, or written to"
        ) from error


class JournalFolder:
    """Journals of all requests of one server.

    Args:
        folder: As ``usable_folder`` has made it.
        origins: What serves each model, by its served name.
    """

    def __init__(self, folder: Path, origins: Mapping[str, e.Origin]) -> None:
        self.folder = folder
        self._origins = origins
        self._waiting: dict[_File, None] = {}  # files with something to write, in order
        self._is_in_trouble = False

    def begin(
        self, number: int, submit: m.Submit, request: Request, pools: Mapping[str, m.PoolInfo]
    ) -> Recorder | None:
        """The journal of a request that is accepted now; None where its options cannot be written down."""
        file = _File(submit.label, number)
        recorder = Recorder(lambda entry: self._gather(file, entry))
        try:
            recorder.opened(number, submit, request, pools, self._origins[submit.model])
        except (
            Exception
        ) as error:  # a family may have options of any kind; the request is served all the same
            log.error("this request has no journal: %s", error, extra=about(submit.label))
            return None
        return recorder

    def _gather(self, file: _File, entry: e.Line) -> None:
        if file.is_given_up:
            return
        try:
            file.text += _encode(entry) + b"\n"
        except Exception as error:  # text that is no Unicode, say: it is this entry's, and no request's
            file.is_given_up = True
            why = f"{type(entry).__name__} cannot be written down: {error}"
            file.text += _encode(e.BrokenOff(at_ms=entry.at_ms, why=why)) + b"\n"
            log.error("the journal of this request ends here: %s", why, extra=about(file.label))
        self._waiting[file] = None

    def flush(self) -> None:
        """Write down what has gathered. What cannot be written is said once, and given up."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        trouble = ""
        for file in waiting:
            try:
                file.append(self.folder)
            except OSError as error:
                file.is_given_up = True
                trouble = error.strerror or str(error)
            file.text.clear()
        if trouble and not self._is_in_trouble:
            log.error(
                "journals cannot be written to %s: %s; requests are served without them", self.folder, trouble
            )
        elif self._is_in_trouble and not trouble:
            log.warning("journals are written to %s again; those of some requests are cut off", self.folder)
        self._is_in_trouble = bool(trouble)


class _File:
    """One request's file. It has its name once something was written to it."""

    __slots__ = ("is_given_up", "label", "number", "path", "text")

    def __init__(self, label: str, number: int) -> None:
        self.label = label
        self.number = number
        self.path: Path | None = None
        self.text = bytearray()
        self.is_given_up = False

    def append(self, folder: Path) -> None:
        """Add what has gathered. Raises OSError, also where only a part of it was taken."""
        where = self._make(folder) if self.path is None else os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            if os.write(where, self.text) < len(self.text):
                raise OSError("only a part of it was written; is the disk full?")
        finally:
            os.close(where)

    def _make(self, folder: Path) -> int:
        for name in self._names():
            path = folder / f"{name}{ENDING}"
            try:
                where = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:  # a label may have several requests, or be a client's own
                continue
            self.path = path
            return where
        raise AssertionError("names do not end")

    def _names(self) -> Iterator[str]:
        """``req-1f``, or where that is taken ``req-1f.7`` by its number, then ``req-1f.7.1``, …"""
        if self.label:
            name = self.label if _SAFE.fullmatch(self.label) else quote(self.label, safe="", errors="replace")
            if len(name) > LONGEST_NAME:
                name = f"{name[:64]}-{sha256(name.encode()).hexdigest()[:32]}"
            name = name.replace(".", "%2E", 1) if name.startswith(".") else name
            yield name
            name = f"{name}.{self.number}"
        else:
            name = f"request-{self.number}"
        yield name
        turn = 0
        while True:
            turn += 1
            yield f"{name}.{turn}"
