"""The components of a checkpoint, called as a worker calls them, and whole requests made of them by hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor

from walk_plugin_bagel import Bagel
from walk_plugin_bagel.preparing import prepare
from walk_plugin_bagel.prompts import THINK_THEN_PAINT, THINK_THEN_WRITE
from walk_plugin_bagel.schedule import Schedule, make_schedule
from walk_plugin_bagel.settings import Limits, Preprocessing
from walkserve.cache.paged import PagedCache
from walkserve.engine.batch import TorchBatch
from walkserve.engine.held import Held, hold
from walkserve.engine.rows import UNCHANGED, Row
from walkserve.worker.live import Branch
from walkserve_sdk import Checkpoint
from walkserve_sdk.runtime import token_count_of

DATA = Path(__file__).parent / "data"
CASES: dict[str, Any] = json.loads((DATA / "golden.json").read_text("utf-8"))["cases"]
NAMES = {"full": "cond", "no_text": "cfg_text", "no_image": "cfg_img"}
METHODS = {
    "tokenizer": {"encode", "encode_all"},
    "pen": {"begin", "write", "finish"},
    "vit": {"look"},
    "vae": {"encode", "decode", "preview"},
    "llm": {"prefill_text", "prefill_vit", "prefill_vae", "next", "velocity"},
    "solver": {"posterior", "noise", "step"},
}


class Bench:
    """The components, and one call of one of them at a time; branches are forked by hand.

    Args:
        pages: Of the language model's cache.
    """

    def __init__(self, checkpoint: Checkpoint, *, pages: int = 800, deterministic: bool = False) -> None:
        self.deterministic = deterministic
        self.parts: dict[str, Held] = {
            name: hold(
                Bagel.spec.components[name],
                methods,
                checkpoint,
                device=torch.device("cpu"),
                dtype=torch.float32,
                pages=lambda shape, size: pages,
            )
            for name, methods in METHODS.items()
        }

    @property
    def cache(self) -> PagedCache:
        cache = self.parts["llm"].cache
        assert cache is not None
        return cache

    def branch(self) -> Branch:
        """An empty one, of the language model."""
        return Branch(self.cache.new_table())

    def call(
        self,
        call: str,
        branch: Branch | None = None,
        /,
        *,
        options: Any = None,
        keeps: bool = True,
        **values: Any,
    ) -> dict[str, Any]:
        """One row. What it gives, by name."""
        return self.rows(call, [(branch or Branch(None), values)], options=options, keeps=keeps)[0]

    @torch.inference_mode()
    def rows(
        self,
        call: str,
        asked: Sequence[tuple[Branch, Mapping[str, Any]]],
        *,
        options: Any = None,
        keeps: bool = True,
    ) -> list[dict[str, Any]]:
        """A batch of rows, each on its branch, and what they give, committed."""
        name, _, method = call.partition(".")
        held = self.parts[name]
        rows = [
            Row(
                dict(values),
                branch,
                options if options is not None else Bagel.Options(),
                key=(0, 0, "track", 0),
                tokens=_tokens(held, method, values) if held.cache is not None else 1,
                keeps=keeps,
            )
            for branch, values in asked
        ]
        tile = 4 if self.deterministic and held.cache is not None else 1
        batch = TorchBatch(held, rows, tile=tile, deterministic=self.deterministic)
        results = batch.give(held.methods[method](batch))
        for row, result in zip(rows, results, strict=True):
            if held.cache is not None and keeps:
                row.branch.table.commit(row.tokens)
            if result.state is not UNCHANGED:
                row.branch.state = result.state
            if result.stop is not None:
                result.gives = {"stopped": result.stop.reason}
        return [result.gives for result in results]


def _tokens(held: Held, method: str, values: Mapping[str, Any]) -> int:
    count = token_count_of(getattr(type(held.methods[method].__self__), method))
    return len(values["ids"]) if count is None else count(held.methods[method].__self__, **values)


class Contexts:
    """The three continuations of one request, and how they grow (the authors' rules)."""

    def __init__(self, bench: Bench, case: Mapping[str, Any], *, recorded: bool) -> None:
        self.bench = bench
        self.case = case
        self.recorded = recorded
        self.solver = Branch(None)
        self.main, self.no_text = bench.branch(), bench.branch()
        self.no_image: Branch | None = None  # as long as no image has come it is the main one
        self.size: tuple[int, int] | None = None

    def system(self, text: str) -> None:
        self._read(text)
        self.no_text = _swapped(self.no_text, self.main)

    def text(self, text: str) -> None:
        self.no_text = _swapped(self.no_text, self.main)
        self._read(text)

    def thought(self, text: str) -> None:
        self._split()
        self.bench.call("llm.prefill_text", self.main, ids=self._block(text))

    def image(self, image: np.ndarray, *, paints: bool, recorded_seed: int) -> None:
        prepared = prepare(image, _limits(self.case))
        self._split()
        if paints:
            height, width = prepared.for_vae.shape[:2]
            noise = self._noise(width, height, recorded_seed)
            pixels = torch.from_numpy(prepared.for_vae)
            latents = self.bench.call("vae.encode", pixels=pixels, noise=noise)["latents"]
            self.bench.call("llm.prefill_vae", self.main, latents=latents)
            self.size = width, height
        seen = self.bench.call("vit.look", pixels=torch.from_numpy(prepared.for_vit))["seen"]
        self.bench.call("llm.prefill_vit", self.main, seen=seen)
        self.no_text = _swapped(self.no_text, self.main)

    def _noise(self, width: int, height: int, recorded_seed: int) -> Tensor:
        """The recorded one was drawn by a generator of its own."""
        if self.recorded:
            generator = Generator().manual_seed(recorded_seed)
            return torch.randn(1, 16, height // 8, width // 8, generator=generator)[0]
        asked = {"seed": self.case["seed"], "size": (width, height)}
        return self.bench.call("solver.posterior", self.solver, **asked)["noise"]

    def end(self) -> None:
        self._split()

    def drop(self) -> None:
        for branch in (self.main, self.no_text, self.no_image):
            if branch is not None:
                branch.drop()

    def _split(self) -> None:
        if self.no_image is None:
            self.no_image = self.main.fork()

    def _read(self, text: str) -> None:
        for branch in (self.main, self.no_image):
            if branch is not None:
                self.bench.call("llm.prefill_text", branch, ids=self._block(text))

    def _block(self, text: str) -> list[int]:
        return self.bench.call("tokenizer.encode", text=text)["ids"]


def _swapped(old: Branch, of: Branch) -> Branch:
    old.drop()
    return of.fork()


def _limits(case: Mapping[str, Any]) -> Preprocessing:
    return Preprocessing(Limits(*case["limits"]["vae_t"]), Limits(*case["limits"]["vit_t"]))


def picture(name: str) -> np.ndarray:
    with Image.open(DATA / "images" / name) as image:
        return np.array(image)


def read_inputs(bench: Bench, case: Mapping[str, Any], *, recorded: bool = True) -> Contexts:
    """All of a case's inputs in order.

    Args:
        recorded: With the noise that the reference's outputs were made with, which is none that a seed gives.
    """
    contexts, params = Contexts(bench, case, recorded=recorded), case["params"]
    understands = params.get("understanding_output", False)
    if params.get("think"):
        contexts.system(THINK_THEN_WRITE if understands else THINK_THEN_PAINT)
    seeds = [case["seed"] + 7 + number for number, each in enumerate(case["prefills"]) if each["op"] == "vae"]
    for one in case["inputs"]:
        if one["type"] == "text":
            contexts.text(one["text"])
        else:
            seed = 0 if understands else seeds.pop(0)
            contexts.image(picture(one["file"]), paints=not understands, recorded_seed=seed)
    return contexts


def write(bench: Bench, contexts: Contexts, *, most: int) -> tuple[list[int], str, bool]:
    """On a scratch branch: the ids that were read to write, the text, and whether it came to its end."""
    scratch, pen = contexts.main.fork(), Branch(None)
    ids = bench.call("pen.begin")["ids"]
    read, text, ended = list(ids), "", False
    for _ in range(most):
        given = bench.call("llm.next", scratch, ids=ids)
        ended = "stopped" in given
        if ended:
            break
        ids = [given["ids"]]
        read += ids
        text += bench.call("pen.write", pen, ids=given["ids"], scores=given["scores"])["piece"] or ""
    finished = bench.call("pen.finish", pen)
    text += finished["rest"] or ""
    assert finished["text"] == text
    scratch.drop()
    return read, text, ended


def _options(params: Mapping[str, Any]) -> Any:
    """What the case asks for; the rest as the reference's inferencer has it."""
    defaults = {
        "cfg_text_scale": 3.0,
        "cfg_img_scale": 1.5,
        "cfg_renorm_type": "global",
        "cfg_renorm_min": 0.0,
    }
    return dataclasses.replace(
        Bagel.Options(), **{name: params.get(name, default) for name, default in defaults.items()}
    )


@dataclasses.dataclass
class Painted:
    """The first step's velocities, by the reference's names, and what they come to; the end."""

    velocities: dict[str, Tensor]
    combined: Tensor
    latents: Tensor
    picture: np.ndarray


def paint(bench: Bench, contexts: Contexts) -> Painted:
    case = contexts.case
    options, (height, width) = _options(case["params"]), case["image_shape"]
    schedule = make_schedule(
        num_timesteps=case["params"]["num_timesteps"],
        timestep_shift=case["params"]["timestep_shift"],
        cfg_text_scale=options.cfg_text_scale,
        cfg_img_scale=options.cfg_img_scale,
        cfg_interval=tuple(case["params"].get("cfg_interval", (0.4, 1.0))),
    )
    assert schedule.timesteps == case["timesteps"]
    assert _branches(schedule) == case["n_branches"]
    solver = Branch(None) if contexts.recorded else contexts.solver
    latents = bench.call("solver.noise", solver, seed=case["seed"], size=(width, height))["latents"]
    seen, combined = {}, None
    for t, step, guided, by_images in zip(*dataclasses.astuple(schedule), strict=True):
        asked = {"full": contexts.main}
        if guided:
            asked["no_text"] = contexts.no_text
        if by_images:
            asked["no_image"] = contexts.no_image
        taken = {"latents": latents, "t": t}
        given = bench.rows("llm.velocity", [(branch, taken) for branch in asked.values()], keeps=False)
        found = dict(zip(asked, (each["velocity"] for each in given), strict=True))
        velocities = {"no_text": None, "no_image": None} | found
        if combined is None:  # one whole step back from nothing is the velocity itself
            nothing = torch.zeros_like(latents)
            combined = bench.call(
                "solver.step", options=options, latents=nothing, t=t, step=-1.0, **velocities
            )
            seen = {NAMES[name]: velocity.flatten(0, 1) for name, velocity in found.items()}
        stepped = bench.call("solver.step", options=options, latents=latents, t=t, step=step, **velocities)
        latents = stepped["latents"]
    picture = bench.call("vae.decode", latents=latents)["picture"].numpy()
    return Painted(seen, combined["latents"].flatten(0, 1), latents.flatten(0, 1), picture)


def apart(here: Tensor, there: Tensor) -> float:
    assert here.shape == there.shape
    return float((here - there).abs().max())


def _branches(schedule: Schedule) -> list[int]:
    return [1 + text + image for text, image in zip(schedule.guided, schedule.guided_by_images, strict=True)]


def held(branch: Branch) -> dict[str, int]:
    return {"kv_len": branch.table.length, "rope": branch.state or 0}
