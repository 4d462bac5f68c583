"""Where journals go: a private file per request, complete up to what was said, nobody else's trouble."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.journal.conftest import Begin, ended

from walkserve import messages as m
from walkserve.errors import SettingError
from walkserve.journal.entries import BrokenOff, Cancelled, Ended, Opened
from walkserve.journal.folder import JournalFolder, usable_folder
from walkserve.journal.reading import read_journal
from walkserve_sdk import Part


def files(folder: JournalFolder) -> list[str]:
    return sorted(path.name for path in folder.folder.iterdir())


# --- files --------------------------------------------------------------------------------------------


def test_a_request_is_a_file_that_only_its_owner_reads(folder: JournalFolder, begin: Begin) -> None:
    begin("req-1f").told(ended())
    folder.flush()
    assert files(folder) == ["req-1f.jsonl"]
    assert stat.S_IMODE(folder.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.folder / "req-1f.jsonl").stat().st_mode) == 0o600


def test_what_gathers_is_written_at_once_and_no_file_stays_open(
    folder: JournalFolder, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writes = os.write, []
    monkeypatch.setattr(os, "write", lambda where, text: writes.append(len(text)) or write(where, text))
    before = os.listdir("/proc/self/fd")
    recorders = [begin(f"req-{n}") for n in range(50)]
    assert writes == [] and files(folder) == []  # nothing was said yet
    folder.flush()
    for recorder in recorders:
        recorder.walk_started("writing", 0, "write", {"ids": [1]})
        recorder.admitted()
    folder.flush()
    folder.flush()
    assert len(writes) == 100
    assert sorted(os.listdir("/proc/self/fd")) == sorted(before)
    assert all(len(read_journal(path).entries) == 3 for path in folder.folder.iterdir())


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("", "request-7"),
        ("req-1f", "req-1f"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd".replace("..", "%2E.", 1)),
        (".", "%2E"),
        ("what? I said", "what%3F%20I%20said"),
        ("\0", "%00"),
        ("-rf", "-rf"),
    ],
)
def test_a_file_has_its_requests_name_whatever_a_client_calls_it(
    folder: JournalFolder, begin: Begin, label: str, name: str
) -> None:
    begin(label)
    folder.flush()
    assert files(folder) == [f"{name}.jsonl"]
    assert read_journal(folder.folder / f"{name}.jsonl").opened.label == label


def test_a_long_name_is_cut_and_still_one_requests(folder: JournalFolder, begin: Begin) -> None:
    begin("x" * 5000 + "a")
    begin("x" * 5000 + "b")
    folder.flush()
    names = files(folder)
    assert len(names) == 2
    assert all(len(name) < 128 for name in names)


def test_requests_of_one_label_have_a_file_each_and_none_is_written_over(
    folder: JournalFolder, begin: Begin
) -> None:
    for number in (7, 8, 9):
        begin("req-1f", number)
        folder.flush()
    begin("req-1f", 9)  # the numbers of another day
    begin("", 9)
    begin("", 9)
    folder.flush()
    assert files(folder) == [
        "req-1f.8.jsonl",
        "req-1f.9.1.jsonl",
        "req-1f.9.jsonl",
        "req-1f.jsonl",
        "request-9.1.jsonl",
        "request-9.jsonl",
    ]


# --- trouble ------------------------------------------------------------------------------------------


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def partly(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    return lambda where, text: write(where, text[: len(text) // 2])


def test_a_full_disk_is_said_once_and_again_when_it_is_over(
    folder: JournalFolder, begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    early = begin("early")
    folder.flush()
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for n in range(3):
            begin(f"late-{n}").told(ended())
            early.admitted()
            folder.flush()
    assert [record.message for record in caplog.records] == [
        f"journals cannot be written to {folder.folder}: No space left on device; "
        "requests are served without them"
    ]
    caplog.clear()
    early.told(ended())  # its journal has a gap, so it is given up
    begin("after").told(ended())
    folder.flush()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "written to" in caplog.text and "again" in caplog.text
    assert read_journal(folder.folder / "after.jsonl").cut == ""
    assert [type(entry) for entry in read_journal(folder.folder / "early.jsonl").entries] == [Opened]


def test_what_was_written_in_part_is_a_journal_that_ends_in_the_middle(
    folder: JournalFolder, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = begin("torn")
    folder.flush()
    recorder.told(ended())
    monkeypatch.setattr(os, "write", partly(os.write))
    folder.flush()
    recorded = read_journal(folder.folder / "torn.jsonl")
    assert (len(recorded.entries), recorded.cut) == (1, "line 2 is torn off in the middle")


def test_a_folder_that_vanishes_is_trouble_of_journals_alone(
    folder: JournalFolder, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    folder.folder.rmdir()
    begin("a")
    folder.flush()
    assert "No such file or directory" in caplog.text


def test_a_file_that_is_removed_while_its_request_runs_is_not_made_again(
    folder: JournalFolder, begin: Begin
) -> None:
    recorder = begin("gone")
    folder.flush()
    (folder.folder / "gone.jsonl").unlink()
    recorder.told(ended())
    folder.flush()
    assert files(folder) == []


def test_what_is_no_text_ends_its_own_journal_with_why(
    folder: JournalFolder, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = begin("one"), begin("other")
    one.walk_started("writing", 0, "write", {"text": "\ud800"})
    one.cancelled()
    other.cancelled()
    folder.flush()
    *_, last = read_journal(folder.folder / "one.jsonl").entries
    assert isinstance(last, BrokenOff) and last.why.startswith("WalkStarted cannot be written down: ")
    assert [type(entry) for entry in read_journal(folder.folder / "other.jsonl").entries] == [
        Opened,
        Cancelled,
    ]
    assert caplog.text.count("the journal of this request ends here") == 1


def test_options_that_no_file_can_hold_cost_their_request_its_journal(
    folder: JournalFolder, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AssertionError):
        begin("odd", word=object())
    folder.flush()
    assert files(folder) == []
    assert "this request has no journal" in caplog.text


# --- the folder ---------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_is_refused_with_a_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for where in ("file", "file/below"):
        with pytest.raises(SettingError, match="no journal can be written to .*; name a folder"):
            usable_folder(tmp_path / where)


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "mine").write_text("")
    assert usable_folder(tmp_path) == tmp_path
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_media_is_a_hash_and_text_stands_as_it_came(folder: JournalFolder, begin: Begin) -> None:
    begin("req", parts=(Part("text", "hällo"), Part("image", b"\x89PNG secret", name="goal"))).told(ended())
    folder.flush()
    text = (folder.folder / "req.jsonl").read_bytes()
    assert "hällo".encode() in text and b"secret" not in text
    recorded = read_journal(folder.folder / "req.jsonl")
    assert isinstance(recorded.entries[-1], Ended)
    (said, image) = recorded.parts({})
    assert said == m.SentPart("text", "hällo".encode())
    assert (image.name, len(image.data)) == ("goal", 11)
    digest = recorded.opened.parts[1].media
    assert digest is not None
    assert recorded.parts({digest.sha256: b"\x89PNG secret"})[1].data == b"\x89PNG secret"
