"""Journals of a real server: whatever becomes of it, they are there, private, and agree with their plan."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
from tests.system.conftest import GOLDEN

ASK = {"model": "orpheus", "input": "call 5 5 1", "voice": "tara", "temperature": 0}


def replayed(journal: Path) -> tuple[int, str]:
    run = subprocess.run(
        [sys.executable, "-m", "walkserve", "replay", str(journal)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return run.returncode, run.stdout


def test_a_request_over_http_can_be_replayed_by_its_id(start_server, tmp_path):
    folder = tmp_path / "journals"
    server = start_server("orpheus:toy", "--port", "0", "--journal", str(folder)).wait_until_ready()
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=ASK, timeout=60)
    refused = httpx.post(f"{server.url}/v1/audio/speech", json=ASK | {"input": "x" * 4000}, timeout=60)
    assert (answer.status_code, refused.status_code) == (200, 400)
    journals = {path.stem: path for path in folder.iterdir()}
    assert set(journals) == {answer.headers["x-request-id"], refused.headers["x-request-id"]}
    assert {stat.S_IMODE(path.stat().st_mode) for path in journals.values()} == {0o600}
    code, told = replayed(journals[answer.headers["x-request-id"]])
    assert (code, told.splitlines()[-1]) == (0, "The plan agrees with the journal: 12 lines, 3 Walks.")
    assert f"{answer.headers['x-usage-output-tokens']} output tokens" in told
    code, told = replayed(journals[refused.headers["x-request-id"]])
    assert code == 0 and "failed: this is" in told
    assert server.stop() == 0


def test_of_a_server_that_was_killed_there_is_what_had_happened(start_server, tmp_path):
    folder = tmp_path / "journals"
    server = start_server(f"orpheus={GOLDEN}", "--port", "0", "--journal", str(folder)).wait_until_ready()
    ask = ASK | {"stream": True, "response_format": "pcm", "max_tokens": 30_000}
    writes_the_journal = server.state()["conductor_pid"]
    with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=ask, timeout=60) as answer:
        heard = answer.iter_raw()  # which is kept: let go, it would end the request
        next(heard)
        os.kill(writes_the_journal, signal.SIGKILL)  # first, lest it sees workers go and ends the request
        server.kill()
    (journal,) = folder.iterdir()
    code, told = replayed(journal)
    assert code == 0
    assert re.match(
        r"The plan agrees with the journal as far as that goes "
        r"\((after line \d+ nothing was written|line \d+ is torn off in the middle)\)",
        told.splitlines()[-1],
    ), told
    assert "writing, Walk 0" in told


def test_a_folder_that_cannot_be_written_to_stops_the_server_before_it_starts(start_server, tmp_path):
    (tmp_path / "file").write_text("")
    server = start_server("orpheus:toy", "--port", "0", "--journal", str(tmp_path / "file" / "below"))
    assert server.process.wait(60) == 2
    assert "no journal can be written to" in server.printed
