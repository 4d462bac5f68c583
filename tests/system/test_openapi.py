"""The running server does as its OpenAPI description says, whatever schemathesis makes of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "25")
"""Per route. More of them, by hand: ``SCHEMATHESIS_EXAMPLES=500 pytest tests/system/test_openapi.py``."""
CONFIG = """
[[operations]]
include-name = "POST /v1/generate"
# a form's text that holds a JSON object, and options of whichever model: no schema says what is in them
checks.positive_data_acceptance.enabled = false
"""


def test_no_request_is_answered_otherwise_than_the_description_says(toy_server, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{toy_server.url}/schema/openapi.json"),
            *("--max-examples", EXAMPLES, "--seed", "1"),
            *("--continue-on-failure", "--request-timeout", "30"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ
        | {
            "SCHEMATHESIS_HOOKS": "openapi_hooks",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        },
        timeout=1200 if int(EXAMPLES) > 25 else 110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested = re.search(r"Operations:\s+(\d+) selected", done.stdout)
    description = httpx.get(f"{toy_server.url}/schema/openapi.json").json()
    assert tested is not None
    assert int(tested[1]) == sum(len(item) for item in description["paths"].values())
    assert toy_server.is_ready()


def test_what_was_sent_has_left_nothing_behind(toy_server):
    """Runs after the other: whatever came, no request is open and no page is held."""
    state = toy_server.wait_for(lambda state: state["open_requests"] == 0)
    for model in state["models"]:
        for worker in model["workers"]:
            assert all(pool["reserved"] == 0 for pool in worker["pools"].values())
