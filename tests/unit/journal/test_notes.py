"""Values in a journal: whole where a track may look, described where it only passes on."""

from __future__ import annotations

import hashlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkserve import messages as m
from walkserve.journal import notes
from walkserve.journal.notes import Absent, BytesNote, Describer, Note, NotKept, TensorNote, value_of

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
BYTES = st.binary(max_size=40)
TENSORS = st.builds(m.Array, st.just("int64"), st.tuples(st.integers(0, 9)), BYTES) | st.builds(
    m.TensorRef,
    owner=st.sampled_from(["a.rank0.1", "b.host.2"]),
    key=st.integers(0, 99),
    segment=st.just("segment"),
    offset=st.integers(0, 4096),
    size_bytes=st.integers(0, 2**40),
    dtype=st.just("float32"),
    shape=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
ITEMS = SCALARS.filter(lambda one: one is not None) | BYTES.map(m.Blob) | TENSORS
RECORDS = st.dictionaries(st.text(), SCALARS | TENSORS | st.lists(ITEMS, max_size=3), max_size=3)
VALUES = SCALARS | BYTES.map(m.Blob) | TENSORS | st.lists(ITEMS) | RECORDS.map(m.Named)


def written(value: m.Value) -> Note:
    """Its note, after a journey through a file."""
    return msgspec.json.decode(msgspec.json.encode(Describer().note(value)), type=Note)


@given(VALUES)
def test_a_note_is_the_same_after_it_was_written_and_of_what_a_replay_makes_of_it(value: m.Value) -> None:
    note = written(value)
    assert repr(note) == repr(Describer().note(value))  # by repr, for 1 is not 1.0
    assert repr(Describer().note(value_of(note))) == repr(note)


@given(SCALARS | st.lists(st.integers(-(2**63), 2**64 - 1) | st.text() | st.floats(), max_size=50))
def test_numbers_and_text_are_there_again_whole(value: m.Value) -> None:
    assert repr(value_of(written(value))) == repr(value)


def test_a_list_is_kept_however_long_it_is() -> None:
    ids = list(range(200_000))
    assert value_of(written(ids)) == ids


def test_a_tensor_is_known_by_its_hash_or_by_its_owners_name_for_it() -> None:
    data = bytes(8)
    digest = hashlib.sha256(data).hexdigest()
    assert written(m.Array("int64", (1,), data)) == TensorNote("int64", (1,), 8, sha256=digest)
    lent = m.TensorRef("a.rank0.1", 7, "segment", 4096, 64, "float32", (4, 4))
    assert written(lent) == TensorNote("float32", (4, 4), 64, owner="a.rank0.1", key=7)


def test_bytes_are_never_in_a_note() -> None:
    assert written(m.Blob(b"secret")) == BytesNote(6, hashlib.sha256(b"secret").hexdigest())


def test_numbers_that_json_cannot_write_are_there_again() -> None:
    again = value_of(written([math.inf, -math.inf, math.nan, 1.0]))
    assert repr(again) == "[inf, -inf, nan, 1.0]"


def test_a_note_of_a_list_does_not_change_with_the_list() -> None:
    ids = [1, 2]
    note = Describer().note(ids)
    ids.append(3)
    assert note == [1, 2]


def test_large_bytes_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def counting(data: bytes) -> hashlib._Hash:
        hashed.append(len(data))
        return hashlib.sha256(data)

    monkeypatch.setattr(notes, "sha256", counting)
    image = bytes(100_000)
    describe = Describer()
    assert describe.note(m.Blob(image)) == describe.note(m.Blob(image))
    assert hashed == [100_000]
    assert describe.note(m.Blob(bytes(bytearray(image)))) == describe.note(
        m.Blob(image)
    )  # other bytes, as long
    assert hashed == [100_000, 100_000]


def test_bytes_that_are_absent_have_a_size_and_an_identity_and_say_what_is_missing() -> None:
    absent = Absent(BytesNote(3, "ab12"))
    assert (len(absent), bool(absent), repr(absent)) == (3, True, "<3 bytes, sha256 ab12>")
    assert absent == Absent(BytesNote(3, "ab12")) != Absent(BytesNote(3, "cd34"))
    for look in (
        lambda: absent[0],
        lambda: list(absent),
        lambda: absent.startswith(b"RIFF"),
        lambda: b"R" in absent,
        lambda: absent == b"RIFF",
        lambda: absent.decode(),
    ):
        with pytest.raises(NotKept, match="3 bytes of which a journal has only the hash .sha256 ab12."):
            look()
