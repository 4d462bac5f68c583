"""The running server does as its OpenAPI description says, whatever schemathesis makes of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
from tests.system.conftest import RunningServer

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "15")
"""Per route. More of them, by hand: ``SCHEMATHESIS_EXAMPLES=500 pytest tests/system/test_openapi.py``."""
IS_LONG = int(EXAMPLES) > 15
SHORT = () if IS_LONG else ("--phases", "examples,fuzzing")
"""What of it is enough where there are few."""
CONFIG = """
[[operations]]
include-name = "POST /v1/generate"
# a form's text that holds a JSON object, and options of whichever model: no schema says what is in them
checks.positive_data_acceptance.enabled = false

[[operations]]
include-path-regex = "^/v1/(chat|images)/"
# whether an image is one, and which fields may stand together
checks.positive_data_acceptance.enabled = false
"""


def check(server: RunningServer, folder: Path, *arguments: str) -> str:
    """What schemathesis says, which finds nothing wrong."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    hooks = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/schema/openapi.json"),
            *("--max-examples", EXAMPLES, "--seed", "1"),
            *("--continue-on-failure", "--request-timeout", "30", *arguments),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"SCHEMATHESIS_HOOKS": "openapi_hooks", "PYTHONPATH": hooks},
        timeout=1200 if IS_LONG else 110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_request_is_answered_otherwise_than_the_description_says(toy_server, tmp_path):
    tested = re.search(r"Operations:\s+(\d+) selected", check(toy_server, tmp_path))
    description = httpx.get(f"{toy_server.url}/schema/openapi.json").json()
    assert tested is not None
    assert int(tested[1]) == sum(len(item) for item in description["paths"].values())
    assert toy_server.is_ready()


def test_nor_one_for_images_or_for_an_answer(easel_server, tmp_path):
    said = check(easel_server, tmp_path, "--include-path-regex", "^/v1/(chat|images)/", *SHORT)
    assert re.search(r"Operations:\s+3 selected", said)
    assert easel_server.is_ready()


def test_what_no_model_here_does_is_not_described(toy_server):
    paths = httpx.get(f"{toy_server.url}/schema/openapi.json").json()["paths"]
    assert "/v1/audio/speech" in paths
    assert not [path for path in paths if path.startswith(("/v1/chat", "/v1/images"))]


def test_what_was_sent_has_left_nothing_behind(toy_server, easel_server):
    """Runs after the others: whatever came, no request is open and no page is held."""
    for server in (toy_server, easel_server):
        state = server.wait_for(lambda state: state["open_requests"] == 0)
        for model in state["models"]:
            for worker in model["workers"]:
                assert all(pool["reserved"] == 0 for pool in worker["pools"].values())
