"""What a mailbox makes of frames that no process of this server would send."""

import asyncio
import logging
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawn import messages

from walkserve import messages as m
from walkserve.transport.frames import LONGEST_KIND, MOST_KINDS, Unpacker, pack
from walkserve.transport.sockets import AsyncSocketMailbox, SocketMailbox

UNIONS = {"conductor": m.ToConductor, "worker": m.ToWorker, "client": m.ToClient}
EVERY = m.ToConductor | m.ToWorker | m.ToClient
NAMES = ("toy.rank0", "speech", "write")
GOOD = m.FreeTensors([1])


@pytest.mark.parametrize("union", UNIONS.values(), ids=UNIONS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_message_comes_back_as_it_was_or_as_unreadable(union: Any, data: st.DataObject) -> None:
    said = data.draw(st.lists(messages(EVERY, NAMES), max_size=4))
    heard = Unpacker(union).unpack(pack(said)[0])
    receives = typing.get_args(union)
    expected = [type(one) for one in said if isinstance(one, receives)]
    assert [type(one) for one in heard if not isinstance(one, m.Unreadable)] == expected


@pytest.mark.parametrize("union", UNIONS.values(), ids=UNIONS)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_frame_that_was_spoilt_on_its_way_never_raises(union: Any, data: st.DataObject) -> None:
    frame = bytearray(pack(data.draw(st.lists(messages(union, NAMES), min_size=1, max_size=3)))[0])
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    spoilt = bytes(frame[:cut]) + data.draw(st.binary(max_size=8))
    unpacker = Unpacker(union)
    for one in unpacker.unpack(spoilt):
        assert isinstance(one, m.Message)
    assert unpacker.unpack(pack([GOOD])[0]) == ([GOOD] if union is m.ToWorker else [])


@given(frame=st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_noise_never_raises(frame: bytes) -> None:
    for union in UNIONS.values():
        assert all(isinstance(one, m.Message) for one in Unpacker(union).unpack(frame))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"type": "WalkEnded", "number": 3, "values": 7}, m.Unreadable("WalkEnded", 3)),
        ({"type": "Emitted", "tags": [4, 5, "x"], "items": {}}, m.Unreadable("Emitted", tags=(4, 5))),
        ({"type": "RequestEnded", "tag": 6}, m.Unreadable("RequestEnded", tags=(6,))),
        ({"type": "Never heard of", "number": 3}, m.Unreadable("Never heard of", 3)),
        ({"type": ["odd"], "number": 3}, m.Unreadable("unknown", 3)),
        ({"number": 0}, m.Unreadable("unknown", 0)),
    ],
)
def test_what_cannot_be_read_says_which_request_it_was_about(said: Any, expected: m.Unreadable) -> None:
    unpacker = Unpacker(EVERY)
    assert unpacker.unpack(msgspec.msgpack.encode([said, GOOD])) == [expected, GOOD]


@pytest.mark.parametrize(
    "said", [{"type": "WalkEnded", "number": "x"}, {"type": "Emitted", "tags": 3}, {"a": 1}, 7, None, [[]]]
)
def test_what_does_not_say_is_passed_over(said: Any) -> None:
    assert Unpacker(EVERY).unpack(msgspec.msgpack.encode([said, GOOD])) == [GOOD]


def test_nobody_can_send_what_stands_for_an_unreadable_message() -> None:
    for union in UNIONS.values():
        forged = m.Unreadable("WalkEnded", 3, (4,))
        heard = Unpacker(union).unpack(pack([forged])[0])
        assert heard == [m.Unreadable("Unreadable", 3, (4,))]


def test_each_kind_is_logged_once_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "walkserve")
    unpacker = Unpacker(m.ToWorker)
    for _ in range(50):
        unpacker.unpack(pack([m.Drain()])[0])
        unpacker.unpack(pack([m.Halt()])[0])
        unpacker.unpack(b"\xc1")
    assert len(caplog.records) == 3
    assert unpacker.unreadable == {"Drain": 50, "Halt": 50, "frame": 50}


def test_however_much_nonsense_comes_little_is_kept_and_written_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, "walkserve")
    unpacker = Unpacker(m.ToWorker)
    for n in range(1000):
        unpacker.unpack(msgspec.msgpack.encode([{"type": f"{n} " * 1000}]))
    assert len(unpacker.unreadable) == MOST_KINDS + 1
    assert max(map(len, unpacker.unreadable)) <= LONGEST_KIND
    assert len(caplog.records) == MOST_KINDS + 1


# --- in real sockets -------------------------------------------------------------------------------------

Receive = Callable[[], Sequence[m.Message]]


@pytest.fixture(params=["blocking", "asyncio"])
def receive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Receive]:
    """What arrives in a worker's mailbox ``b``, of either kind."""
    if request.param == "blocking":
        with SocketMailbox("b", tmp_path, m.ToWorker) as blocking:
            yield lambda: blocking.receive(10)
        return
    with asyncio.Runner() as runner, AsyncSocketMailbox("b", tmp_path, m.ToWorker) as mailbox:
        yield lambda: runner.run(mailbox.receive(10))


def test_a_mailbox_goes_on_after_anything_that_arrives(receive: Receive, tmp_path: Path) -> None:
    good = pack([GOOD])[0]
    bad = [
        bytes(range(256)),
        good[:-1],
        pack([m.Drain()])[0],
        msgspec.msgpack.encode([{"type": "Never heard of"}]),
        b"\xdd\xff\xff\xff\xff",  # it says that four thousand million values follow
        b"\xc6\xff\xff\xff\xff",
        b"\x00" * (32 << 20),
        msgspec.msgpack.encode([b"\x00" * (32 << 20)]),
        b"\x91" * 100_000,
    ]
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(f"ipc://{tmp_path}/b")
        for frame in bad:
            push.send(frame)
            push.send(good)
        push.send_multipart([b"\xc1", good, b""])
        heard: list[m.Message] = []
        while len(heard) < len(bad) + 1:
            more = receive()
            assert more, f"only {len(heard)} arrived"
            heard += more
    assert heard == [GOOD] * (len(bad) + 1)
