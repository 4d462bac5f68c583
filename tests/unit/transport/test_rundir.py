"""Run folders: private, gone with their server, and nobody else's is touched."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from walkserve.transport import rundir
from walkserve.transport.rundir import clean_leftovers, run_folder

SERVER = """
import sys, time
from pathlib import Path
from walkserve.transport.rundir import run_folder
with run_folder(Path(sys.argv[1])) as folder:
    (folder / "socket").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def start(root: Path) -> tuple[subprocess.Popen[str], Path]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    return server, Path(server.stdout.readline().strip())


def end(server: subprocess.Popen[str], *, kill: bool = False) -> None:
    if kill:
        server.kill()
    server.communicate(timeout=10)


def test_the_folder_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with run_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(f"walkserve-{os.getpid()}-")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "something").touch()
        (folder / "deeper").mkdir()
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_folder_is_gone_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), run_folder(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_in_shared_memory_where_there_is_any() -> None:
    with run_folder() as folder:
        assert folder.parent == rundir._roots()[0]
    assert not folder.exists()


def test_a_live_server_keeps_its_folder_and_a_killed_one_loses_it(tmp_path: Path) -> None:
    server, theirs = start(tmp_path)
    try:
        with run_folder(tmp_path) as ours:
            assert clean_leftovers(tmp_path) == []
            assert theirs.exists() and ours.exists()
            end(server, kill=True)
            assert (theirs / "socket").exists()
            assert clean_leftovers(tmp_path) == [theirs]
            assert ours.exists()
    finally:
        end(server, kill=True)
    assert list(tmp_path.iterdir()) == []


def test_the_next_server_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    server, theirs = start(tmp_path)
    end(server, kill=True)
    assert theirs.exists()
    with run_folder(tmp_path):
        assert not theirs.exists()


def test_a_folder_whose_process_number_runs_again_is_still_a_leftover(tmp_path: Path) -> None:
    server, theirs = start(tmp_path)
    end(server, kill=True)
    reused = theirs.rename(tmp_path / f"walkserve-{os.getpid()}-abcdefgh")
    assert clean_leftovers(tmp_path) == [reused]


def test_a_server_that_ends_well_leaves_nothing(tmp_path: Path) -> None:
    server, _ = start(tmp_path)
    end(server)
    assert server.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_just_being_made_is_left_alone_for_a_while(tmp_path: Path) -> None:
    young = tmp_path / "walkserve-1-abcdefgh"
    young.mkdir()
    assert clean_leftovers(tmp_path) == []
    long_ago = time.time() - 3600
    os.utime(young, (long_ago, long_ago))
    assert clean_leftovers(tmp_path) == [young]


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    long_ago = time.time() - 3600
    elsewhere = tmp_path / "elsewhere"
    names = ["walkserve", "walkserve-abc-abcdefgh", "walkserve-1", "other-1-abcdefgh", "walkserve-1-abc.bak"]
    for folder in [elsewhere, *(tmp_path / name for name in names)]:
        folder.mkdir()
        os.utime(folder, (long_ago, long_ago))
    (tmp_path / "walkserve-1-aaaaaaaa").touch()
    (tmp_path / "walkserve-1-bbbbbbbb").symlink_to(elsewhere)
    before = sorted(tmp_path.iterdir())
    assert clean_leftovers(tmp_path) == []
    assert sorted(tmp_path.iterdir()) == before


def test_what_other_users_left_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "walkserve-1-abcdefgh"
    folder.mkdir()
    os.utime(folder, (0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert clean_leftovers(tmp_path) == []
    assert folder.exists()


def test_a_root_that_is_not_there_has_no_leftovers(tmp_path: Path) -> None:
    assert clean_leftovers(tmp_path / "nowhere") == []
