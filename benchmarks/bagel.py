"""Pictures and texts from a whole BAGEL server, against its authors' order of work on the same modules.

The server is ``walkserve serve`` in processes of its own, asked over HTTP. What it is compared with
(``bagel_authors.py``) runs in this process: a request at a time, and on each guided step the three velocities
one after another. Both are held to the same cores, have as many threads, and take turns. Before any time is
printed in float32 they have to have given the same: the same texts, and pictures of which no number is more
than 1 apart. In bfloat16 a sum is rounded where its kernel ends a block, and the kernel is another where a
batch has more rows: there it is told how far they are apart.

*Sampling* is from noise to latents: of the authors it is timed, of the server it is the request's time
without what its own figures say the other parts took, so that all it spends between batches counts as
sampling.

Prints tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from bagel_authors import Authors
from bagel_checkpoint import SIDE, make_checkpoint
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load
from serving import Running, serving

from walk_plugin_bagel import Bagel
from walk_plugin_bagel.schedule import make_schedule
from walkserve.config import worker_threads

SAFETENSORS = "application/x-safetensors"
WORKERS = 2
"""That of the models, and that of the host's components."""
AIM = 1.4
"""Sampling of text to image: how many times as long the authors' order has to take."""
PROMPT, EDIT, QUESTION = "A red fox in the snow", "Make it night", "What is in this picture?"
SAMPLING = {"llm.velocity", "solver.noise", "solver.step"}
PAINTED = {
    "from text": {},
    "edit": {"cfg_img_scale": 2.0, "cfg_interval": (0.0, 1.0), "cfg_renorm_type": "text_channel"},
}
"""Of either, what the application's defaults are besides those of text to image."""


@dataclass(frozen=True)
class Run:
    """What a side did with a case.

    Args:
        cpu_s: Of all its processes.
        sampling_s: From noise to latents.
        forwards: Of the velocity, in rows.
    """

    wall_s: float
    cpu_s: float
    sampling_s: float
    forwards: int


@dataclass(frozen=True)
class Texts:
    """What a side did with some requests for a text of ``tokens``, all at once.

    Args:
        first_s: When the first token was there, the median of the requests.
        rate: Tokens per second, of all requests together, from the first token of one to the last of all.
    """

    first_s: float
    rate: float
    cpu_s: float


class Tallied(Counter[str]):
    """Figures of the server by component and method; a difference of two is of what ran between them."""

    def without(self, other: Tallied) -> Tallied:
        return Tallied({name: each - other[name] for name, each in self.items() if each > other[name]})


class Server:
    """A running server."""

    def __init__(self, running: Running) -> None:
        self._cpu_s = running.cpu_s
        self._client = httpx.Client(base_url=running.url, timeout=None)
        self.busy_s = Tallied()
        """Of all pictures so far, by part."""

    def paint(self, form: list[tuple[str, Any]], options: Mapping[str, Any]) -> tuple[NDArray[np.uint8], Run]:
        """One picture."""
        before, rows = self._tallied("duration_seconds_sum"), self._tallied("rows_sum")
        cpu, began = self._cpu_s(), time.perf_counter()
        answer = self._client.post(
            "/v1/generate", headers={"accept": SAFETENSORS}, files=_form(form, options, "image")
        )
        wall_s, cpu_s = time.perf_counter() - began, self._cpu_s() - cpu
        if answer.status_code != 200:
            raise RuntimeError(answer.text)
        busy = self._tallied("duration_seconds_sum").without(before)
        self.busy_s.update(busy)
        others = sum(each for name, each in busy.items() if name not in SAMPLING)
        forwards = int(self._tallied("rows_sum").without(rows)["llm.velocity"])
        return load(answer.content)["image"], Run(wall_s, cpu_s, wall_s - others, forwards)

    def write(
        self, form: list[tuple[str, Any]], options: Mapping[str, Any], at_once: int
    ) -> tuple[list[str], Texts]:
        """Several texts."""
        with ThreadPoolExecutor(at_once) as threads:
            cpu, began = self._cpu_s(), time.perf_counter()
            asked = [threads.submit(self._write, form, options) for _ in range(at_once)]
            told = [each.result() for each in asked]
            cpu_s = self._cpu_s() - cpu
        firsts, lasts = [first for _, first, _ in told], [last for _, _, last in told]
        tokens = at_once * options["max_tokens"]
        rate = (tokens - 1) / (max(lasts) - min(firsts))
        return [text for text, _, _ in told], Texts(statistics.median(firsts) - began, rate, cpu_s)

    def _write(self, form: list[tuple[str, Any]], options: Mapping[str, Any]) -> tuple[str, float, float]:
        """A text, and when the first and the last of it came."""
        pieces: list[str] = []
        first = last = 0.0
        with self._client.stream("POST", "/v1/generate", files=_form(form, options, "text")) as answer:
            for line in answer.iter_lines():
                told = json.loads(line)
                if told["type"] == "output":
                    last = time.perf_counter()
                    first = first or last
                    pieces.append(told["text"])
                elif told["type"] not in ("started", "done"):
                    raise RuntimeError(line)
        return "".join(pieces), first, last

    def _tallied(self, what: str) -> Tallied:
        text, found = self._client.get("/metrics").text, Tallied()
        for labels, value in re.findall(rf"^walkserve_batch_{what}{{([^}}]*)}} (\S+)$", text, re.MULTILINE):
            said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            found[f"{said['component']}.{said['method']}"] = float(value)
        return found


def _form(inputs: list[tuple[str, Any]], options: Mapping[str, Any], output: str) -> list[tuple[str, Any]]:
    """A form whose inputs stay in their order."""
    fields = {"model": "bagel:bench", "outputs": output, "options": json.dumps(options)}
    return [(name, (None, value)) for name, value in (*fields.items(), *inputs)]


class Contest:
    """The server and the authors' order on the same requests, in turns."""

    def __init__(self, server: Server, authors: Authors, *, dtype: str) -> None:
        self._server = server
        self._authors = authors
        self._dtype = dtype
        self._is_rounded = dtype == "bfloat16"
        self._image = _png()
        self.runs: dict[str, dict[str, list[Run]]] = {}
        self.texts: dict[str, list[Texts]] = {}
        self.most_apart = 0
        self.texts_apart = 0

    def paint(self, case: str, *, timesteps: int, seed: int, server_first: bool) -> None:
        """One picture by each side, which have to be the same."""
        parts = [PROMPT] if case == "from text" else [self._image, EDIT]
        sides = ["server", "authors"] if server_first else ["authors", "server"]
        given = {
            side: self._by_server(parts, timesteps, seed)
            if side == "server"
            else self._by_authors(parts, PAINTED[case], timesteps, seed)
            for side in sides
        }
        pictures = [picture.astype(int) for picture, _ in given.values()]
        apart = int(np.abs(pictures[0] - pictures[1]).max())
        assert apart <= 1 or self._is_rounded, f"{case}: the pictures are {apart} apart"
        self.most_apart = max(self.most_apart, apart)
        for side, (_, run) in given.items():
            self.runs.setdefault(case, {}).setdefault(side, []).append(run)
            print(
                f"{self._dtype}, {case}, {side}: {run.wall_s:.2f} s, {run.cpu_s:.2f} of CPU, "
                f"{run.forwards} velocities",
                file=sys.stderr,
            )

    def _by_server(
        self, parts: Sequence[str | bytes], timesteps: int, seed: int
    ) -> tuple[NDArray[np.uint8], Run]:
        options = {"seed": seed, "num_timesteps": timesteps}  # the size is the checkpoint's usual one
        return self._server.paint(_inputs(parts), options)

    def _by_authors(
        self, parts: Sequence[str | bytes], more: Mapping[str, Any], timesteps: int, seed: int
    ) -> tuple[NDArray[np.uint8], Run]:
        asked = {"cfg_img_scale": 1.5, "cfg_interval": (0.4, 1.0), "cfg_renorm_type": "global"} | more
        options = replace(Bagel.Options(), num_timesteps=timesteps, **asked)
        named = ("num_timesteps", "timestep_shift", "cfg_text_scale", "cfg_img_scale", "cfg_interval")
        schedule = make_schedule(**{name: getattr(options, name) for name in named})
        cpu, began = time.process_time(), time.perf_counter()
        done = self._authors.paint(parts, size=(SIDE, SIDE), seed=seed, schedule=schedule, options=options)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        return done.pixels, Run(wall_s, cpu_s, done.sampling_s, done.forwards)

    def write(self, *, tokens: int, at_once: int) -> None:
        """Texts about an image; of the authors one, as the next would take as long again."""
        options = {"seed": 0, "max_tokens": tokens}
        texts, ours = self._server.write(_inputs([self._image, QUESTION]), options, at_once)
        came: list[float] = []
        cpu, began = time.process_time(), time.perf_counter()
        expected = self._authors.write(
            self._image, QUESTION, tokens=tokens, on_token=lambda: came.append(time.perf_counter())
        )
        cpu_s = at_once * (time.process_time() - cpu)
        assert texts == [expected] * at_once or self._is_rounded, f"the texts differ: {[expected, *texts]}"
        self.texts_apart += sum(text != expected for text in texts)
        theirs = Texts(came[0] - began, (tokens - 1) / (came[-1] - came[0]), cpu_s)
        for side, one in (("server", ours), ("authors", theirs)):
            self.texts.setdefault(f"{side}, {at_once}", []).append(one)
            print(
                f"{self._dtype}, {at_once} texts, {side}: first {one.first_s:.2f} s, {one.rate:.1f} tokens/s",
                file=sys.stderr,
            )


def _inputs(parts: Sequence[str | bytes]) -> list[tuple[str, Any]]:
    return [("text" if isinstance(part, str) else "image", part) for part in parts]


def _png() -> bytes:
    """A picture as large as the model makes them: colours that change slowly."""
    random = np.random.default_rng(0)
    small = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    file = io.BytesIO()
    small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "PNG")
    return file.getvalue()


def measure(asked: argparse.Namespace, folder: Path, dtype: str) -> tuple[Contest, Tallied]:
    """Everything in one type of numbers."""
    authors = Authors(folder, getattr(torch, dtype))
    with serving(f"bagel:bench={folder}", "--dtype", dtype) as running:
        server = Server(running)
        contest = Contest(server, authors, dtype=dtype)
        contest.write(tokens=4, at_once=1)  # not counted: its memory is touched for the first time
        contest.paint("edit", timesteps=3, seed=0, server_first=True)
        contest.runs.clear(), contest.texts.clear(), server.busy_s.clear()
        for turn in range(asked.rounds):
            contest.write(tokens=asked.tokens, at_once=1)
            contest.write(tokens=asked.tokens, at_once=8)
            for case, timesteps in (("from text", asked.timesteps), ("edit", asked.edit_timesteps)):
                contest.paint(case, timesteps=timesteps, seed=turn, server_first=turn % 2 == 0)
        return contest, server.busy_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"]
    )
    parser.add_argument("--cores", type=int, default=2, help="cores each side has")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--timesteps", type=int, default=50, help="of a picture from text")
    parser.add_argument(
        "--edit-timesteps", type=int, default=17, help="of an edit, whose steps are all alike"
    )
    parser.add_argument("--tokens", type=int, default=48, help="of a text")
    parser.add_argument("--quick", action="store_true", help="float32, 6 timesteps, 8 tokens, one round")
    asked = parser.parse_args()
    if asked.quick:
        asked.dtype, asked.rounds = ["float32"], 1
        asked.timesteps, asked.edit_timesteps, asked.tokens = 6, 3, 8
    cores = set(sorted(os.sched_getaffinity(0))[: asked.cores])
    os.sched_setaffinity(0, cores)  # of this process and all that it starts
    torch.set_num_threads(worker_threads(len(cores), WORKERS))
    told = {"benchmark": "bagel", "cores": asked.cores, "threads": torch.get_num_threads(), "aim": AIM}
    told |= {"timesteps": asked.timesteps, "edit_timesteps": asked.edit_timesteps, "tokens": asked.tokens}
    with tempfile.TemporaryDirectory() as folder:
        make_checkpoint(Path(folder))
        for dtype in asked.dtype:
            contest, busy_s = measure(asked, Path(folder), dtype)
            told[dtype] = _told(contest, busy_s)
            _print(dtype, told[dtype])
    print(json.dumps(json.loads(json.dumps(told), parse_float=lambda text: float(f"{float(text):.4g}"))))


def _told(contest: Contest, busy_s: Tallied) -> dict[str, Any]:
    """Medians of the runs, and how many times as long the authors' order took, run by run."""
    pictures = {
        case: {
            side: {name: _median(each, name) for name in ("wall_s", "cpu_s", "sampling_s", "forwards")}
            for side, each in runs.items()
        }
        | {
            "ratios": {
                name: statistics.median(
                    getattr(theirs, name) / getattr(ours, name)
                    for ours, theirs in zip(runs["server"], runs["authors"], strict=True)
                )
                for name in ("sampling_s", "wall_s", "cpu_s")
            }
        }
        for case, runs in contest.runs.items()
    }
    texts = {
        who: {name: _median(each, name) for name in ("first_s", "rate", "cpu_s")}
        for who, each in contest.texts.items()
    }
    whole = sum(busy_s.values())
    shares = {name: each / whole for name, each in busy_s.most_common()}
    apart = {"most_apart": contest.most_apart, "texts_apart": contest.texts_apart}
    return apart | {"pictures": pictures, "texts": texts, "shares": shares}


def _median(runs: Sequence[Any], name: str) -> float:
    return statistics.median(getattr(run, name) for run in runs)


def _print(dtype: str, told: Mapping[str, Any]) -> None:
    print(f"{dtype + ', pictures':<22}{'velocities':>12}{'sampling s':>12}{'whole s':>10}{'CPU s':>10}")
    for case, figures in told["pictures"].items():
        for side in ("server", "authors"):
            one = figures[side]
            print(
                f"{case + ', ' + side:<22}{one['forwards']:>12.0f}{one['sampling_s']:>12.2f}"
                f"{one['wall_s']:>10.2f}{one['cpu_s']:>10.2f}"
            )
        ratios = figures["ratios"]
        aim = f"   aim {AIM:g}x in sampling" if case == "from text" else ""
        times = f"{ratios['sampling_s']:>11.2f}x{ratios['wall_s']:>9.2f}x{ratios['cpu_s']:>9.2f}x"
        print(f"{'· times':<34}{times}{aim}")
    print(f"pictures at most {told['most_apart']} apart, {told['texts_apart']} texts; of the server's time:")
    print("; ".join(f"{name} {share:.1%}" for name, share in told["shares"].items() if share >= 0.001))
    print(f"{dtype + ', texts':<22}{'first s':>12}{'tokens/s':>12}{'CPU s':>20}")
    for who, one in told["texts"].items():
        print(f"{who:<22}{one['first_s']:>12.2f}{one['rate']:>12.1f}{one['cpu_s']:>20.2f}")


if __name__ == "__main__":
    main()
