"""Speech from a whole Orpheus server, against ``transformers.generate`` and ``snac`` on the same weights.

The server is ``walkserve serve`` in processes of its own, asked over HTTP for streamed PCM; first audio is
the first byte of samples that its client reads. The peer (``orpheus_peer.py``) runs requests one after
another, or as one padded batch. Both get the same cores and the same prompts, sample with temperature 0.6,
top-p 0.8 and repetition penalty 1.3 from fixed seeds, and write the same number of frames; they take turns,
and each figure is the best of its rounds. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from orpheus_checkpoint import FRAME_SAMPLES, RATE, SLOTS, make_checkpoint
from serving import Running, serving

from walk_plugin_orpheus.text import Tokenizer
from walkserve_sdk import Checkpoint

HERE = Path(__file__).parent
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Please call me back tomorrow at a quarter past nine.",
    "It was a bright cold day in April.",
    "All happy families are alike; each unhappy family is unhappy in its own way.",
    "Call me Ishmael.",
    "The sky above the port was the color of television.",
    "A screaming comes across the sky.",
    "In the beginning the universe was created.",
)
VOICE = "tara"
SAMPLE_BYTES = 2
AIMS = {"first_audio": 10.0, "loop": {"float32": 3.0, "bfloat16": 4.0}, "batch": 1.0}


@dataclass(frozen=True)
class Run:
    """What one side did with some requests.

    Args:
        wall_s: From the first request to the last sample.
        cpu_s: Of all its processes, meanwhile.
        first_s: When the first sample of each request was there.
        samples: Of all requests.
    """

    wall_s: float
    cpu_s: float
    first_s: list[float]
    samples: int

    @property
    def rate(self) -> float:
        """Seconds of audio per second."""
        return self.samples / RATE / self.wall_s

    @property
    def first(self) -> float:
        return statistics.median(self.first_s)

    @property
    def cpu(self) -> float:
        """Seconds of processor per second of audio."""
        return self.cpu_s / (self.samples / RATE)


def on_cores(cores: set[int]) -> Any:
    """What a child does first: stay on these."""
    return lambda: os.sched_setaffinity(0, cores)


class Ours:
    """A running server."""

    def __init__(self, running: Running, *, masked: bool) -> None:
        self._cpu_s = running.cpu_s
        self._url = running.url
        self._masked = masked

    def run(self, texts: tuple[str, ...], *, frames: int, seed: int) -> Run:
        """Ask for all of them at once."""
        cpu = self._cpu_s()
        with ThreadPoolExecutor(len(texts)) as pool, httpx.Client(timeout=None) as client:
            began = time.perf_counter()
            asked = [
                pool.submit(self._speak, client, text, frames, seed + index)
                for index, text in enumerate(texts)
            ]
            ended = [each.result() for each in asked]
            wall_s = time.perf_counter() - began
        samples = sum(size for _, size in ended) // SAMPLE_BYTES
        assert samples == len(texts) * frames * FRAME_SAMPLES, "an utterance was cut"
        return Run(wall_s, self._cpu_s() - cpu, [first - began for first, _ in ended], samples)

    def _speak(self, client: httpx.Client, text: str, frames: int, seed: int) -> tuple[float, int]:
        """When the first sample came, and how many bytes did."""
        body = {"model": "orpheus:bench", "input": text, "voice": VOICE, "response_format": "pcm"}
        body |= {"stream": True, "seed": seed, "max_tokens": SLOTS * frames, "constrain": self._masked}
        first, size = 0.0, 0
        with client.stream("POST", f"{self._url}/v1/audio/speech", json=body) as response:
            if response.status_code != 200:
                raise RuntimeError(response.read().decode())
            for piece in response.iter_raw():
                if piece and not size:
                    first = time.perf_counter()
                size += len(piece)
        return first, size


@contextlib.contextmanager
def our_server(folder: Path, asked: argparse.Namespace, cores: set[int]) -> Iterator[Ours]:
    """``walkserve serve``, ready and warm, from start to end."""
    placement = ["--placement", str(asked.placement)] if asked.placement else []
    with serving(
        f"orpheus:bench={folder}", "--dtype", asked.dtype, *placement, before=on_cores(cores)
    ) as running:
        ours = Ours(running, masked=not asked.unmasked)
        ours.run(TEXTS, frames=4, seed=0)
        yield ours


class Peer:
    """The peer's process."""

    def __init__(self, process: subprocess.Popen[str], prompts: list[list[int]]) -> None:
        self._process = process
        self._prompts = prompts

    def run(self, way: str, requests: int, *, frames: int, seed: int) -> Run:
        """``way`` is ``"loop"`` or ``"batch"``."""
        said = {"way": way, "prompts": self._prompts[:requests], "frames": frames, "seed": seed}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()
        return Run(**self.answer())

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the peer has died; its error stands above")
        return json.loads(line)


@contextlib.contextmanager
def peer(folder: Path, asked: argparse.Namespace, cores: set[int]) -> Iterator[Peer]:
    """The peer's process, warm, from start to end."""
    prompts = _prompts(folder)
    settings = {"folder": str(folder), "dtype": asked.dtype, "masked": not asked.unmasked}
    settings |= {"threads": len(cores), "prompts": prompts}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "orpheus_peer.py"), json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=on_cores(cores),
    )
    with process:  # which closes its stdin, and it ends
        one = Peer(process, prompts)
        one.answer()
        yield one


def _prompts(folder: Path) -> list[list[int]]:
    """As the server makes them."""
    tokenizer = Tokenizer.load(Checkpoint({"main": folder, "snac": folder / "snac"}), device=None, dtype=None)
    return [tokenizer.prompt(text, VOICE) for text in TEXTS]


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Run]:
    """Each way by name, the best of its rounds."""
    cores = set(sorted(os.sched_getaffinity(0))[: asked.cores])
    runs: dict[str, list[Run]] = {}
    with (
        our_server(folder, asked, cores) as ours,
        peer(folder, asked, cores) as theirs,
    ):
        for turn in range(asked.rounds):
            given = {"frames": asked.frames, "seed": 100 * turn}
            for name, run in (
                ("ours, 1", lambda given=given: ours.run(TEXTS[:1], **given)),
                ("loop, 1", lambda given=given: theirs.run("loop", 1, **given)),
                ("ours, 8", lambda given=given: ours.run(TEXTS, **given)),
                ("loop, 8", lambda given=given: theirs.run("loop", asked.loop, **given)),
                ("batch, 8", lambda given=given: theirs.run("batch", 8, **given)),
            ):
                runs.setdefault(name, []).append(run())
                print(f"{name}: {runs[name][-1].rate:.2f} audio s/s", file=sys.stderr)
    return {name: max(some, key=lambda run: run.rate) for name, some in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--unmasked", action="store_true", help="neither side masks: the whole vocabulary")
    parser.add_argument("--cores", type=int, default=2, help="cores each side has")
    parser.add_argument("--frames", type=int, default=42, help="85 ms each")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--loop", type=int, default=2, help="requests of the loop that are timed")
    parser.add_argument("--placement", type=Path, help="a placement file for the server")
    parser.add_argument("--quick", action="store_true", help="12 frames, one round")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "walkserve-benchmark-orpheus",
        help="where the checkpoint is kept, 0.7 GB",
    )
    asked = parser.parse_args()
    if asked.quick:
        asked.frames, asked.rounds, asked.loop = 12, 1, 1
    make_checkpoint(asked.folder)
    best = measure(asked, asked.folder)
    ratios = {
        "first_audio": best["loop, 1"].first / best["ours, 1"].first,
        "loop": best["ours, 8"].rate / best["loop, 8"].rate,
        "batch": best["ours, 8"].rate / best["batch, 8"].rate,
    }
    print(f"{'':<26}{'audio s/s':>11}{'first audio s':>15}{'cpu s/audio s':>15}")
    for name, run in best.items():
        print(f"{name:<26}{run.rate:>11.2f}{run.first:>15.3f}{run.cpu:>15.2f}")
    aims = AIMS | {"loop": AIMS["loop"][asked.dtype]}
    for name, ratio in ratios.items():
        print(f"{'against ' + name:<26}{ratio:>10.1f}x   aim {aims[name]:g}x")
    said = {name: {"audio_s_per_s": r.rate, "first_s": r.first, "cpu_s": r.cpu} for name, r in best.items()}
    rounded = json.loads(json.dumps(said), parse_float=lambda text: round(float(text), 3))
    print(
        json.dumps(
            {
                "benchmark": "orpheus",
                "dtype": asked.dtype,
                "masked": not asked.unmasked,
                "cores": asked.cores,
                "frames": asked.frames,
                "rounds": asked.rounds,
                "runs": rounded,
                "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()},
                "aims": aims,
            }
        )
    )


if __name__ == "__main__":
    main()
