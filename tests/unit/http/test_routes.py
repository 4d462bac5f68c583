"""Routes that answer from what is known: models, health, and what runs where."""

import os
import subprocess
import sys

import openai
import pytest

from walkserve import messages as m

pytestmark = pytest.mark.anyio


async def test_models_are_listed_as_openai_lists_them(stage):
    async with stage.serving(created=1234) as at:
        listed = (await at.client.get("/v1/models")).json()
        assert listed["object"] == "list"
        parrot = listed["data"][0]
        assert {name: parrot[name] for name in ("id", "object", "created", "owned_by")} == {
            "id": "parrot:toy",
            "object": "model",
            "created": 1234,
            "owned_by": "walkserve",
        }
        client = openai.AsyncOpenAI(base_url=f"{at.server.url}/v1", api_key="none")
        assert [model.id async for model in client.models.list()] == [
            "parrot:toy",
            "actor",
            "choir",
            "painter:a",
            "painter:b",
        ]
        assert (await client.models.retrieve("parrot:toy")).owned_by == "walkserve"
        await client.close()


async def test_a_model_is_found_by_its_familys_name_where_that_is_one(stage):
    async with stage.serving() as at:
        assert (await at.client.get("/v1/models/parrot")).json()["id"] == "parrot:toy"
        several = await at.client.get("/v1/models/painter")
        assert several.status_code == 404
        assert "painter:a, painter:b" in several.json()["error"]["message"]


async def test_an_unknown_model_is_a_404_that_names_one_like_it(stage):
    async with stage.serving() as at:
        error = (await at.client.get("/v1/models/parrot:tiy")).json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "did you mean 'parrot:toy'?" in error["message"]
        assert (await at.client.get("/v1/models/some/one")).json()["error"]["code"] == "model_not_found"


async def test_health_is_good_while_the_process_lives_and_ready_says_what_it_waits_for(stage):
    loading = m.ServerState("starting", "waiting for parrot:toy", 55, ())
    async with stage.serving(state=loading) as at:
        assert (await at.client.get("/health")).status_code == 200
        at.mailbox.say(m.Loading("parrot.rank0", "speaker", False))
        await at.caller.wait_until(lambda: bool(at.caller.loading))
        response = await at.client.get("/ready")
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert response.json() == {
            "ready": False,
            "phase": "starting",
            "waiting_for": "waiting for parrot:toy",
            "loading": ["speaker in parrot.rank0"],
        }
        at.mailbox.say(stage.READY)
        await at.caller.wait_until(lambda: at.caller.state.phase == "ready")
        response = await at.client.get("/ready")
        assert (response.status_code, response.json()["ready"]) == (200, True)


async def test_the_server_says_what_runs_where(stage):
    async with stage.serving() as at:
        said = (await at.client.get("/v1/server")).json()
        assert (said["phase"], said["http_pid"], said["conductor_pid"]) == ("ready", os.getpid(), 55)
        assert said["families"] == ["parrot"]
        (model,) = said["models"]
        assert model["workers"] == [
            {
                "name": "parrot.rank0",
                "state": "ready",
                "pid": 77,
                "components": {"speaker": "cpu, torch"},
                "pools": {"speaker": {"pages": 9, "reserved": 2}},
                "token_budgets": [
                    {
                        "component": "speaker",
                        "method": "read",
                        "tokens": 512,
                        "beside": [{"context": 0, "tokens": 64}, {"context": 100, "tokens": 16}],
                    },
                    {"component": "speaker", "method": "say", "tokens": 96, "beside": []},
                ],
            }
        ]
        assert {"python", "walkserve", "torch"} <= set(said["versions"])


async def test_a_port_that_is_taken_is_an_error_before_anything_starts():
    from walkserve.http.run import bind

    with bind("127.0.0.1", 0) as first, pytest.raises(OSError):
        bind("127.0.0.1", first.getsockname()[1])


async def test_the_process_of_the_application_stays_small():
    program = """
import re, sys
from walkserve.http import app, callers, run, speech
from walkserve.transport import sockets
application = app.create_app(callers.Caller(None), {})
application.openapi_schema.to_schema()
print([name for name in ("torch", "transformers") if name in sys.modules])
print(int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    heavy, megabytes = done.stdout.splitlines()
    assert heavy == "[]"
    assert int(megabytes) < 150
