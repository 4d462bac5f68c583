"""The golden checkpoints, and how tests call the plugin's modules on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walk_plugin_vjepa2.predictor import ActionPredictor
from walkserve.cache.paged import PagedCache
from walkserve.engine.batch import TorchBatch
from walkserve.engine.held import Held
from walkserve.engine.rows import Row
from walkserve_sdk import Checkpoint, Component, PagedKV

DATA = Path(__file__).parent / "data"
BASE = Checkpoint({"main": DATA / "base"}, "base")
AC = Checkpoint({"main": DATA / "ac"}, "ac")
CPU = torch.device("cpu")
PAGE_SIZE = 16


class Branch:
    """A row's place in the cache, as the worker holds it."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.state = None
        self.seen = None

    def fork(self) -> Branch:
        return Branch(self.table.fork())


def load(kind: type, checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> Any:
    """One of the plugin's components, on the CPU."""
    return kind.load(checkpoint, device=CPU, dtype=dtype)


def call(component: Any, method: str, **values: Sequence[Any]) -> Mapping[str, Sequence[Any]]:
    """One call of a component without a cache, with a row per value."""
    held = Held("component", Component("some.where:Component"), CPU, torch.float32)
    count = len(next(iter(values.values())))
    rows = [
        Row({name: each[row] for name, each in values.items()}, Branch(None), None, (0, row))
        for row in range(count)
    ]
    with torch.inference_mode():
        return getattr(component, method)(TorchBatch(held, rows, tile=1, deterministic=False))


class World:
    """The predictor over a real cache: branches are begun, forked and stepped by hand."""

    def __init__(
        self, predictor: ActionPredictor, *, tile: int = 1, dtype: torch.dtype = torch.float32
    ) -> None:
        pages = 40 * -(-predictor.kv_shape.context // PAGE_SIZE)
        cache = PagedCache(predictor.kv_shape, pages=pages, page_size=PAGE_SIZE, device=CPU, dtype=dtype)
        component = Component("walk_plugin_vjepa2.predictor:ActionPredictor", kv=PagedKV(page_size=PAGE_SIZE))
        self.held = Held("predictor", component, CPU, dtype, {"step": predictor.step}, cache)
        self.predictor = predictor
        self._tile = tile

    @contextmanager
    def branch(self) -> Iterator[Branch]:
        """An empty one."""
        assert self.held.cache is not None
        branch = Branch(self.held.cache.new_table())
        try:
            yield branch
        finally:
            branch.table.drop()

    @contextmanager
    def forks(self, branch: Branch, count: int) -> Iterator[list[Branch]]:
        """So many continuations of one branch."""
        forked = [branch.fork() for _ in range(count)]
        try:
            yield forked
        finally:
            for each in forked:
                each.table.drop()

    def step(
        self,
        branches: Sequence[Branch],
        latents: Sequence[Tensor],
        actions: Sequence[Tensor],
        poses: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One turn of every branch, in one batch: the next latents and poses."""
        tokens = self.held.token_counts()["step"](latent=latents[0])
        rows = [
            Row({"latent": z, "action": a, "pose": s}, branch, None, (0, row), tokens=tokens)
            for row, (branch, z, a, s) in enumerate(zip(branches, latents, actions, poses, strict=True))
        ]
        batch = TorchBatch(self.held, rows, tile=self._tile, deterministic=self._tile > 1)
        with torch.inference_mode():
            made = self.predictor.step(batch)
        for branch in branches:
            branch.table.commit(tokens)
        return list(made["latent"]), list(made["pose"])

    def observe(self, branch: Branch, latents: Tensor, actions: Tensor, poses: Tensor) -> list[Tensor]:
        """Write what was seen and done into a branch, frame by frame; what each made of it."""
        made = []
        for latent, action, pose in zip(latents, actions, poses, strict=True):
            latents_next, _ = self.step([branch], [latent], [action], [pose])
            made += latents_next
        return made
