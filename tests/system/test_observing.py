"""Metrics and profiles of a real server: all adds up, also of what failed, was left and was lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.system.conftest import GOLDEN, RunningServer

ASK = {"model": "orpheus", "input": "call 5 5 1", "voice": "tara", "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of its own, with profiles, so that nobody else's requests are counted."""
    log = tmp_path_factory.mktemp("observed") / "log"
    made = RunningServer("orpheus:toy", "--port", "0", "--profile", log=log)
    try:
        yield made.wait_until_ready()
    finally:
        code = made.stop()
    assert code == 0, made.printed


def _scrape(server: RunningServer) -> dict[str, float]:
    """Samples by name and labels but the model's, each label as ``name=value``."""
    found: dict[str, float] = {}
    answer = httpx.get(f"{server.url}/metrics", timeout=10)
    assert answer.status_code == 200
    for family in text_string_to_metric_families(answer.text):
        for one in family.samples:
            labels = {name: value for name, value in one.labels.items() if name not in ("model", "family")}
            found[" ".join([one.name, *(f"{name}={value}" for name, value in sorted(labels.items()))])] = (
                one.value
            )
    return found


def _speak(server: RunningServer, **fields: object) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/audio/speech", json=ASK | fields, timeout=60)


def _described(server: RunningServer, id: str) -> dict:
    return httpx.get(f"{server.url}/v1/requests/{id}", timeout=10).json()


def test_counts_add_up_before_and_after_requests_that_end_are_refused_or_are_left(server):
    before = _scrape(server)
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda n: _speak(server, seed=n), range(3)))
    assert _speak(server, voice="nobody").status_code == 400
    with httpx.stream(
        "POST", f"{server.url}/v1/audio/speech", json=ASK | {"stream": True, "input": "call 1 2 3 4 5 6 7 8"}
    ) as left:
        next(left.iter_raw())
    server.wait_for(lambda state: state["open_requests"] == 0)
    after = _scrape(server)

    def more(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    tokens = sum(int(answer.headers["x-usage-output-tokens"]) for answer in answers)
    seconds = sum((len(answer.content) - 44) / 2 / 24_000 for answer in answers)
    assert more("walkserve_requests_total outcome=done") == 3
    assert more("walkserve_requests_total outcome=cancelled") == 1
    assert more("walkserve_requests_total outcome=failed") == 0
    assert after["walkserve_http_errors_total code=invalid_request_error status=400"] == 1
    assert more("walkserve_output_tokens_total") == tokens
    assert more("walkserve_audio_speed_ratio_count output=speech") == 3
    assert more("walkserve_audio_seconds_total output=speech") >= seconds  # and what the one that left had
    llama = "component=llama method=next"
    assert more(f"walkserve_batch_rows_sum {llama}") >= tokens
    assert more(f"walkserve_batch_rows_count {llama}") < more(
        f"walkserve_batch_rows_sum {llama}"
    )  # they shared
    assert more(f"walkserve_batch_duration_seconds_count {llama}") == more(
        f"walkserve_batch_rows_count {llama}"
    )
    assert after["walkserve_cache_pages_reserved component=llama"] == 0
    assert after["walkserve_cache_pages_held component=llama"] == 0
    most = after["walkserve_cache_pages_held_most component=llama"]
    assert 0 < most <= after["walkserve_cache_pages component=llama"]
    assert after["walkserve_requests_open"] == after["walkserve_requests_running"] == 0
    assert after["process_open_fds"] > 0


def test_a_profile_adds_up(server):
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda n: _speak(server, seed=n), range(2)))
    told = _described(server, answers[0].headers["x-request-id"])
    profile = told["profile"]
    (call,) = profile["calls"]
    assert profile["complete"]
    methods = {f"{one['component']}.{one['method']}": one for one in call["methods"]}
    tokens = told["usage"]["output_tokens"]
    assert set(methods) == {"tokenizer.encode", "llama.next", "snac.decode"}
    assert tokens <= methods["llama.next"]["calls"] <= tokens + 1
    workers = {one["worker"]: one for one in call["workers"]}
    busy = sum(one["busy_us"] for one in methods.values())
    assert sum(one["cost_us"] for one in methods.values()) <= busy <= profile["took_us"] * len(workers)
    edges = {(edge["kind"], edge["name"]): edge for edge in call["edges"] if edge["kind"] != "value"}
    codes = edges["stream", "codes"]
    assert (codes["source"], codes["target"], codes["items"]) == ("llama", "snac", tokens)
    assert (
        edges["output", "speech"]["bytes"] == (len(answers[0].content) - 44) * 2
    )  # float32, 16 bits to the client
    marks = [mark["what"] for mark in call["marks"]]
    assert marks == ["submitted", "prepared", "admitted", "ended"]
    steps = workers["orpheus-toy.rank0"]["steps"]
    times = ("ready_us", "queued_us", "began_us", "ended_us")
    for ready, queued, began, ended in zip(*(steps[name] for name in times), strict=True):
        assert 0 < ready <= queued <= began <= ended <= profile["took_us"]
    llama = steps["methods"].index("llama.next")
    turns = [turn for turn, method in zip(steps["turn"], steps["method"], strict=True) if method == llama]
    assert turns == list(range(methods["llama.next"]["calls"]))
    read = [flow for one in workers.values() for flow in one["flows"] if flow["is_read"]]
    assert sum(sum(flow["items"]) for flow in read) == tokens
    assert 0 < profile["first_output_us"] <= profile["took_us"]


def test_the_command_draws_it_and_prints_it(server, tmp_path):
    id = _speak(server, stream=True, response_format="pcm").headers["x-request-id"]
    command = [sys.executable, "-m", "walkserve", "profile", id, "--url", server.url]
    drawn = subprocess.run(
        [*command, "--out", str(tmp_path / "it.svg")], capture_output=True, text=True, timeout=30
    )
    assert (drawn.returncode, drawn.stdout) == (0, f"{tmp_path / 'it.svg'}\n"), drawn.stderr
    page = ElementTree.parse(tmp_path / "it.svg").getroot()
    said = [one.text for one in page.iter("{http://www.w3.org/2000/svg}text")]
    assert {"llama", "snac", "tokenizer", "codes", "llama.next"} <= set(said)
    printed = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=30)
    assert printed.returncode == 0 and '"calls"' in printed.stdout


def test_where_profiles_are_off_a_request_has_none_and_the_command_says_how_to_have_one(toy_server):
    id = _speak(toy_server).headers["x-request-id"]
    assert _described(toy_server, id)["profile"] is None
    command = [sys.executable, "-m", "walkserve", "profile", id, "--url", toy_server.url]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert told.returncode == 1 and "serve with --profile" in told.stderr


@pytest.mark.slow
def test_a_worker_that_hangs_or_is_killed_holds_up_no_scrape(start_server):
    server = start_server(f"orpheus={GOLDEN}", "--port", "0").wait_until_ready()
    worker = next(w for w in server.state()["models"][0]["workers"] if w["name"].endswith("rank0"))
    before = _scrape(server)
    os.kill(worker["pid"], signal.SIGSTOP)  # as if it were in a very long step
    try:
        began = time.monotonic()
        hanging = _scrape(server)
        assert time.monotonic() - began < 3
    finally:
        os.kill(worker["pid"], signal.SIGCONT)
    stale = f"walkserve_worker_scrape_stale worker={worker['name']}"
    count = "walkserve_batch_rows_count component=llama method=next"
    assert (before[stale], hanging[stale]) == (0, 1)
    assert hanging[count] == before[count] > 0  # the warm-up's
    os.kill(worker["pid"], signal.SIGKILL)
    began = time.monotonic()
    _scrape(server)
    assert time.monotonic() - began < 3
    server.wait_for(
        lambda state: state["phase"] == "ready" and state["models"][0]["workers"][-1]["pid"] != worker["pid"]
    )
    after = _scrape(server)
    assert after[f"walkserve_worker_losses_total worker={worker['name']}"] == 1
    assert after[stale] == 0 and after[count] == before[count]  # counted anew, and it has warmed up anew
    assert server.stop() == 0
