"""Rollouts of V-JEPA 2-AC from a whole server that keeps its cache, against recomputing every step in full.

The server is ``walkserve serve`` in processes of its own, asked over HTTP: latents, poses and actions go in
as safetensors, imagined latents and poses come back as safetensors. What it is compared with
(``vjepa2_recompute.py``) runs the authors' loop in this process, over the same weights: engineered on the
server's own modules, and plain. Both sides are held to the same cores, have the same number of threads, and
take turns. A loop of 30 steps begins with one of 15, so that one run of it gives all horizons. Before any
time is printed, both have to have given the same: latents within 1e-5, poses to the bit.

Then 64 candidates go through a cache that has room for 16 of them; and plans are made on the toy. Prints a
table and one line of JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import load, save
from serving import Running, serving
from torch import Tensor
from torch.nn.functional import layer_norm
from vjepa2_checkpoint import FRAMES, GRID, HEADS, HIDDEN, LAYERS, TOKENS, WIDTH, make_checkpoint
from vjepa2_recompute import LEADING, WAYS, Recompute

from walk_plugin_vjepa2.toy.dots import pictures, states
from walkserve.config import worker_threads
from walkserve_sdk.nn import pack_linears

SAFETENSORS = "application/x-safetensors"
NEAR = 1e-5
FRAME, PAGE = TOKENS + LEADING, 16
PAGE_BYTES = PAGE * 2 * LAYERS * HIDDEN * 4
WORKERS = 2
"""The predictor's, and that of the host's components."""
HORIZONS = (1, 4, 8, 15, 30)
AIMS = {(1, 1, 4): 2.3, (1, 1, 8): 4.5, (1, 1, 15): 8.0, (1, 1, 30): 16.0, (4, 4, 4): 4.5}
"""Candidates, observed frames, horizon -> how many times as long the engineered loop has to take."""
WAVE, CANDIDATES, WAVES_HORIZON = 16, 64, 8
WAVES_AIM = 1.1
"""Time per candidate of all of them, of that of one wave alone."""
PLAN = {"task": "plan", "horizon": 2, "samples": 64, "iterations": 6, "topk": 8, "maxnorm": 0.075}
"""Of a plan on the toy; 2 x 6 x 64 + 2 steps of the predictor."""


@dataclass(frozen=True)
class Case:
    """One rollout: ``observed`` frames, then ``horizon`` steps of so many candidates."""

    candidates: int
    observed: int
    horizon: int

    def __str__(self) -> str:
        return f"{self.candidates} from {self.observed}, {self.horizon} steps"

    @property
    def key(self) -> tuple[int, int, int]:
        return self.candidates, self.observed, self.horizon

    @property
    def arithmetic(self) -> float:
        """Floating point operations of the recompute, of those of a cache that holds what was observed once.

        A frame's linear layers cost ``linear``, and its attention to one frame ``pair``.
        """
        linear = 2 * FRAME * LAYERS * 12 * HIDDEN**2 + 4 * TOKENS * WIDTH * HIDDEN
        pair = 4 * FRAME**2 * LAYERS * HIDDEN
        seen = [self.observed + step for step in range(self.horizon)]
        again = sum(linear * frames + pair * frames**2 for frames in seen)
        shared = sum(linear + pair * frames for frames in range(1, self.observed))
        new = sum(linear + pair * frames for frames in seen)
        return self.candidates * again / (shared + self.candidates * new)

    @property
    def pages(self) -> int:
        """A candidate's own: what was observed is everybody's, but for the page that it ends in."""
        shared = (self.observed - 1) * FRAME
        return math.ceil((shared + self.horizon * FRAME) / PAGE) - shared // PAGE


@dataclass(frozen=True)
class Time:
    """Seconds by the clock, and of processor in all processes of a side."""

    wall: float
    cpu: float

    @classmethod
    def median(cls, times: Sequence[Time]) -> Time:
        return cls(*(statistics.median(getattr(one, name) for one in times) for name in ("wall", "cpu")))


@dataclass
class Measured:
    """A case's times by way: ``"server"``, and those of ``WAYS``."""

    case: Case
    times: dict[str, list[Time]] = field(default_factory=dict)

    def add(self, way: str, time: Time) -> None:
        self.times.setdefault(way, []).append(time)

    def median(self, way: str) -> Time:
        return Time.median(self.times[way])

    def ratio(self, way: str) -> Time:
        """What another way takes, of what the server takes."""
        other, ours = self.median(way), self.median("server")
        return Time(other.wall / ours.wall, other.cpu / ours.cpu)


class Scene:
    """What is observed and what is tried: the same for both sides; a longer case begins as a shorter one."""

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        seen = torch.randn(4, TOKENS, WIDTH, generator=random)
        self.latents = layer_norm(seen, (WIDTH,))
        self.goal = layer_norm(torch.randn(TOKENS, WIDTH, generator=random), (WIDTH,))
        self.states = 0.3 * torch.randn(4, 7, generator=random)
        self.states[:, 6] = torch.rand(4, generator=random)
        self.past_actions = self._actions(random, 3)
        self.actions = self._actions(random, CANDIDATES, FRAMES)

    @staticmethod
    def _actions(random: torch.Generator, *size: int) -> Tensor:
        return 0.05 * torch.randn(*size, 7, generator=random)

    def observed(self, frames: int) -> dict[str, Tensor]:
        return {
            "latents": self.latents[:frames],
            "states": self.states[:frames],
            "past_actions": self.past_actions[: frames - 1],
        }

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """Of a request."""
        return self.observed(case.observed) | {"actions": self.tried(case)}

    def tried(self, case: Case) -> Tensor:
        return self.actions[: case.candidates, : case.horizon]


class Server:
    """A running server."""

    def __init__(self, running: Running, model: str) -> None:
        self.cpu_s = running.cpu_s
        self._model = model
        self._client = httpx.Client(base_url=running.url, timeout=None)

    def ask(
        self, tensors: Mapping[str, Tensor], outputs: tuple[str, ...], options: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Send tensors, have tensors."""
        answer = self._client.post(
            "/v1/generate",
            headers={"accept": SAFETENSORS},
            data={"model": self._model, "outputs": list(outputs), "options": json.dumps(options)},
            files=[("tensor", save({name: one.contiguous() for name, one in tensors.items()}))],
        )
        if answer.status_code != 200:
            raise RuntimeError(answer.text)
        return load(answer.content)

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        text = self._client.get("/metrics").text
        found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        if not found:
            raise RuntimeError(f"/metrics has no {name}")
        return sum(map(float, found))

    def timed(self, ask: Callable[[], Any]) -> tuple[Any, Time]:
        """What came, and how long it took from writing the request to having read the answer."""
        cpu, began = self.cpu_s(), time.perf_counter()
        answer = ask()
        return answer, Time(time.perf_counter() - began, self.cpu_s() - cpu)


class Contest:
    """The server and the recompute on the same rollouts, in turns.

    Args:
        plain: Steps that the plain loop is run for at most.
    """

    def __init__(self, server: Server, loops: Mapping[str, Recompute], *, plain: int) -> None:
        self._server = server
        self._loops = loops
        self._plain = plain
        self._scene = Scene()
        self._answers: dict[tuple[int, int, int], dict[str, Tensor]] = {}
        self.measured: dict[tuple[int, int, int], Measured] = {}
        self.most_apart = 0.0

    def hold(self, candidates: int, observed: int, horizons: Sequence[int]) -> None:
        """One run of each loop up to the longest of these horizons, between runs of the server at each."""
        cases = [Case(candidates, observed, horizon) for horizon in horizons]
        self._ask(cases)
        for way in WAYS:
            self._loop(way, [each for each in cases if way != "plain" or each.horizon <= self._plain])
            self._ask(cases)

    def _ask(self, cases: Sequence[Case]) -> None:
        for case in cases:
            tensors = self._scene.tensors(case)
            if case.key not in self._answers:
                self._rollout(tensors)  # not timed: its memory is touched for the first time
            self._answers[case.key], took = self._server.timed(lambda tensors=tensors: self._rollout(tensors))
            self._note(case, "server", took)

    def _rollout(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._server.ask(tensors, ("latents", "poses"), {})

    def _loop(self, way: str, cases: Sequence[Case]) -> None:
        longest = cases[-1]
        since = time.perf_counter(), time.process_time()
        after: list[Time] = []
        latents, poses = self._loops[way].roll_out(
            way,
            *self._scene.observed(longest.observed).values(),
            self._scene.tried(longest),
            on_step=lambda: after.append(
                Time(time.perf_counter() - since[0], time.process_time() - since[1])
            ),
        )
        for case in cases:
            self._check(case, latents[:, : case.horizon], poses[:, : case.horizon])
            self._note(case, way, after[case.horizon - 1])

    def _check(self, case: Case, latents: Tensor, poses: Tensor) -> None:
        answer = self._answers[case.key]
        assert torch.equal(answer["poses"], poses), f"{case}: the poses are others"
        apart = float((answer["latents"] - latents).abs().max())
        assert apart <= NEAR, f"{case}: the latents are {apart:.1e} apart"
        self.most_apart = max(self.most_apart, apart)

    def _note(self, case: Case, way: str, took: Time) -> None:
        self.measured.setdefault(case.key, Measured(case)).add(way, took)
        print(f"{case} {way}: {took.wall:.2f} s, {took.cpu:.2f} of CPU", file=sys.stderr)


def measure_waves(server: Server, loop: Recompute, rounds: int) -> dict[str, float]:
    """Many candidates in a cache that has room for ``WAVE``, against as many as fit.

    A request's energies and poses come back; its latents, half a gigabyte, stay where they are. One
    candidate of the first wave and one of the last are recomputed.
    """
    scene, case = Scene(), Case(CANDIDATES, 1, WAVES_HORIZON)
    observed, tried = scene.observed(1), scene.tried(case)
    goal = {"goal_latents": scene.goal}

    def ask(first: int, count: int) -> dict[str, Tensor]:
        tensors = observed | goal | {"actions": tried[first : first + count]}
        return server.ask(tensors, ("poses", "energies"), {})

    ask(0, WAVE)
    alone: list[Time] = []
    together: list[Time] = []
    for turn in range(rounds):
        first = turn * WAVE % CANDIDATES
        wave, took = server.timed(lambda first=first: ask(first, WAVE))
        alone.append(took)
        every, took = server.timed(lambda: ask(0, CANDIDATES))
        together.append(took)
        _same(wave, {name: each[first : first + WAVE] for name, each in every.items()})
        print(f"waves: {alone[-1].wall:.2f} s, then {took.wall:.2f}", file=sys.stderr)
    ends = [0, CANDIDATES - 1]
    latents, poses = loop.roll_out("engineered", *observed.values(), tried[ends])
    energies = (latents[:, -1] - scene.goal).abs().mean(dim=(1, 2))
    _same({"poses": poses, "energies": energies}, {name: each[ends] for name, each in every.items()})
    one, many = (Time.median(each) for each in (alone, together))
    share = CANDIDATES / WAVE
    return {
        "pool_pages": server.metric("walkserve_cache_pages"),
        "most_pages": server.metric("walkserve_cache_pages_held_most"),
        "of_a_wave_s": one.wall / WAVE,
        "of_all_s": many.wall / CANDIDATES,
        "ratio": many.wall / one.wall / share,
        "cpu_ratio": many.cpu / one.cpu / share,
    }


def _same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert torch.equal(one["poses"], other["poses"]), "the poses are others"
    apart = float((one["energies"] - other["energies"]).abs().max())
    assert apart <= NEAR, f"the energies are {apart:.1e} apart"


def measure_plans(server: Server, plans: int) -> dict[int, float]:
    """Requests at once -> plans per second: the toy's planner, between pictures."""
    random = torch.Generator().manual_seed(0)
    seen = states(2 * plans, random)
    frames = (255 * pictures(seen)).round().to(torch.uint8).permute(0, 2, 3, 1)

    def plan(number: int) -> None:
        here, there = 2 * number, 2 * number + 1
        tensors = {"frames": frames[here:there], "states": seen[here:there], "goal_frame": frames[there]}
        server.ask(tensors, ("plan",), PLAN | {"seed": number})

    rates: dict[int, float] = {}
    for at_once in (1, 4):
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(plan, range(at_once)))
            began = time.perf_counter()
            list(threads.map(plan, range(plans)))
            rates[at_once] = plans / (time.perf_counter() - began)
    return rates


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Everything."""
    cores = set(sorted(os.sched_getaffinity(0))[: asked.cores])
    os.sched_setaffinity(0, cores)  # of this process and all that it starts
    torch.set_num_threads(worker_threads(len(cores), WORKERS))
    with tempfile.TemporaryDirectory() as folder:
        plain = make_checkpoint(Path(folder))
        packed = copy.deepcopy(plain)
        pack_linears(packed)  # as the server has it
        sizes = {"heads": HEADS, "grid": GRID, "frames": FRAMES}
        loops = {"engineered": Recompute(packed, **sizes), "plain": Recompute(plain, **sizes)}
        pages = WAVE * Case(1, 1, WAVES_HORIZON).pages
        with serving(f"vjepa2-ac:bench={folder}", "--cache-tokens", str(pages * PAGE)) as running:
            server = Server(running, "vjepa2-ac:bench")
            contest = Contest(server, loops, plain=asked.plain)
            for longest in asked.loops:
                contest.hold(1, 1, _up_to(longest))
            contest.hold(4, 1, _up_to(asked.four))
            for _ in range(asked.shared):
                contest.hold(4, 4, (4,))
            waves = measure_waves(server, loops["engineered"], asked.waves) if asked.waves else None
    with serving("vjepa2-ac:toy") as running:
        server = Server(running, "vjepa2-ac:toy")
        plans = measure_plans(server, asked.plans)
    return {"contest": contest, "waves": waves, "plans": plans}


def _up_to(longest: int) -> tuple[int, ...]:
    return tuple(horizon for horizon in HORIZONS if horizon <= longest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cores", type=int, default=2, help="cores each side has")
    parser.add_argument(
        "--loops", type=int, nargs="+", default=[30, 8, 8], help="steps of each run with one candidate"
    )
    parser.add_argument("--plain", type=int, default=15, help="steps of the plain loop at most")
    parser.add_argument("--four", type=int, default=8, help="steps with four candidates of one frame")
    parser.add_argument("--shared", type=int, default=1, help="runs with four candidates of four frames")
    parser.add_argument("--waves", type=int, default=2, help="runs in a cache that is too small")
    parser.add_argument(
        "--plans", type=int, default=24, help="plans with one request, and with four, at once"
    )
    parser.add_argument("--quick", action="store_true", help="horizons 1 and 4, no waves, four plans")
    asked = parser.parse_args()
    if asked.quick:
        asked.loops, asked.four, asked.shared, asked.waves, asked.plans = [4], 4, 1, 0, 4
    found = measure(asked)
    _print(found)
    print(json.dumps(_told(asked, found)))


def _print(found: Mapping[str, Any]) -> None:
    contest: Contest = found["contest"]
    columns = (
        "server s",
        "CPU s",
        *(f"{way} s" for way in WAYS),
        "engineered",
        "by CPU",
        "plain",
        "arithmetic",
    )
    print(f"{'':<26}" + "".join(f"{each:>13}" for each in columns) + f"{'aim':>7}{'pages':>7}{'MiB':>7}")
    for one in contest.measured.values():
        ours, ratio = one.median("server"), one.ratio("engineered")
        plain = one.ratio("plain").wall if "plain" in one.times else None
        seconds = (ours.wall, ours.cpu, *(one.median(way).wall if way in one.times else None for way in WAYS))
        factors = (ratio.wall, ratio.cpu, plain, one.case.arithmetic)
        aim = AIMS.get(one.case.key)
        print(
            f"{one.case!s:<26}"
            + "".join(f"{'' if each is None else f'{each:.2f}':>13}" for each in seconds)
            + "".join(f"{'' if each is None else f'{each:.2f}x':>13}" for each in factors)
            + f"{'' if aim is None else f'{aim:g}x':>7}{one.case.pages:>7}"
            + f"{one.case.pages * PAGE_BYTES / 2**20:>7.1f}"
        )
    print(f"poses equal, latents at most {contest.most_apart:.1e} apart; pages and MiB are of one candidate")
    if (waves := found["waves"]) is not None:
        print(
            f"{CANDIDATES} candidates, {WAVES_HORIZON} steps, in a cache for {WAVE}: a candidate takes "
            f"{waves['of_all_s']:.3f} s, of {WAVE} alone {waves['of_a_wave_s']:.3f}: {waves['ratio']:.2f}x, "
            f"by CPU {waves['cpu_ratio']:.2f}x, aim {WAVES_AIM:g}x; at most {waves['most_pages']:.0f} of "
            f"{waves['pool_pages']:.0f} pages"
        )
    for at_once, rate in found["plans"].items():
        print(f"plans on the toy, {at_once} at once: {rate:.2f} a second")


def _told(asked: argparse.Namespace, found: Mapping[str, Any]) -> dict[str, Any]:
    contest: Contest = found["contest"]
    cases = [
        {
            "candidates": one.case.candidates,
            "observed": one.case.observed,
            "horizon": one.case.horizon,
            "pages": one.case.pages,
            "arithmetic": one.case.arithmetic,
            "aim": AIMS.get(one.case.key),
            "runs": {way: len(times) for way, times in one.times.items()},
            "wall_s": {way: one.median(way).wall for way in one.times},
            "cpu_s": {way: one.median(way).cpu for way in one.times},
            "ratios": {way: one.ratio(way).wall for way in WAYS if way in one.times},
            "cpu_ratios": {way: one.ratio(way).cpu for way in WAYS if way in one.times},
        }
        for one in contest.measured.values()
    ]
    told = {
        "benchmark": "vjepa2",
        "cores": asked.cores,
        "threads": torch.get_num_threads(),
        "most_apart": contest.most_apart,
        "cases": cases,
        "waves": found["waves"],
        "plans_per_s": found["plans"],
    }
    rounded: dict[str, Any] = json.loads(
        json.dumps(told), parse_float=lambda text: float(f"{float(text):.4g}")
    )
    return rounded


if __name__ == "__main__":
    main()
