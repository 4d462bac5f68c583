"""Routes of a plugin in a real server: asked in every way, left in the middle, and broken or in the way."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.families import trial
from tests.system.conftest import RunningServer
from tests.system.test_openapi import EXAMPLES, SHORT
from websockets.asyncio.client import connect

ASK = {"model": "trial", "text": "on and on", "max_tokens": 8, "seed": 4}
HOOK = """
from msgspec import Struct
from walkserve_sdk.hooks import hookimpl
from walkserve_sdk.serving import Route

class Body(Struct):
    text: str

async def handle(exchange): ...

@hookimpl
def walkserve_extend_app():
    return [Route(path="/v1/trials", surface="trials", summary="Mine", handle=handle, fields=Body,
                  answer=Body, example={"text": "x"}, example_answer={"text": "x"})]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("extended")
    environ = {"PYTHONPATH": trial.install(folder / "site")}
    add(folder / "site", "bad", "import not_there\n")
    server = RunningServer("trial", "--port", "0", log=folder / "log", environ=environ)
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed


def add(site: Path, name: str, source: str) -> None:
    """One more distribution, with an extension and nothing else."""
    info = site / f"walk_plugin_{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: walk-plugin-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[walkserve]\n{name} = walk_plugin_{name}\n")
    (site / f"walk_plugin_{name}.py").write_text(source)


def post(server: RunningServer, **more) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/trials", timeout=60, **more)


def reserved(state: dict) -> dict[str, int]:
    """Pages that are held, by component."""
    workers = [worker for model in state["models"] for worker in model["workers"]]
    return {name: pool["reserved"] for worker in workers for name, pool in worker["pools"].items()}


def test_json_a_form_bytes_events_and_a_socket_tell_the_same_words(server):
    whole = post(server, json=ASK)
    assert whole.status_code == 200
    assert whole.headers["x-seed"] == "4" and int(whole.headers["x-usage-output-tokens"]) == 8
    words = whole.json()["words"]
    assert words and whole.json()["note_bytes"] == 0
    form = {name: (None, str(value)) for name, value in ASK.items()} | {"note": ("note.bin", b"\xff" * 100)}
    assert post(server, files=form).json() == whole.json() | {"note_bytes": 100}
    assert post(server, json=ASK, headers={"accept": "text/plain"}).text == words
    events = post(server, json=ASK, headers={"accept": "text/event-stream"})
    told = [json.loads(block.removeprefix("data: ")) for block in events.text.split("\n\n")[:-1]]
    assert "".join(each["text"] for each in told) == words

    async def talk() -> list[dict]:
        async with connect(server.url.replace("http", "ws") + "/v1/trials/talk") as socket:
            await socket.send(json.dumps({"type": "say", "model": "trial", "text": "on", "max_tokens": 8}))
            heard = [json.loads(await socket.recv())]
            await socket.send(json.dumps({"type": "say", "model": "nobody", "text": "on"}))
            while heard[-1]["type"] == "word":
                heard.append(json.loads(await socket.recv()))
            return heard

    *some, refused = asyncio.run(asyncio.wait_for(talk(), 30))
    assert some and (refused["type"], refused["error"]["code"]) == ("error", "model_not_found")


def test_a_client_that_leaves_before_the_answer_frees_everything(server):
    slow = ASK | {"max_tokens": 400, "turn_ms": 50}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/trials", json=slow, timeout=0.5)
    server.wait_for(lambda state: state["open_requests"] == 0 and not any(reserved(state).values()))
    assert reserved(server.state()) == {"writer": 0}


def test_a_broken_extension_is_told_at_the_start_and_left_out(server):
    assert re.search(r"an extension is broken.*bad \(walk-plugin-bad 1.0\) failed to import", server.printed)
    listed = httpx.get(f"{server.url}/v1/models/trial").json()["surfaces"]
    assert listed == {"trials": ["POST /v1/trials", "WS /v1/trials/talk"]}


def refused(site: Path, *arguments: str) -> str:
    """What a server says that does not start."""
    environ = os.environ | {"PYTHONPATH": trial.install(site / "trial") + os.pathsep + str(site)}
    command = [sys.executable, "-m", "walkserve", "serve", "trial", "--port", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode != 0
    return " ".join(done.stderr.split())


def test_a_broken_extension_keeps_a_strict_server_from_starting(tmp_path):
    add(tmp_path, "bad", "import not_there\n")
    assert "bad (walk-plugin-bad 1.0) failed to import" in refused(tmp_path, "--strict")


def test_two_extensions_that_add_one_path_keep_a_server_from_starting(tmp_path):
    add(tmp_path, "rival", HOOK)
    said = refused(tmp_path)
    assert (
        "walk-plugin-rival 1.0 adds POST /v1/trials" in said and "walk-plugin-trial 0.0.0 adds POST" in said
    )


@pytest.mark.slow
def test_an_extension_that_may_not_be_loaded_is_in_nobodys_way(tmp_path):
    environ = {"PYTHONPATH": trial.install(tmp_path / "site")}
    add(tmp_path / "site", "rival", HOOK)
    arguments = ("trial", "--port", "0", "--plugin", "walk-plugin-trial")
    server = RunningServer(*arguments, log=tmp_path / "log", environ=environ)
    try:
        server.wait_until_ready()
        assert post(server, json=ASK).json()["words"]
    finally:
        server.stop()


def test_the_routes_do_as_their_description_says(server, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/schema/openapi.json"),
            *("--include-path", "/v1/trials", "--max-examples", EXAMPLES, "--seed", "1"),
            *SHORT,
            *("--continue-on-failure", "--request-timeout", "30"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ
        | {
            "SCHEMATHESIS_HOOKS": "trial_hooks",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        },
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 selected" in done.stdout
    server.wait_for(lambda state: state["open_requests"] == 0)
