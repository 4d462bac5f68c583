"""The folder of one running server: its sockets and shared memory, and nobody else's.

``walkserve-<pid>-<random>/lock`` is locked for as long as its server lives. The kernel lets go of a
lock when its holder dies, however it dies; a process number would be reused, and means something
else to a container that shares /dev/shm.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

_OURS = re.compile(r"walkserve-\d+-[a-z0-9_]+")
_BIRTH_S = 60.0  # by when a folder that is being made has its lock


def run_root() -> Path:
    """Where a server makes its run folder unless told otherwise."""
    return _roots()[0]


def _roots() -> list[Path]:
    """Where run folders may be, the preferred one first."""
    shared, temporary = Path("/dev/shm"), Path(tempfile.gettempdir())
    usable = shared.is_dir() and os.access(shared, os.W_OK | os.X_OK)
    return [shared, temporary] if usable else [temporary]


@contextmanager
def run_folder(root: Path | None = None) -> Iterator[Path]:
    """A private folder in ``root``, removed on leaving; what dead servers have left goes first.

    Args:
        root: By default /dev/shm, or the folder for temporary files where there is none.
    """
    clean_leftovers(root)
    parent = root if root is not None else _roots()[0]
    folder = Path(tempfile.mkdtemp(prefix=f"walkserve-{os.getpid()}-", dir=parent))  # mode 0700
    try:
        with _held(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock the folder. The lock gets its name once it is held: nobody finds it open."""
    unnamed = folder / "lock.new"
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unnamed.rename(folder / "lock")
        yield
    finally:
        os.close(descriptor)


def clean_leftovers(root: Path | None = None) -> list[Path]:
    """Remove the folders of this user's servers that died, and say which."""
    removed = []
    for parent in [root] if root is not None else _roots():
        with suppress(OSError):
            for folder in sorted(parent.iterdir()):
                if _OURS.fullmatch(folder.name) and _remove_if_dead(folder):
                    log.info("removed %s, left by a server that died", folder)
                    removed.append(folder)
    return removed


def folders_of_servers(root: Path | None = None) -> dict[Path, bool]:
    """Run folders of this user, and whether the server of each lives; nothing is removed."""
    found: dict[Path, bool] = {}
    for parent in [root] if root is not None else _roots():
        with suppress(OSError):
            for folder in sorted(parent.iterdir()):
                if _OURS.fullmatch(folder.name) and folder.lstat().st_uid == os.geteuid():
                    found[folder] = _lives(folder)
    return found


def _lives(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - folder.lstat().st_mtime < _BIRTH_S
    try:
        # shared: whoever asks at the same time does not take this for a server
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _remove_if_dead(folder: Path) -> bool:
    with suppress(FileNotFoundError):  # somebody else is removing it
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return False
        try:
            descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            if time.time() - about.st_mtime < _BIRTH_S:
                return False
            shutil.rmtree(folder, ignore_errors=True)
            return not folder.exists()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            shutil.rmtree(folder, ignore_errors=True)
            return not folder.exists()
        finally:
            os.close(descriptor)
    return False
