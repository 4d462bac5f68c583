"""What every mailbox promises, whatever carries its messages."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
import zmq

from walkserve.messages import Drain, FreeTensors, Message, StreamItems, ToWorker
from walkserve.transport.base import Mailbox, Unsendable
from walkserve.transport.local import LocalMailbox, LocalSwitchboard
from walkserve.transport.sockets import AsyncSocketMailbox, SocketMailbox

Open = Callable[..., Mailbox]


class Driven(AsyncSocketMailbox):
    """The coroutine's mailbox, with an event loop of its own that runs while somebody receives."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop], *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.loop = new_loop()

    def receive(self, timeout_s: float | None = None) -> list[Message]:  # type: ignore[override]
        return self.loop.run_until_complete(super().receive(timeout_s))

    def close(self) -> None:
        super().close()
        self.loop.close()


uvloop.new_event_loop().close()  # the first one opens two descriptors that stay


def message(n: int) -> FreeTensors:
    return FreeTensors(keys=[n])


def numbers(messages: list[Message]) -> list[int]:
    return [m.keys[0] for m in messages if isinstance(m, FreeTensors)]


def receive_until(mailbox: Mailbox, count: int, timeout_s: float = 10.0) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count and time.monotonic() < deadline:
        messages += mailbox.receive(timeout_s=1.0)
    return messages


def comes_true(question: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not (answer := question()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return answer


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.fixture(params=["local", "socket", "asyncio", "uvloop"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens mailboxes of one kind that can reach each other, and checks that nothing is left of them."""
    opened: list[Mailbox] = []
    switchboard = LocalSwitchboard()

    def open_mailbox(address: str, **kw: Any) -> Mailbox:
        mailbox: Mailbox
        match request.param:
            case "local":
                mailbox = LocalMailbox(address, switchboard, **kw)
            case "socket":
                mailbox = SocketMailbox(address, tmp_path, ToWorker, **kw)
            case "asyncio":
                mailbox = Driven(asyncio.new_event_loop, address, tmp_path, ToWorker, **kw)
            case "uvloop":
                mailbox = Driven(uvloop.new_event_loop, address, tmp_path, ToWorker, **kw)
        opened.append(mailbox)
        return mailbox

    before = descriptors(), threads()
    yield open_mailbox
    for mailbox in opened:
        mailbox.close()
        mailbox.close()
    assert descriptors() <= before[0]
    assert comes_true(
        lambda: threads() <= before[1]
    )  # the system counts one a moment longer than join() does
    assert list(tmp_path.iterdir()) == []


def test_messages_between_two_mailboxes_arrive_in_the_order_they_were_sent(opens: Open) -> None:
    a, b = opens("a"), opens("b")
    for n in range(0, 2000, 2):
        a.send("b", [message(n), message(n + 1)])
    assert numbers(receive_until(b, 2000)) == list(range(2000))


def test_the_messages_of_one_call_arrive_together(opens: Open) -> None:
    a, b = opens("a"), opens("b")
    a.send("b", [message(n) for n in range(50)])
    assert numbers(b.receive(timeout_s=10)) == list(range(50))


def test_nothing_is_sent_for_no_messages(opens: Open) -> None:
    a, b = opens("a"), opens("b")
    a.send("b", [])
    a.send("b", [message(1)])
    assert numbers(b.receive(timeout_s=10)) == [1]


def test_a_mailbox_may_write_to_itself(opens: Open) -> None:
    a = opens("a")
    a.send("a", [message(7)])
    assert numbers(a.receive(timeout_s=10)) == [7]


def test_both_directions_and_several_senders_work_at_once(opens: Open) -> None:
    a, b, c = opens("a"), opens("b"), opens("c")
    a.send("c", [message(1)])
    b.send("c", [message(2)])
    assert sorted(numbers(receive_until(c, 2))) == [1, 2]
    c.send("a", [message(3)])
    assert numbers(a.receive(timeout_s=10)) == [3]


def test_what_is_sent_before_a_mailbox_opens_waits_for_it(opens: Open) -> None:
    a = opens("a")
    for n in range(100):
        a.send("late", [message(n)])
    late = opens("late")
    assert numbers(receive_until(late, 100)) == list(range(100))
    assert a.dropped == 0


def test_a_peer_that_never_comes_costs_neither_time_nor_an_error(opens: Open) -> None:
    a = opens("a", high_water=10)
    start = time.monotonic()
    for n in range(100):
        a.send("nobody", [message(n), message(n)])
    assert time.monotonic() - start < 2
    assert a.dropped == 2 * 90


def test_a_peer_that_has_closed_costs_neither_time_nor_an_error(opens: Open) -> None:
    a, b = opens("a", high_water=10), opens("b")
    a.send("b", [message(1)])
    assert numbers(b.receive(timeout_s=10)) == [1]
    b.close()
    start = time.monotonic()
    for n in range(1000):
        a.send("b", [message(n)])
    assert time.monotonic() - start < 2
    assert a.dropped > 0


def test_a_peer_that_is_forgotten_can_be_written_to_again(opens: Open) -> None:
    a, b = opens("a"), opens("b")
    a.forget("b")
    a.forget("never heard of")
    a.send("b", [message(1)])
    assert numbers(b.receive(timeout_s=10)) == [1]
    a.forget("b")
    a.send("b", [message(2)])
    assert numbers(b.receive(timeout_s=10)) == [2]


def test_receive_comes_back_empty_when_its_time_is_over(opens: Open) -> None:
    a = opens("a")
    start = time.monotonic()
    assert a.receive(timeout_s=0.05) == []
    assert 0.04 < time.monotonic() - start < 2
    assert a.receive(timeout_s=0) == []
    assert a.receive(timeout_s=-1) == []


def test_wake_ends_a_receive_that_blocks(opens: Open) -> None:
    a = opens("a")
    ringer = threading.Timer(0.1, a.wake)
    ringer.start()
    assert a.receive(timeout_s=None) == []
    ringer.join()
    assert a.receive(timeout_s=0) == []


def test_wake_ends_the_next_receive_if_none_blocks(opens: Open) -> None:
    a = opens("a")
    a.wake()
    a.wake()
    start = time.monotonic()
    assert a.receive(timeout_s=10) == []
    assert time.monotonic() - start < 5
    a.send("a", [message(1)])
    assert numbers(receive_until(a, 1)) == [1]


def test_a_mailbox_that_is_closed_may_be_woken(opens: Open) -> None:
    a = opens("a")
    a.close()
    a.wake()


def test_what_was_sent_last_still_arrives_when_the_sender_closes(opens: Open) -> None:
    a, b = opens("a"), opens("b")
    a.send("b", [message(n) for n in range(1000)])
    a.close()
    assert len(receive_until(b, 1000)) == 1000


def test_closing_does_not_wait_long_for_a_peer_that_never_comes(opens: Open) -> None:
    a = opens("a")
    a.send("nobody", [message(1)])
    start = time.monotonic()
    a.close()
    assert time.monotonic() - start < 2


def test_an_address_can_be_open_only_once_at_a_time(opens: Open) -> None:
    a = opens("a")
    with pytest.raises(FileExistsError, match="'a'"):
        opens("a")
    a.close()
    opens("a").send("a", [message(1)])


# --- what only sockets have ---------------------------------------------------------------------------


def test_a_socket_path_that_is_too_long_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="107"):
        SocketMailbox("a" * 108, tmp_path, ToWorker)


@pytest.mark.parametrize("address", ["", ".", "..", "a/b", "a\0b"])
def test_an_address_has_to_be_a_file_name(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        SocketMailbox(address, tmp_path, ToWorker)
    with SocketMailbox("a", tmp_path, ToWorker) as a:
        a.send(address, [message(1)])
        assert a.dropped == 1


def test_a_message_that_cannot_be_read_is_passed_over_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "walkserve")
    with SocketMailbox("a", tmp_path, ToWorker) as a, SocketMailbox("b", tmp_path, ToWorker) as b:
        a.send("b", [message(1), Drain(), message(2)])
        assert numbers(b.receive(timeout_s=10)) == [1, 2]
    assert "'Drain'" in caplog.text


BAD_FRAMES = [
    b"",
    b"\xc1",
    b"\x91",
    b"\x91\x01",
    b"\x80",
    b"\x91\x81\xa4type\x01",
    b"\x91\xa2\xff\xff",
    b"\x91" * 5000,
]


@pytest.mark.parametrize("frame", BAD_FRAMES, ids=lambda frame: frame[:8].hex())
def test_a_frame_that_is_no_batch_of_messages_is_passed_over(tmp_path: Path, frame: bytes) -> None:
    with (
        SocketMailbox("b", tmp_path, ToWorker) as b,
        zmq.Context() as context,
        context.socket(zmq.PUSH) as push,
    ):
        push.connect(f"ipc://{tmp_path}/b")
        push.send(frame)
        push.send(msgspec.msgpack.encode([message(1)]))
        assert numbers(receive_until(b, 1)) == [1]


def items(*values: object) -> StreamItems:
    return StreamItems(number=1, stream="s", first=0, items=list(values))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [object(), 2**70, "\ud800"])
def test_a_message_that_cannot_be_written_is_named_and_the_others_are_sent(
    tmp_path: Path, value: object
) -> None:
    bad = items(value)
    with SocketMailbox("a", tmp_path, ToWorker) as a, SocketMailbox("b", tmp_path, ToWorker) as b:
        with pytest.raises(Unsendable, match="StreamItems to 'b'") as caught:
            a.send("b", [message(1), bad, message(2)])
        assert caught.value.messages == (bad,)
        assert numbers(b.receive(timeout_s=10)) == [1, 2]
        with pytest.raises(Unsendable):
            a.send("b", [bad])
        assert b.receive(timeout_s=0.02) == []


def test_a_receive_that_is_cancelled_loses_nothing(tmp_path: Path) -> None:
    async def story() -> list[int]:
        with AsyncSocketMailbox("a", tmp_path, ToWorker) as a:
            got: list[int] = []
            for n in range(200):
                a.send("a", [message(n)])
                waiting = asyncio.create_task(a.receive())
                await asyncio.sleep(0)
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    got += numbers(await waiting)
            while len(got) < 200:
                got += numbers(await a.receive(timeout_s=10))
            return got

    assert asyncio.run(story()) == list(range(200))


def test_a_loop_that_nobody_receives_in_does_not_spin(tmp_path: Path) -> None:
    async def story() -> float:
        with AsyncSocketMailbox("a", tmp_path, ToWorker) as a:
            a.send("a", [message(1)])
            assert numbers(await a.receive(timeout_s=10)) == [1]
            a.send("a", [message(2)])
            start = time.thread_time()
            await asyncio.sleep(0.3)
            return time.thread_time() - start

    assert asyncio.run(story()) < 0.1


ECHO = """
import sys
from pathlib import Path
from typing import Any
from walkserve.messages import StopWorker, ToWorker
from walkserve.transport.sockets import SocketMailbox

with SocketMailbox("echo", Path(sys.argv[1]), ToWorker) as mailbox:
    while True:
        messages = mailbox.receive(None)
        mailbox.send("here", messages)
        if any(isinstance(message, StopWorker) for message in messages):
            break
"""


def test_messages_cross_between_processes_one_of_which_starts_late(tmp_path: Path) -> None:
    with SocketMailbox("here", tmp_path, ToWorker) as here:
        here.send("echo", [message(n) for n in range(10)])
        other = subprocess.Popen([sys.executable, "-c", ECHO, str(tmp_path)])
        try:
            assert numbers(receive_until(here, 10, timeout_s=60)) == list(range(10))
            other.kill()
            other.wait(timeout=10)
            for n in range(100):
                here.send("echo", [message(n)])
        finally:
            other.kill()
            other.wait(timeout=10)
    assert [path.name for path in tmp_path.iterdir()] == ["echo"]  # killed, it cannot tidy up
