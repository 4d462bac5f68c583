"""What a client may write to its request's streams, when it has to wait, and what is then said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from walkserve import messages as m
from walkserve.delivery import Done, Failed
from walkserve.transport.tensors import from_array
from walkserve.transport.values import as_value
from walkserve.writing import Writing
from walkserve_sdk import Stream
from walkserve_sdk.errors import BadRequest, ClientIdle

TAG = 7


def stream(name: str, limit: int = 2) -> Stream:
    made = Stream(by="client", limit=limit)
    made.name = name
    return made


@pytest.fixture
def writing() -> Writing:
    return Writing("engine", TAG, [stream("ticks"), stream("voice")])


def write(writing: Writing, name: str, value: Any) -> m.WriteStream | None:
    return writing.write(writing.item(name, value))


# --- values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"a picture", m.Blob(b"a picture")),
        (bytearray(b"a"), m.Blob(b"a")),
        ("left", "left"),
        (True, True),
        (-5, -5),
        (0.25, 0.25),
        (np.float32(0.25), 0.25),
        ([1, "two", b"3"], [1, "two", m.Blob(b"3")]),
        ((1.5, 2), [1.5, 2]),
        ([], []),
        ({"at": 0.5, "pose": [1, 2.5]}, m.Named({"at": 0.5, "pose": [1, 2.5]})),
        ({"arm": np.zeros(1, np.uint8)}, m.Named({"arm": m.Array("uint8", (1,), b"\0")})),
        (np.array([1, 2], ">i2"), m.Array("int16", (2,), b"\1\0\2\0")),
        ([np.zeros((1, 0), np.float32)], [m.Array("float32", (1, 0), b"")]),
    ],
)
def test_a_value_is_written_as_messages_hold_it(value: Any, told: m.Value) -> None:
    made = as_value(value, "ticks")
    assert (made, type(made)) == (told, type(told))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64", "complex64"])
def test_an_array_is_what_it_was_for_who_reads_it(dtype: str) -> None:
    wanted = (np.arange(12).reshape(3, 4) % 5).astype(dtype).T  # not contiguous
    made = as_value(wanted, "ticks")
    assert isinstance(made, m.Array)
    assert np.array_equal(from_array(made).numpy(), wanted)
    assert as_value(torch.from_numpy(wanted.copy()), "ticks") == made


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "ticks: None is no item; give bytes, text, a number, an array, a list of these, or a record"),
        ([1, None], "ticks: None is no item"),
        ([1, [2]], "ticks: item 1 of a list is a list itself; give it flat"),
        ({"a": b"1"}, "ticks.a: a record holds no bytes; send them beside it, in a list"),
        ({"a": [1, b"1"]}, "ticks.a: a record holds no bytes"),
        ({"a": {"b": 1}}, "ticks.a: no stream can hold a value of type dict; give bytes"),
        (object, "ticks: no stream can hold a value of type type"),
        (np.array(["a"]), "ticks: no stream can hold a value of type array of <U1"),
        (2**64, "ticks: the number 18446744073709551616 is beyond 64 bits"),
        (-(2**63) - 1, "ticks: the number -9223372036854775809 is beyond 64 bits"),
        ("\ud800", "ticks: a text that is no UTF-8"),
        (torch.zeros(2, device="meta"), "ticks: .*; give an array in host memory"),
    ],
)
def test_what_no_stream_can_hold_is_refused_with_the_cure(value: Any, told: str) -> None:
    with pytest.raises(BadRequest, match=f"^{told}") as refused:
        as_value(value, "ticks")
    assert str(refused.value.param).partition(".")[0] == "ticks"


# --- when and what --------------------------------------------------------------------------------------


def test_items_are_numbered_by_stream_and_the_end_counts_them(writing: Writing) -> None:
    assert write(writing, "ticks", 5) == m.WriteStream("engine", TAG, "ticks", 0, [5])
    assert write(writing, "ticks", "x") == m.WriteStream("engine", TAG, "ticks", 1, ["x"])
    assert write(writing, "voice", b"a") == m.WriteStream("engine", TAG, "voice", 0, [m.Blob(b"a")])
    assert writing.finish("ticks") == m.FinishStream("engine", TAG, "ticks", 2)
    assert writing.finish("ticks") is None


def test_it_has_to_wait_where_as_much_is_unread_as_may_be(writing: Writing) -> None:
    item = writing.item("ticks", 1)
    for _ in range(2):
        assert not writing.has_to_wait(item)
        writing.write(item)
    assert writing.has_to_wait(item) and not writing.has_to_wait(writing.item("voice", 1))
    writing.took(m.ItemsTaken(TAG, "ticks", 1))
    assert not writing.has_to_wait(item)


def test_where_nobody_reads_any_more_nobody_waits_and_nothing_is_said(writing: Writing) -> None:
    for _ in range(2):
        write(writing, "ticks", 1)
    writing.took(m.ItemsTaken(TAG, "ticks", 0, is_discarded=True))
    item = writing.item("ticks", 1)
    assert not writing.has_to_wait(item) and writing.write(item) is None and writing.finish("ticks") is None


def test_once_the_request_has_ended_well_what_is_written_goes_nowhere(writing: Writing) -> None:
    writing.over = Done(m.RequestEnded(TAG, "stop", 0, {}, {}, {}))
    assert write(writing, "ticks", 1) is None and writing.finish("ticks") is None


def test_once_it_has_failed_whoever_writes_is_told(writing: Writing) -> None:
    writing.over = Failed(m.Fault("silent", 408, "timeout", "client_idle"))
    for tell in (lambda: write(writing, "ticks", 1), lambda: writing.finish("ticks")):
        with pytest.raises(ClientIdle, match="silent"):
            tell()


def test_after_its_end_a_stream_takes_nothing(writing: Writing) -> None:
    writing.finish("ticks")
    item = writing.item("ticks", 1)
    assert not writing.has_to_wait(item)
    with pytest.raises(BadRequest, match="ticks: the stream was ended, and takes no more"):
        writing.write(item)


def test_a_stream_that_is_not_its_clients_is_refused(writing: Writing) -> None:
    told = "'tick' is no stream that this request's client writes; did you mean 'ticks'?"
    for ask in (lambda: writing.item("tick", 1), lambda: writing.finish("tick")):
        with pytest.raises(BadRequest) as refused:
            ask()
        assert str(refused.value) == told
    with pytest.raises(BadRequest, match="'ticks' is no stream .*; it writes none"):
        Writing("engine", TAG, []).item("ticks", 1)
