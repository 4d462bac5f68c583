"""The life of a real server: start, readiness, leaving, and what is left behind."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

ASK = {"model": "orpheus", "input": "call 5 5 1", "voice": "tara", "temperature": 0}
LONG = ASK | {"max_tokens": 30_000}  # of the golden checkpoint: it goes on until it runs out of tokens
SERVE_LONG = (f"orpheus={Path(__file__).parents[2] / 'plugins/orpheus/tests/data/golden'}", "--port", "0")


def _run_folders() -> set[Path]:
    return set(Path("/dev/shm").glob("walkserve-*"))


def _is_idle(state: dict) -> bool:
    model = state["models"][0]
    return model["running"] == model["waiting"] == 0 and all(
        pool["reserved"] == 0 for worker in model["workers"] for pool in worker["pools"].values()
    )


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def test_the_http_process_and_the_conductor_never_load_torch_and_stay_small(toy_server):
    httpx.post(f"{toy_server.url}/v1/audio/speech", json=ASK, timeout=60).raise_for_status()
    state = toy_server.state()
    for pid in (state["http_pid"], state["conductor_pid"]):
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
        assert _resident_mb(pid) < 150


def test_the_server_tells_what_runs_where(toy_server):
    state = toy_server.state()
    assert state["phase"] == "ready"
    (model,) = state["models"]
    workers = {worker["name"]: worker for worker in model["workers"]}
    assert set(workers) == {"orpheus-toy.host", "orpheus-toy.rank0"}
    assert set(workers["orpheus-toy.host"]["components"]) == {"tokenizer", "snac"}
    assert set(workers["orpheus-toy.rank0"]["components"]) == {"llama"}
    pids = {state["http_pid"], state["conductor_pid"], *(worker["pid"] for worker in workers.values())}
    assert len(pids) == 4
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert {"walkserve", "torch", "python"} <= set(state["versions"])
    assert httpx.get(f"{toy_server.url}/health").status_code == 200


def test_a_client_that_leaves_a_stream_frees_everything(golden_server):
    with httpx.stream(
        "POST", f"{golden_server.url}/v1/audio/speech", json=LONG | {"stream": True}, timeout=60
    ) as answer:
        pieces = answer.iter_raw()  # held: httpx hangs up when the iterator goes
        next(pieces)
        assert not _is_idle(golden_server.state())
    golden_server.wait_for(_is_idle)


def test_a_request_that_takes_longer_than_it_may_is_over_and_frees_everything(golden_server):
    answer = httpx.post(
        f"{golden_server.url}/v1/audio/speech", json=LONG, headers={"x-timeout-s": "0.5"}, timeout=60
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    golden_server.wait_for(_is_idle)


def test_a_stream_that_takes_longer_than_it_may_is_cut_and_frees_everything(golden_server):
    heard = 0
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream(
            "POST",
            f"{golden_server.url}/v1/audio/speech",
            json=LONG | {"stream": True},
            headers={"x-timeout-s": "2"},
            timeout=60,
        ) as stream,
    ):
        for piece in stream.iter_raw():
            heard += len(piece)
    assert heard > 0
    golden_server.wait_for(_is_idle)


def test_a_client_that_leaves_before_its_whole_answer_frees_everything(golden_server):
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{golden_server.url}/v1/audio/speech", json=LONG, timeout=httpx.Timeout(30, read=0.3))
    golden_server.wait_for(_is_idle)


def test_a_taken_port_is_an_error_before_anything_starts(start_server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = start_server("orpheus:toy", "--port", str(taken.getsockname()[1]))
        assert server.process.wait(30) == 2
    assert "cannot listen" in server.printed and "choose another --port" in server.printed
    assert "Traceback" not in server.printed


@pytest.mark.parametrize("host", ["203.0.113.7", "nowhere.invalid", "no..name"])
def test_a_host_that_is_not_this_machines_is_told_apart_from_a_taken_port(start_server, host):
    server = start_server("orpheus:toy", "--host", host, "--port", "0")
    assert server.process.wait(30) == 2
    (line,) = server.printed.splitlines()
    assert line.startswith(f"walkserve: cannot listen on {host}:0: ")
    assert line.endswith("; choose another --host")


def test_the_first_interrupt_finishes_what_runs_and_leaves_nothing_behind(start_server):
    server = start_server(*SERVE_LONG).wait_until_ready()
    pids = [server.state()["conductor_pid"], *(w["pid"] for w in server.state()["models"][0]["workers"])]
    answers: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: answers.append(
            httpx.post(f"{server.url}/v1/audio/speech", json=LONG | {"max_tokens": 1500}, timeout=60)
        )
    )
    thread.start()
    server.wait_for(lambda state: state["models"][0]["running"] == 1)
    server.interrupt()
    server.wait_for(lambda state: state["phase"] == "draining")  # a signal may come after the next request
    refused = httpx.post(f"{server.url}/v1/audio/speech", json=ASK, timeout=30)
    thread.join()
    assert answers[0].status_code == 200
    assert refused.status_code == 503
    assert server.process.wait(30) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not [folder for folder in _run_folders() if f"-{server.process.pid}-" in folder.name]


def test_the_second_interrupt_stops_at_once_and_tells_who_waits(start_server):
    server = start_server(*SERVE_LONG).wait_until_ready()
    answers: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{server.url}/v1/audio/speech", json=LONG, timeout=60))
    )
    thread.start()
    server.wait_for(lambda state: state["models"][0]["running"] == 1)
    server.interrupt()
    server.wait_for(lambda state: state["phase"] == "draining")
    server.interrupt()
    assert server.process.wait(30) == 0
    thread.join()
    assert answers[0].status_code == 503
    assert "did not leave" not in server.printed


@pytest.mark.slow
def test_children_do_not_outlive_a_killed_server_and_the_next_start_cleans_up(start_server):
    server = start_server("orpheus:toy", "--port", "0").wait_until_ready()
    state = server.state()
    pids = [state["conductor_pid"], *(worker["pid"] for worker in state["models"][0]["workers"])]
    server.kill()
    deadline = time.monotonic() + 10
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline, "children are still there"
        time.sleep(0.05)
    left = [folder for folder in _run_folders() if f"-{server.process.pid}-" in folder.name]
    assert left
    again = start_server("orpheus:toy", "--port", "0").wait_until_ready()
    assert not any(folder.exists() for folder in left)
    assert again.stop() == 0


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_worker_costs_only_what_it_held_and_comes_back(start_server):
    server = start_server(*SERVE_LONG).wait_until_ready()
    worker = next(w for w in server.state()["models"][0]["workers"] if "llama" in w["components"])
    answers: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{server.url}/v1/audio/speech", json=LONG, timeout=60))
    )
    thread.start()
    server.wait_for(lambda state: state["models"][0]["running"] == 1)
    os.kill(worker["pid"], signal.SIGKILL)
    thread.join(30)
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "worker_lost"
    assert not server.is_ready()
    server.wait_until_ready()
    again = httpx.post(f"{server.url}/v1/audio/speech", json=ASK | {"max_tokens": 70}, timeout=60)
    assert again.status_code == 200
    assert server.stop() == 0


def test_two_ranks_speak_as_one(start_server, toy_server, tmp_path):
    placement = tmp_path / "placement.yaml"
    placement.write_text(
        "models:\n"
        "  orpheus:\n"
        "    - {components: [llama], ranks: [0]}\n"
        "    - {components: [snac], ranks: [1]}\n"
    )
    server = start_server("orpheus:toy", "--port", "0", "--placement", str(placement)).wait_until_ready()
    workers = {worker["name"]: worker for worker in server.state()["models"][0]["workers"]}
    assert set(workers["orpheus-toy.rank0"]["components"]) == {"llama"}
    assert set(workers["orpheus-toy.rank1"]["components"]) == {"snac"}
    assert workers["orpheus-toy.rank0"]["pid"] != workers["orpheus-toy.rank1"]["pid"]
    asked = ASK | {"temperature": 0.6, "seed": 5, "response_format": "pcm"}
    one, two = (
        httpx.post(f"{each.url}/v1/audio/speech", json=asked, timeout=60) for each in (toy_server, server)
    )
    assert one.headers["x-usage-output-tokens"] == two.headers["x-usage-output-tokens"]
    first, second = (np.frombuffer(answer.content, "<i2").astype(int) for answer in (one, two))
    assert len(first) == len(second) > 0
    assert np.abs(first - second).max() <= 1
    assert server.stop() == 0
