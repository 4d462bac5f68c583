"""How a server's children begin and end, without a server around them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import msgspec
import pytest

from walkserve import messages as m
from walkserve.conductor.process import IDLE_S, conduct
from walkserve.conductor.state import ConductorState
from walkserve.config import ModelConfig, ServerConfig
from walkserve.lifecycle import DEVICE_BROKE
from walkserve.transport.base import Unsendable

CHILD = """
import logging, sys
from walkserve.lifecycle import follow_parent
from walkserve.logs import start_logging
follow_parent(int(sys.argv[1]))
assert "msgspec" not in sys.modules and "torch" not in sys.modules
start_logging("speaker.rank0", "info", "text")
logging.getLogger("walkserve.somewhere").info("here")
"""


def _child(parent: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(parent)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_child_leaves_at_once_when_its_parent_is_gone_before_it_has_looked():
    assert _child(os.getppid()).returncode == 1
    assert _child(os.getpid()).returncode == 0


def test_a_child_logs_under_its_own_name():
    line = _child(os.getpid()).stderr
    assert line.endswith(" speaker.rank0 walkserve.somewhere INFO here\n")


class Post:
    """A mailbox that gives what it was given, frame by frame, and refuses some messages."""

    address = "conductor"
    dropped = 0

    def __init__(self, *frames: list[m.Message], refuses: Sequence[m.Message] = ()) -> None:
        self.frames = list(frames)
        self.refuses = list(refuses)
        self.did: list[tuple[str, object]] = []

    def receive(self, timeout_s: float | None = None) -> list[m.Message]:
        return self.frames.pop(0)

    def send(self, to: str, messages: Sequence[m.Message]) -> None:
        refused = [message for message in messages if message in self.refuses]
        self.did += [(to, message) for message in messages if message not in refused]
        if refused:
            raise Unsendable(to, refused, "a test says so")

    def forget(self, to: str) -> None:
        self.did.append(("forget", to))

    def wake(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Desk(ConductorState):
    """A conductor of no models that says what a test wants it to say."""

    def __init__(self, **says: list[m.Message]) -> None:
        super().__init__({})
        self.says = says
        self.failed: list[tuple[int, str | None]] = []

    def hear(self, message: m.ToConductor) -> None:
        if isinstance(message, m.Loading):
            for address, said in self.says.items():
                self.outbox[address].extend(said)
        elif not isinstance(message, m.WorkerLost):
            super().hear(message)

    def fail_number(self, number: int, fault: m.Fault) -> None:
        self.failed.append((number, fault.code))
        self._say("http", m.RequestFailed(number, fault))

    def fail_all(self, fault: m.Fault) -> None:
        self._say("http", m.RequestFailed(99, fault))


GO = m.Loading("", "", done=True)
ATTACH, HALT = m.Attach("http"), m.Halt()


def test_what_is_open_fails_before_clients_hear_that_the_server_has_stopped():
    post = Post([ATTACH], [HALT])
    conduct(Desk(), post)
    (_, failed), (_, stopped) = post.did[-2:]
    assert isinstance(failed, m.RequestFailed)
    assert (failed.fault.status, failed.fault.code) == (503, "unavailable")
    assert isinstance(stopped, m.ServerState)
    assert (stopped.phase, stopped.detail) == ("stopped", "told to stop")


def test_a_message_that_cannot_be_sent_fails_its_own_request_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
):
    bad, good = m.StartWalk(3, "writing", 0, "write", {}), m.StartWalk(4, "writing", 0, "write", {})
    state, post = Desk(rank0=[bad, good]), Post([GO], [HALT], refuses=[bad])
    conduct(state, post)
    assert state.failed == [(3, "unsendable")]
    assert ("rank0", good) in post.did
    told = [message.tag for to, message in post.did if isinstance(message, m.RequestFailed)]
    assert told == [3, 99]
    assert "a test says so" in caplog.text


def test_an_answer_that_cannot_be_sent_becomes_one_that_can():
    bad = m.RequestEnded(7, "stop", 1, {}, {}, {})
    state, post = Desk(http=[bad]), Post([GO], [HALT], refuses=[bad])
    conduct(state, post)
    assert state.failed == []
    to, told = next((to, said) for to, said in post.did if isinstance(said, m.RequestFailed))
    assert (to, told.tag, told.fault.code) == ("http", 7, "unsendable")


class Watched(Post):
    """It also notes how long it was to wait at most."""

    def __init__(self, *frames: list[m.Message]) -> None:
        super().__init__(*frames)
        self.waits: list[float | None] = []

    def receive(self, timeout_s: float | None = None) -> list[m.Message]:
        self.waits.append(timeout_s)
        return super().receive(timeout_s)


class Due(Desk):
    """Two requests with a deadline are there once a message was heard."""

    def hear(self, message: m.ToConductor) -> None:
        if isinstance(message, m.Loading):
            self.lives.due += [(3, 0.0), (4, 0.9)]
            life: Any = SimpleNamespace(phase=None)
            self.lives._lives = {3: life, 4: life}
        else:
            super().hear(message)

    def expire(self, number: int) -> None:
        self._say("http", m.RequestFailed(number, m.Fault("late")))
        self.lives._lives.pop(number)


def test_the_loop_waits_for_the_next_deadline_and_no_longer():
    state, post = Due(), Watched([GO], [HALT])
    conduct(state, post)
    first, second = post.waits
    assert first == IDLE_S and second is not None and 0 < second <= 0.9
    assert [message.tag for _, message in post.did if isinstance(message, m.RequestFailed)] == [3, 99]


def test_nothing_waits_any_more_for_a_worker_that_is_lost():
    post = Post([m.WorkerLost("rank0", "rank0.0", "ended")], [HALT])
    conduct(Desk(), post)
    assert ("forget", "rank0.0") in post.did


def test_a_message_that_could_not_be_read_fails_the_request_it_was_about_and_no_other():
    state, post = Desk(), Post([m.Unreadable("WalkEnded", 3), m.Unreadable("Submit", tags=(4,))], [HALT])
    conduct(state, post)
    assert [failed for failed in state.failed if failed[0] >= 0] == [(3, "unreadable")]


def test_a_conductor_comes_round_also_when_nothing_happens():
    beats: list[str] = []
    post = Watched([], [], [HALT])
    conduct(Desk(), post, lambda: beats.append("beat"))
    assert beats == ["beat"] * 3
    assert post.waits == [IDLE_S] * 3


BROKEN_WORKER = """
import sys
from walkserve.engine.broken import DeviceBroke
from walkserve.worker.assemble import Worker
from walkserve.worker.process import main

def run(self):
    try:
        raise RuntimeError("CUDA error: device-side assert triggered")
    except RuntimeError as error:
        raise DeviceBroke(str(error)) from error

Worker.run = run
sys.exit(main(*sys.argv[1:]))
"""


def test_a_worker_whose_device_is_broken_says_so_and_leaves_at_once(tmp_path):
    model = ModelConfig("toy", "orpheus", "toy", {}, {"lm": "toy.rank0"})
    config = tmp_path / "config.json"
    config.write_bytes(msgspec.json.encode(ServerConfig((model,), str(tmp_path))))
    arguments = (str(os.getpid()), str(config), "toy.rank0", "toy.rank0.0")
    ended = subprocess.run(
        [sys.executable, "-c", BROKEN_WORKER, *arguments], capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == DEVICE_BROKE
    assert "toy.rank0 walkserve.worker.process CRITICAL the device broke, and is given up: CUDA error" in (
        ended.stderr
    )
