"""Start a real server with the toy voice, ask it for a telephone number, and listen to what comes back.

Toy weights, real architecture: the model speaks digits as telephone tones, so a program that knows nothing
of the model can tell whether it said the right thing.
"""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import soundfile

from walk_plugin_orpheus.toy.dtmf import digits_heard

TEXT, DIGITS = "call 5 5 1", "551"
WAV = Path("demo.wav")
START_S = 120


def main() -> int:
    print("demo: starting  walkserve serve orpheus:toy --port 0", flush=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "walkserve", "serve", "orpheus:toy", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = _url(server)
        began = time.monotonic()
        _wait_until_ready(url, server)
        print(f"demo: ready at {url} after {time.monotonic() - began:.1f} s", flush=True)
        asked = {"model": "orpheus", "input": TEXT, "voice": "tara", "temperature": 0}
        print(f"demo: POST /v1/audio/speech  {json.dumps(asked)}", flush=True)
        began = time.monotonic()
        WAV.write_bytes(_post(f"{url}/v1/audio/speech", asked))
        took = time.monotonic() - began
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    samples, rate = soundfile.read(WAV, dtype="float32")
    heard = digits_heard(samples, rate)
    print(f"demo: {WAV.resolve()}: {len(samples) / rate:.2f} s of sound at {rate} Hz, made in {took:.2f} s")
    print(f"demo: asked for {TEXT!r}, digits heard in it: {heard}")
    return 0 if heard == DIGITS and server.returncode == 0 else 1


def _url(server: subprocess.Popen[str]) -> str:
    """Where it listens, from the line it prints; what it prints afterwards is passed on."""
    assert server.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    stdout = server.stdout

    def read() -> None:
        for line in stdout:
            print(line, end="", flush=True)
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            found = re.search(r"http://\S+", lines.get(timeout=0.2))
        except queue.Empty:
            continue
        if found:
            return found.group()
    raise SystemExit("demo: the server did not start; its messages are above")


def _wait_until_ready(url: str, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.1)
    raise SystemExit("demo: the server did not become ready; its messages are above")


def _post(url: str, body: dict[str, object]) -> bytes:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        data: bytes = answer.read()
        return data


if __name__ == "__main__":
    sys.exit(main())
