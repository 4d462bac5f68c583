"""A file that is no journal is refused with the line and the cure; one that ends early is one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.unit.journal.conftest import Begin, ended

from walkserve.errors import SettingError
from walkserve.journal.folder import JournalFolder
from walkserve.journal.reading import read_journal


@pytest.fixture
def whole(folder: JournalFolder, begin: Begin) -> Path:
    recorder = begin("whole")
    recorder.admitted()
    recorder.told(ended())
    folder.flush()
    return folder.folder / "whole.jsonl"


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(SettingError) as raised:
        read_journal(path)
    return str(raised.value).removeprefix(str(path))


def test_a_whole_journal_ends_with_its_request(whole: Path) -> None:
    recorded = read_journal(whole)
    assert (len(recorded.entries), recorded.cut) == (3, "")


@pytest.mark.parametrize("content", [b"", b"hello", b'{"journal": 1'])
def test_what_has_no_whole_line_is_no_journal(whole: Path, content: bytes) -> None:
    assert refused(whole, content).startswith(
        " is no journal: it has no whole line; give a file that walkserve"
    )


@pytest.mark.parametrize("content", [b"hello\n", b"[]\n", b"{}\n", b'{"journal": "one"}\n', b"\xff\n"])
def test_what_begins_with_something_else_is_no_journal(whole: Path, content: bytes) -> None:
    said = refused(whole, content)
    assert said.startswith(", line 1: this begins no journal: ")
    assert said.endswith("; give a file that walkserve serve --journal DIR has written")


def test_another_format_is_refused_with_both_numbers(whole: Path) -> None:
    assert refused(whole, b'{"entry": "opened", "journal": 2}\n') == (
        ", line 1: this journal is of format 2, and this walkserve reads 1; "
        "replay it with the walkserve that wrote it"
    )


def test_a_line_in_the_middle_that_is_none_is_named(whole: Path) -> None:
    first, second, last = lines(whole)
    assert refused(whole, first + b"{}\n" + last).startswith(", line 2: this is no entry of a journal: ")
    assert ", line 2: this opens a second request" in refused(whole, first + first)
    assert ", line 3: this stands after the end of its request" in refused(whole, first + last + second)
    assert ", line 1: this begins no journal" in refused(whole, second + last)
    other = second.replace(b"{", b'{"journal":1,', 1)
    assert ", line 1: this opens no request" in refused(whole, other + last)


def test_a_journal_may_end_anywhere(whole: Path) -> None:
    """At every byte after its first line a crash may have cut it."""
    content, first = whole.read_bytes(), len(lines(whole)[0])
    for end in range(first, len(content)):
        whole.write_bytes(content[:end])
        recorded = read_journal(whole)
        count = content[:end].count(b"\n")
        assert len(recorded.entries) == count
        is_torn = not content[:end].endswith(b"\n")
        told = (
            f"line {count + 1} is torn off in the middle"
            if is_torn
            else f"after line {count} nothing was written"
        )
        assert recorded.cut == told


def test_options_are_there_again_also_those_that_json_cannot_write(
    folder: JournalFolder, begin: Begin
) -> None:
    begin("odd", warmth=math.inf, word=["a", {"b": math.nan}])
    folder.flush()
    options = read_journal(folder.folder / "odd.jsonl").options
    assert repr(options) == "{'seed': None, 'warmth': inf, 'word': ['a', {'b': nan}]}"


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read: No such file or directory; give a file"):
        read_journal(tmp_path / "nowhere")
