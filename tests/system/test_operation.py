"""A server as its operator runs it: settings from three sides, keys, limits, logs, two of one family."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.system.conftest import GOLDEN, RunningServer

KEY = {"authorization": "Bearer sesame"}
ASK = {"model": "orpheus", "input": "call 5 5 1", "voice": "tara", "temperature": 0}
PAGE = "https://app.example.org"


class KeyedServer(RunningServer):
    """One that answers only who has the key."""

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", headers=KEY, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def state(self) -> dict:
        return httpx.get(f"{self.url}/v1/server", headers=KEY, timeout=10).json()

    def lines(self) -> list[dict]:
        """What it logged; all but the line on stdout that says where it listens is JSON."""
        return [json.loads(line) for line in self.printed.splitlines() if "listening on" not in line]


GRUMPY = '''
from walkserve_sdk import Audio, Component, Model, Node, Output, Part, SpeechAsk, WalkGraph, track

class Grumpy(Model):
    """Beeps; breaks when it is told to."""

    beeper = Component("grumpy_parts:Beeper")
    sound = Output(Audio(rate=8_000))
    beep = WalkGraph(Node(beeper, "beep", takes="text", gives="pcm", to=sound))

    def speech_request(self, ask):
        return self.request(parts=(Part("text", ask.text),), options=ask.options)

    def warm_up(self):
        return self.request(parts=(Part("text", "a"),))

    @track
    def beeping(self, request, prepared):
        yield self.beep(text=request.one("text"))
'''
GRUMPY_PARTS = """
import torch

class Beeper:
    @classmethod
    def load(cls, checkpoint, *, device, dtype):
        return cls()

    def beep(self, batch):
        if any("break" in text for text in batch.values("text")):
            raise RuntimeError("out of temper")
        return {"pcm": [torch.zeros(80) for _ in batch.values("text")]}
"""


def install(folder: Path, name: str, **modules: str) -> None:
    """Put a plugin, as pip would leave it, into a folder for sys.path."""
    info = folder / f"walk_plugin_{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: walk-plugin-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[walkserve.models]\n{name} = {name}:{name.capitalize()}\n")
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """Settings from a file, variables and flags; a good model, one that breaks, and a broken plugin."""
    folder = tmp_path_factory.mktemp("operated")
    install(folder / "site", "grumpy", grumpy=GRUMPY, grumpy_parts=GRUMPY_PARTS)
    install(folder / "site", "gone")
    (folder / "keys").write_text("# ours\nsesame\n")
    (folder / "keys").chmod(0o600)
    (folder / "server.yaml").write_text(
        f"host: 0.0.0.0\nport: 1\napi_key_file: keys\ncors_origins: ['{PAGE}']\nmax_open_requests: 9\n"
        f"models:\n- grumpy\n- {{name: orpheus, checkpoint: {GOLDEN}}}\n"
    )
    environ = {
        "PYTHONPATH": os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")]),
        "WALKSERVE_MAX_OPEN_REQUESTS": "2",
        "WALKSERVE_LOG_FORMAT": "text",
        "WALKSERVE_PROT": "80",
    }
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        server = KeyedServer(
            *("--config", str(folder / "server.yaml"), "--port", "0", "--log-format", "json"),
            log=folder / "log",
        )
    finally:
        os.environ.clear()
        os.environ.update(before)
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed
    assert "sesame" not in server.printed


def post(server: RunningServer, fields: dict, **how) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/audio/speech", json=fields, headers=KEY, timeout=90, **how)


def test_a_broken_plugin_and_a_variable_that_is_none_are_said_and_the_server_serves(operated):
    warned = [line["message"] for line in operated.lines() if line["level"] == "warning"]
    assert any(line.startswith("a plugin is broken: gone (walk-plugin-gone 1.0): ") for line in warned)
    assert any("WALKSERVE_PROT is no setting; did you mean 'WALKSERVE_PORT'?" in line for line in warned)
    listed = httpx.get(f"{operated.url}/v1/models", headers=KEY).json()["data"]
    assert [model["id"] for model in listed] == ["grumpy", "orpheus"]


def test_who_has_no_key_gets_nothing_but_health(operated):
    for method, path in [
        ("GET", "/v1/models"),
        ("GET", "/ready"),
        ("GET", "/x"),
        ("POST", "/v1/audio/speech"),
    ]:
        answer = httpx.request(method, operated.url + path, json=ASK if method == "POST" else None)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert httpx.get(f"{operated.url}/health").json() == {"status": "alive"}


def test_a_socket_is_opened_only_to_who_has_the_key(operated):
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    url = operated.url.replace("http", "ws", 1) + "/v1/stream"
    for headers in ({}, {"authorization": "Bearer wrong"}):
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers):
            pass
        response = refused.value.response
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
        assert json.loads(response.body)["error"]["code"] == "invalid_api_key"
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(url, additional_headers=KEY, origin="https://evil.example"),
    ):
        pass
    assert refused.value.response.status_code == 403
    with connect(url, additional_headers=KEY, origin=PAGE) as socket:
        socket.send(json.dumps({"type": "generate", "id": "a", "model": "grumpy", "text": "a"}))
        started = json.loads(socket.recv())
        assert (started["type"], started["id"]) == ("started", "a")
        assert json.loads(socket.recv())["output"] == "sound"
        samples = socket.recv()
        done = json.loads(socket.recv())
    assert (len(samples), done["type"], done["finish_reason"]) == (80 * 4, "done", "stop")


def test_openais_client_sends_its_key_where_it_is_looked_for(operated):
    import openai

    fields = {"model": "grumpy", "voice": "any", "input": "a", "response_format": "wav"}
    with pytest.raises(openai.AuthenticationError, match="does not know that API key"):
        openai.OpenAI(base_url=f"{operated.url}/v1", api_key="wrong").models.list()
    client = openai.OpenAI(base_url=f"{operated.url}/v1", api_key="sesame")
    assert [model.id for model in client.models.list()] == ["grumpy", "orpheus"]
    assert client.audio.speech.create(**fields).content[:4] == b"RIFF"


def test_a_page_may_ask_before_it_has_a_key(operated):
    asks = {"origin": PAGE, "access-control-request-method": "POST"}
    answer = httpx.options(f"{operated.url}/v1/audio/speech", headers=asks)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, PAGE)
    other = httpx.options(
        f"{operated.url}/v1/audio/speech", headers=asks | {"origin": "https://evil.example"}
    )
    assert (other.status_code, "access-control-allow-origin" in other.headers) == (403, False)


def test_a_flood_is_refused_at_once_and_all_who_were_let_in_are_answered(operated):
    answers: list[httpx.Response] = []
    long = ASK | {"max_tokens": 3000}
    asking = [threading.Thread(target=lambda: answers.append(post(operated, long))) for _ in range(2)]
    for thread in asking:
        thread.start()
    operated.wait_for(lambda state: state["open_requests"] == 2)
    for _ in range(10):
        refused = post(operated, ASK)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert refused.elapsed.total_seconds() < 1
    for thread in asking:
        thread.join()
    assert [answer.status_code for answer in answers] == [200, 200]
    operated.wait_for(lambda state: state["open_requests"] == 0)
    assert post(operated, ASK | {"max_tokens": 30}).status_code == 200


def test_every_process_logs_a_requests_id_and_none_what_was_said(operated):
    secret = "break the secret word"
    answer = post(operated, {"model": "grumpy", "input": secret})
    assert answer.status_code == 500
    id = answer.headers["x-request-id"]
    said = [line for line in operated.lines() if line.get("request_id") == id]
    assert {line["process"] for line in said} >= {"http", "grumpy.rank0"}
    (worker,) = [line for line in said if line["process"] == "grumpy.rank0"]
    assert worker["level"] == "error" and "RuntimeError: out of temper" in worker["exception"]
    (access,) = [line for line in said if line["logger"] == "walkserve.http.access"]
    assert (access["path"], access["status"], access["model"]) == ("/v1/audio/speech", 500, "grumpy")
    assert access["finish_reason"] == "component_failed"
    assert post(operated, {"model": "grumpy", "input": "a secret"}).status_code == 200
    assert "secret" not in operated.printed


def test_one_line_says_how_each_request_ended(operated):
    answer = post(operated, ASK | {"max_tokens": 70})
    id = answer.headers["x-request-id"]
    deadline = time.monotonic() + 10  # it is written when the answer has gone, which may be read sooner
    while not (found := [line for line in operated.lines() if line.get("request_id") == id]):
        assert time.monotonic() < deadline, operated.printed
        time.sleep(0.02)
    (said,) = found
    assert said["bytes"] == len(answer.content)
    assert (said["finish_reason"], said["model"]) == ("length", "orpheus")
    assert said["duration_s"] > 0


def test_to_be_reachable_from_elsewhere_without_keys_is_a_warning(start_server):
    server = start_server("orpheus:toy", "--host", "0.0.0.0", "--port", "0")
    deadline = time.monotonic() + 60
    while "listening on" not in server.printed:
        assert time.monotonic() < deadline and server.process.poll() is None, server.printed
        time.sleep(0.02)
    assert "WARNING 0.0.0.0 is reachable from elsewhere, and without API keys" in server.printed


# --- two of one family ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's files as somebody's own, with the voices in another order."""
    import walk_plugin_orpheus

    folder = tmp_path_factory.mktemp("checkpoints") / "mine"
    shutil.copytree(Path(walk_plugin_orpheus.__file__).parent / "toy", folder)
    (folder / "voices.json").write_text('{"voices": ["leo"], "tags": []}')
    return folder


@pytest.fixture(scope="module", params=["names", pytest.param("file", marks=pytest.mark.slow)])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mine: Path):
    """Two checkpoints side by side, named on the command line or in a file that sets more for one of them."""
    folder = tmp_path_factory.mktemp(request.param)
    arguments = ["orpheus:toy", f"orpheus:mine={mine}"]
    if request.param == "file":
        (folder / "server.toml").write_text(
            f"""
            [[models]]
            name = "orpheus:toy"
            [[models]]
            name = "orpheus:mine"
            checkpoint = "{os.path.relpath(mine, folder)}"
            dtype = "bfloat16"
            cache_tokens = 2048
            """
        )
        arguments = ["--config", str(folder / "server.toml")]
    server = RunningServer(*arguments, "--port", "0", log=folder / "log")
    try:
        server.wait_until_ready()
        yield server, request.param
    finally:
        code = server.stop()
    assert code == 0, server.printed


def speak(server: RunningServer, model: str, voice: str | None = None) -> httpx.Response:
    fields = {"model": model, "input": "7", "temperature": 0, "seed": 1} | ({"voice": voice} if voice else {})
    return httpx.post(f"{server.url}/v1/audio/speech", json=fields, timeout=60)


def test_two_checkpoints_of_one_family_are_served_side_by_side(two):
    server, _ = two
    listed = httpx.get(f"{server.url}/v1/models").json()["data"]
    assert [(card["id"], card["family"]) for card in listed] == [
        ("orpheus:toy", "orpheus"),
        ("orpheus:mine", "orpheus"),
    ]
    ambiguous = speak(server, "orpheus")
    assert ambiguous.status_code == 404
    assert "say which: orpheus:mine, orpheus:toy" in ambiguous.json()["error"]["message"]


def test_each_of_two_speaks_with_its_own_voices(two):
    server, _ = two
    assert speak(server, "orpheus:toy", "tara").status_code == 200
    assert speak(server, "orpheus:mine", "leo").status_code == 200
    refused = speak(server, "orpheus:mine", "tara")
    assert refused.status_code == 400
    assert "this checkpoint has leo" in refused.json()["error"]["message"]


def test_each_of_two_has_workers_and_settings_of_its_own(two):
    server, how = two
    models = {model["id"]: model for model in server.state()["models"]}
    workers = {id: {worker["name"] for worker in model["workers"]} for id, model in models.items()}
    assert workers == {
        "orpheus:toy": {"orpheus-toy.host", "orpheus-toy.rank0"},
        "orpheus:mine": {"orpheus-mine.host", "orpheus-mine.rank0"},
    }
    assert models["orpheus:mine"]["checkpoint"].endswith("mine")
    llama = {
        id: next(
            worker["components"]["llama"] for worker in model["workers"] if "llama" in worker["components"]
        )
        for id, model in models.items()
    }
    assert "float32" in llama["orpheus:toy"]
    assert ("bfloat16" if how == "file" else "float32") in llama["orpheus:mine"]
    pages = {
        id: sum(pool["pages"] for worker in model["workers"] for pool in worker["pools"].values())
        for id, model in models.items()
    }
    assert (pages["orpheus:mine"] < pages["orpheus:toy"]) is (how == "file")
