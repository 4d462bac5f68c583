"""Log lines: one format in every process, for people or as JSON, each with its request's id."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOGGED = """
import logging, sys, warnings
from walkserve.logs import REQUEST_ID, about, start_logging
assert "msgspec" not in sys.modules
start_logging("speaker.rank0", "info", sys.argv[1])
log = logging.getLogger("walkserve.somewhere")
log.debug("not this")
log.info("two\\nlines of %s", "ünicode")
log.warning("cut", extra=about("req-1", status=503))
REQUEST_ID.set("req-2")
log.error("on its behalf")
logging.getLogger("uvicorn.error").warning("theirs")
warnings.warn("old")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broke")
raise SystemExit if sys.argv[1] == "text" else RuntimeError("nobody caught it")
"""


def _lines(form: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", LOGGED, form], capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_text_says_time_process_logger_level_message_and_request():
    lines = _lines("text")
    assert lines[0].endswith(" speaker.rank0 walkserve.somewhere INFO two")
    assert lines[1] == "lines of ünicode"
    assert lines[2].endswith(" WARNING cut [req-1]")
    assert lines[3].endswith(" ERROR on its behalf [req-2]")
    assert lines[4].endswith(" speaker.rank0 uvicorn.error WARNING theirs [req-2]")
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_json_is_one_object_a_line_whatever_is_said():
    said = [json.loads(line) for line in _lines("json")]
    assert list(said[0]) == ["ts", "level", "logger", "process", "message"]
    assert said[0]["ts"].endswith("+00:00") and said[0]["process"] == "speaker.rank0"
    assert [(one["level"], one["message"]) for one in said[:4]] == [
        ("info", "two\nlines of ünicode"),
        ("warning", "cut"),
        ("error", "on its behalf"),
        ("warning", "theirs"),
    ]
    assert (said[1]["request_id"], said[1]["status"]) == ("req-1", 503)
    assert said[2]["request_id"] == said[3]["request_id"] == "req-2"
    assert "UserWarning: old" in said[4]["message"]
    assert said[5]["exception"].endswith("ZeroDivisionError: division by zero")
    assert said[6]["level"] == "critical" and "nobody caught it" in said[6]["exception"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_told_to_the_terminal_does_not_come_between_objects(form: str):
    told = f"""
from walkserve.logs import start_logging
from walkserve.supervisor.progress import LoadingProgress, say
start_logging("http", "info", "{form}")
say("ready")
with LoadingProgress(1) as progress:
    progress.show({{("rank0", "llama"): True}})
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines()
    if form == "text":
        assert lines == ["walkserve: ready", "walkserve: rank0 has loaded llama"]
    else:
        assert [json.loads(line)["message"] for line in lines] == ["ready", "rank0 has loaded llama"]
