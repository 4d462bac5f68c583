"""What dies, hangs or cannot start: who is told, what goes on, and how soon everything is gone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from tests.system.conftest import GOLDEN, RunningServer
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

ASK = {"input": "call 5 5 1", "voice": "tara", "temperature": 0}
LONG = ASK | {"model": "orpheus", "max_tokens": 6000}  # of the golden checkpoint: it goes on to the end
SERVE_LONG = (f"orpheus={GOLDEN}", "--port", "0")


class HastyServer(RunningServer):
    """A server whose supervisor has other constants, ``{"module.NAME": value}``: a test need not wait."""

    def __init__(self, *arguments: str, log: Path, constants: dict[str, object]) -> None:
        self._log = log
        changes = "\n".join(f"{name} = {value!r}" for name, value in constants.items())
        program = (
            f"import sys\nfrom walkserve.supervisor import children, leaving\n{changes}\n"
            "from walkserve.cli import main\nsys.exit(main())"
        )
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, "serve", *arguments, "--device", "cpu"],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.url = ""


@pytest.fixture
def start_hasty(tmp_path: Path) -> Iterator[Callable[..., HastyServer]]:
    started: list[HastyServer] = []

    def start(*arguments: str, constants: dict[str, object]) -> HastyServer:
        log = tmp_path / f"hasty{len(started)}"
        started.append(HastyServer(*arguments, log=log, constants=constants))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()


def _children(server: RunningServer) -> list[int]:
    pid = server.process.pid
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_until(wanted: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < deadline, "never came about"
        time.sleep(0.005)


def _told(server: RunningServer) -> list[str]:
    """What the server told its user, without what it said of loading and readiness."""
    lines = [line for line in server.printed.splitlines() if line.startswith("walkserve: ")]
    return [line for line in lines if not re.search(r"listening on|has loaded|: ready: ", line)]


class Asking(threading.Thread):
    """One request, asked in the background: its status and body, or what went wrong on the way."""

    def __init__(
        self, server: RunningServer, path: str = "/v1/audio/speech", accept: str = "*/*", **fields: object
    ) -> None:
        super().__init__()
        self.url, self.accept, self.fields = server.url + path, accept, fields
        self.status: int | str = ""
        self.body = b""
        self.start()

    def run(self) -> None:
        try:
            with httpx.stream(
                "POST", self.url, json=self.fields, headers={"accept": self.accept}, timeout=90
            ) as answer:
                self.status = answer.status_code
                for piece in answer.iter_raw():
                    self.body += piece
        except httpx.TransportError as error:
            self.status = type(error).__name__ if not self.status else f"{self.status}, then cut"

    @property
    def code(self) -> str:
        self.join(60)
        return msgspec.json.decode(self.body)["error"]["code"]


class Speaking(threading.Thread):
    """One request on a WebSocket, in the background: the events it was told."""

    def __init__(self, server: RunningServer, **fields: object) -> None:
        super().__init__()
        self.url, self.fields = f"ws{server.url.removeprefix('http')}/v1/stream", fields
        self.events: list[dict] = []
        self.start()

    def run(self) -> None:
        with suppress(ConnectionClosed), connect(self.url) as socket:
            socket.send(msgspec.json.encode({"type": "generate", "id": "a"} | self.fields).decode())
            while not self.events or self.events[-1]["type"] not in ("error", "done"):
                frame = socket.recv(60)
                if isinstance(frame, str):
                    self.events.append(msgspec.json.decode(frame))


def _is_running(state: dict) -> bool:
    return state["models"][0]["running"] >= 1


def _worker(state: dict, name: str) -> dict:
    return next(w for model in state["models"] for w in model["workers"] if w["name"] == name)


# --- the server is killed ------------------------------------------------------------------------------


@pytest.mark.parametrize("children", [1, 3])
def test_children_that_still_start_do_not_outlive_a_killed_server(start_server, children):
    server = start_server(*SERVE_LONG)
    _wait_until(lambda: len(_children(server)) >= children)
    started = _children(server)
    server.kill()
    _wait_until(lambda: not any(_runs(pid) for pid in started))


# --- leaving -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_loading_ends_everything_without_waiting_for_who_loads(start_server, number):
    server = start_server(*SERVE_LONG)
    _wait_until(lambda: "listening" in server.printed and len(_children(server)) == 3)
    children = _children(server)
    server.process.send_signal(number)
    assert server.process.wait(30) == 0
    assert _told(server) == []
    assert "did not leave" not in server.printed and "Traceback" not in server.printed
    assert not any(_runs(pid) for pid in children)


def test_a_client_that_never_reads_holds_up_the_end_only_until_the_deadline(start_server):
    server = start_server(*SERVE_LONG, "--drain-timeout", "0.5").wait_until_ready()
    body = msgspec.json.encode(LONG | {"stream": True})
    head = (
        "POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((urlsplit(server.url).hostname, urlsplit(server.url).port))
        client.sendall(head.encode() + body)
        server.wait_for(_is_running)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    assert "did not leave" not in server.printed and "Traceback" not in server.printed


def test_what_still_runs_at_the_deadline_is_failed_and_the_server_ends(start_server):
    server = start_server(*SERVE_LONG, "--drain-timeout", "0.5").wait_until_ready()
    whole, streamed = Asking(server, **LONG), Asking(server, **LONG, stream=True)
    server.wait_for(lambda state: state["models"][0]["running"] == 2)
    _wait_until(lambda: streamed.body)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
    assert (whole.code, whole.status) == ("unavailable", 503)
    streamed.join()
    assert streamed.status == "200, then cut"
    assert "did not leave" not in server.printed and "Traceback" not in server.printed


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_the_deadline(start_server):
    server = start_server(*SERVE_LONG, "--drain-timeout", "600").wait_until_ready()
    whole = Asking(server, **LONG)
    server.wait_for(_is_running)
    server.process.send_signal(signal.SIGTERM)
    _wait_until(lambda: "draining" in server.printed)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
    assert (whole.code, whole.status) == ("unavailable", 503)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["worker", "conductor"])
def test_who_is_stuck_holds_up_the_end_only_until_the_deadline(start_server, who):
    server = start_server(*SERVE_LONG, "--drain-timeout", "0.5", "--stuck-after", "0").wait_until_ready()
    children = _children(server)
    whole = Asking(server, **LONG)
    state = server.wait_for(_is_running)
    pid = _worker(state, "orpheus.rank0")["pid"] if who == "worker" else state["conductor_pid"]
    os.kill(pid, signal.SIGSTOP)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
    whole.join()
    assert whole.status == 503
    assert not any(_runs(pid) for pid in children)


def test_a_signal_while_a_worker_is_started_again_ends_everything(start_hasty):
    constants = {"children.RESTART_S": (3.0,)}
    server = start_hasty(*SERVE_LONG, constants=constants).wait_until_ready()
    children = _children(server)
    os.kill(_worker(server.state(), "orpheus.rank0")["pid"], signal.SIGKILL)
    _wait_until(lambda: not server.is_ready())
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
    assert time.monotonic() - began < 3 + 5
    assert not any(_runs(pid) for pid in children)


# --- somebody is stuck ---------------------------------------------------------------------------------


def test_a_worker_that_does_not_move_is_killed_and_started_again(start_server):
    server = start_server(*SERVE_LONG, "--stuck-after", "3").wait_until_ready()
    whole, streamed = Asking(server, **LONG), Asking(server, **LONG, stream=True)
    state = server.wait_for(lambda state: state["models"][0]["running"] == 2)
    _wait_until(lambda: streamed.body)
    os.kill(_worker(state, "orpheus.rank0")["pid"], signal.SIGSTOP)
    assert (whole.code, whole.status) == ("worker_lost", 503)
    streamed.join()
    assert streamed.status == "200, then cut"
    assert not server.is_ready()
    server.wait_until_ready()
    assert "orpheus.rank0 was stuck for 3 s and was killed" in server.printed
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=LONG | {"max_tokens": 70}, timeout=60)
    assert answer.status_code == 200
    assert _told(server) == []
    assert server.stop() == 0


@pytest.mark.slow
def test_a_conductor_that_does_not_move_ends_the_server_with_one_line(start_server):
    server = start_server(*SERVE_LONG, "--stuck-after", "3").wait_until_ready()
    children = _children(server)
    whole = Asking(server, **LONG)
    state = server.wait_for(_is_running)
    os.kill(state["conductor_pid"], signal.SIGSTOP)
    assert server.process.wait(30) == 1
    assert (whole.code, whole.status) == ("conductor_lost", 503)
    assert _told(server) == ["walkserve: the conductor was stuck for 3 s and was killed; the server stops"]
    assert not any(_runs(pid) for pid in children)


@pytest.mark.slow
def test_a_server_that_was_stopped_as_a_whole_takes_nobody_for_stuck(start_server):
    server = start_server(*SERVE_LONG, "--stuck-after", "2").wait_until_ready()
    everybody = [server.process.pid, *_children(server)]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=LONG | {"max_tokens": 70}, timeout=60)
    assert answer.status_code == 200
    assert server.stop() == 0
    assert "stuck" not in server.printed


# --- everything is killed ------------------------------------------------------------------------------


def test_after_a_kill_of_everything_the_next_start_leaves_nothing_behind(start_server, tmp_path, monkeypatch):
    temporary, shared = tmp_path / "temporary", Path("/dev/shm")
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    server = start_server(*SERVE_LONG).wait_until_ready()
    port = urlsplit(server.url).port
    streamed = Asking(server, **LONG, stream=True)
    _wait_until(lambda: streamed.body)
    with socket.create_connection(("127.0.0.1", port)) as uploading:
        uploading.sendall(
            b"POST /v1/generate HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
            b"content-length: 30000000\r\n\r\n--b\r\n"
            b"content-disposition: form-data; name=audio; filename=a.wav\r\n\r\n" + b"x" * 5_000_000
        )
        for pid in [server.process.pid, *_children(server)]:
            os.kill(pid, signal.SIGKILL)
        server.process.wait()
    streamed.join()
    assert streamed.status == "200, then cut"
    (left,) = shared.glob(f"walkserve-{server.process.pid}-*")  # sockets, pulses and shared memory

    again = start_server(*SERVE_LONG[:1], "--port", str(port)).wait_until_ready()
    assert not left.exists()
    answer = httpx.post(f"{again.url}/v1/audio/speech", json=LONG | {"max_tokens": 70}, timeout=60)
    assert answer.status_code == 200
    assert again.stop() == 0
    left_of_torch = [path for path in temporary.iterdir() if path.name.startswith("torchinductor_")]
    assert list(temporary.iterdir()) == left_of_torch  # a user's only one, made by its import, and empty
    assert not any(path for folder in left_of_torch for path in folder.iterdir())
    assert not list(shared.glob(f"walkserve-{again.process.pid}-*"))


# --- the conductor is killed ---------------------------------------------------------------------------


def test_without_its_conductor_a_server_tells_its_clients_and_ends_with_one_line(start_server):
    server = start_server(*SERVE_LONG).wait_until_ready()
    children = _children(server)
    whole, streamed = Asking(server, **LONG), Asking(server, **LONG, stream=True)
    state = server.wait_for(lambda state: state["models"][0]["running"] == 2)
    _wait_until(lambda: streamed.body)
    os.kill(state["conductor_pid"], signal.SIGKILL)
    assert server.process.wait(30) == 1
    assert (whole.code, whole.status) == ("conductor_lost", 503)
    streamed.join()
    assert streamed.status == "200, then cut"
    assert _told(server) == ["walkserve: the conductor ended with code -9; the server stops"]
    assert not any(_runs(pid) for pid in children)


# --- a worker cannot start, or is killed ---------------------------------------------------------------


def test_a_worker_that_never_starts_ends_a_server_that_has_served_nothing(start_server, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(GOLDEN, broken)
    for weights in broken.rglob("*.safetensors"):
        weights.write_bytes(b"no weights")
    server = start_server(f"orpheus={broken}", "--port", "0")
    assert server.process.wait(60) == 1
    (told,) = _told(server)
    assert "orpheus.rank0 cannot start" in told
    assert "Traceback" not in server.printed


def test_every_kind_of_answer_says_that_its_worker_was_lost(start_server):
    server = start_server(*SERVE_LONG, "--cache-tokens", "60000").wait_until_ready()  # room for all
    asked = {"model": "orpheus", "text": "call 5 5 1", "options": {"temperature": 0, "max_tokens": 6000}}
    whole = Asking(server, **LONG)
    raw = Asking(server, **LONG, stream=True)
    spoken = Asking(server, **LONG, stream=True, stream_format="sse")
    lines = Asking(server, "/v1/generate", "application/x-ndjson", **asked)
    events = Asking(server, "/v1/generate", "text/event-stream", **asked)
    wav = Asking(server, "/v1/generate", "audio/wav", **asked)
    said = Speaking(server, **asked)
    streams = [raw, spoken, lines, events]
    state = server.wait_for(lambda state: state["models"][0]["running"] == 7)
    _wait_until(lambda: all(each.body for each in streams) and len(said.events) > 1)

    killed = time.monotonic()
    os.kill(_worker(state, "orpheus.rank0")["pid"], signal.SIGKILL)
    assert (whole.code, whole.status) == ("worker_lost", 503)
    assert time.monotonic() - killed < 5  # on a busy machine; benchmarks/restart.py measures it
    assert not server.is_ready()
    assert (wav.code, wav.status) == ("worker_lost", 503)
    for each in (*streams, said):
        each.join(60)
    assert raw.status == "200, then cut"
    for each in (spoken, events):
        assert each.status == 200
        last = msgspec.json.decode(each.body.rpartition(b"data: ")[2])
        assert last["error"]["code"] == "worker_lost"
    last = msgspec.json.decode(lines.body.strip().split(b"\n")[-1])
    assert (lines.status, last["type"], last["error"]["code"]) == (200, "error", "worker_lost")
    assert (said.events[-1]["type"], said.events[-1]["error"]["code"]) == ("error", "worker_lost")
    server.wait_until_ready()
    assert server.stop() == 0


@pytest.mark.slow
def test_one_models_worker_costs_the_other_model_nothing(start_hasty, tmp_path):
    golden = tmp_path / "golden"
    shutil.copytree(GOLDEN, golden)
    served = ("orpheus:toy", f"orpheus:golden={golden}", "--port", "0")
    server = start_hasty(*served, constants={"children.RESTART_S": (0.0, 0.0)}).wait_until_ready()
    folder = next(Path("/dev/shm").glob(f"walkserve-{server.process.pid}-*"))
    toy = ASK | {"model": "orpheus:toy", "input": "1 2 3 4 5 6 7 8 9 0", "stream": True}
    long = LONG | {"model": "orpheus:golden"}
    alone = Asking(server, **toy)
    alone.join()

    lost = Asking(server, **long)
    state = server.wait_for(lambda state: state["models"][1]["running"] == 1)
    speaking = Asking(server, **toy)
    _wait_until(lambda: speaking.body)
    os.kill(_worker(state, "orpheus-golden.rank0")["pid"], signal.SIGKILL)
    assert (lost.code, lost.status) == ("worker_lost", 503)
    speaking.join()
    assert (speaking.status, len(speaking.body)) == (200, len(alone.body))

    # it comes back, and nothing of the dead one is left
    server.wait_until_ready()
    assert httpx.post(f"{server.url}/v1/audio/speech", json=long | {"max_tokens": 70}).status_code == 200
    assert not [path.name for path in folder.iterdir() if path.name.startswith("orpheus-golden.rank0.0")]

    # what cannot come back is given up, and the other goes on
    shutil.rmtree(golden)
    os.kill(_worker(server.state(), "orpheus-golden.rank0")["pid"], signal.SIGKILL)
    _wait_until(lambda: "not started again" in server.printed, seconds=60)
    assert httpx.post(f"{server.url}/v1/audio/speech", json=toy, timeout=60).status_code == 200
    assert httpx.post(f"{server.url}/v1/audio/speech", json=long, timeout=60).status_code == 503
    assert _told(server) == [
        "walkserve: orpheus-golden.rank0 ended with code 1;"
        " after 3 times within a minute it is not started again"
    ]
    assert server.stop() == 0
