"""Putting a worker together: load its components, lower its graphs, join state, engine and mailbox."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import torch

from walkserve import messages as m
from walkserve.config import ModelConfig, rank_number
from walkserve.engine.held import Held, hold
from walkserve.engine.local import LocalEngine
from walkserve.engine.rows import Engine
from walkserve.engine.stacking import stack_rows
from walkserve.graph.lower import lower_model
from walkserve.graph.plan import Plan
from walkserve.plugins import load_model
from walkserve.transport.base import Mailbox, TensorCarrier
from walkserve.worker.calibration import LEAST, Calibration, Pages
from walkserve.worker.loop import WorkerLoop
from walkserve.worker.scheduler import Key, Limits, Scheduler
from walkserve.worker.state import WorkerState
from walkserve_sdk import KVShape, LoadError, Model, WalkserveError

log = logging.getLogger(__name__)

GPU_SHARE = 0.9
"""Of a GPU's memory, for weights and caches of all workers on it."""
TOKENS = 512
"""Of long rows in one batch, before it is known what the device can do, and where nobody would notice."""
TILE = 64
"""Tokens: where prefill is cut in deterministic mode, whatever else runs."""


class Worker:
    """One rank of one model.

    Args:
        name: ``orpheus.rank0``; ``address`` is that with its incarnation.
        threads: CPU threads of its matrix products.
        beat: Called whenever its loop comes round, from the first time on.
    """

    def __init__(
        self,
        config: ModelConfig,
        name: str,
        address: str,
        mailbox: Mailbox,
        carrier: TensorCarrier,
        *,
        threads: int,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.name = name
        self.address = address
        self.mailbox = mailbox
        self.carrier = carrier
        self.threads = threads
        self.beat = beat
        self.loop: WorkerLoop | None = None

    def run(self) -> None:
        """Load, say so, and work until told to stop. What makes loading fail is said, not raised."""
        # torch counts them per thread; beyond two, a long SiLU is cut where its bits may change
        torch.set_num_threads(min(self.threads, 2) if self.config.deterministic else self.threads)
        try:
            loop = self.load()
        except BaseException as error:  # of a plugin's, also SystemExit: who waits for it is to know why
            is_expected = isinstance(error, WalkserveError)
            log.log(
                logging.DEBUG if is_expected else logging.ERROR, "%s cannot start", self.name, exc_info=error
            )
            what = str(error) if is_expected else f"{type(error).__name__}: {error}"
            self.mailbox.send("conductor", [m.WorkerFailed(self.name, self.address, m.Fault(what))])
            return
        loop.run()
        loop.flush()

    def load(self) -> WorkerLoop:
        """Load every component this rank holds, and tell the conductor what is there."""
        model = load_model(self.config.family, self.config.plugins)
        plans = lower_model(model)
        held = {
            name: self._hold(model, plans, name)
            for name, rank in self.config.ranks.items()
            if rank == self.name
        }
        limits = self._limits(plans, held)
        engine = LocalEngine(held, deterministic=self.config.deterministic)
        calibration = self._calibration(limits, engine, held)
        state = WorkerState(
            address=self.address,
            model=model,
            plans=plans,
            ranks=self.config.ranks,
            scheduler=Scheduler(limits),
            carrier=self.carrier,
            read_options=lambda sent: m.restore_options(model.Options, sent),
            caches={name: one.cache for name, one in held.items() if one.cache is not None},
            calibration=calibration,
            profiles=self.config.profile,
            token_counts={
                (name, method): count
                for name, one in held.items()
                for method, count in one.token_counts().items()
            },
            stack=stack_rows,
        )
        self.loop = WorkerLoop(state, engine, self.mailbox, self.beat)
        ready = m.WorkerReady(
            worker=self.name,
            address=self.address,
            pid=os.getpid(),
            components={name: one.in_words for name, one in held.items()},
            pools={
                name: m.PoolInfo(one.cache.pool.pages, one.cache.pool.page_size, one.cache.shape.context)
                for name, one in held.items()
                if one.cache is not None
            },
            budgets=state.budgets(),
            calibrates=calibration is not None,
        )
        self.mailbox.send("conductor", [ready])
        return self.loop

    def _hold(self, model: type[Model], plans: dict[str, Plan], name: str) -> Held:
        component = model.spec.components[name]
        device = torch.device("cpu") if component.device == "cpu" else self._device()
        dtype = _dtype(self.config.dtype, device)
        methods = {op.method for plan in plans.values() for op in plan.ops if op.component == name}
        self.mailbox.send("conductor", [m.Loading(self.name, name, done=False)])

        def pages(shape: KVShape, page_size: int) -> int:
            if device.type == "cpu":
                return -(-self.config.cache_tokens // page_size)
            count = torch.cuda.device_count()
            sharing = sum(rank % count == device.index for rank in self.config.device_ranks)
            return _gpu_pages(shape, page_size, device, dtype, max(1, sharing))

        held = hold(component, methods, self.config.checkpoint, device=device, dtype=dtype, pages=pages)
        self.mailbox.send("conductor", [m.Loading(self.name, name, done=True)])
        return held

    def _device(self) -> torch.device:
        """The device of this rank: the GPU of its number, or the CPU."""
        wanted = self.config.device
        if wanted == "auto":
            wanted = "cuda" if torch.cuda.is_available() else "cpu"
        if wanted == "cpu":
            return torch.device("cpu")
        if not torch.cuda.is_available():
            raise LoadError("device 'cuda' is asked for, but torch sees no GPU; use --device cpu")
        return torch.device("cuda", (rank_number(self.name) or 0) % torch.cuda.device_count())

    def _limits(self, plans: dict[str, Plan], held: dict[str, Held]) -> dict[Key, Limits]:
        tile = TILE if self.config.deterministic else 0
        limits: dict[Key, Limits] = {}
        for plan in plans.values():
            for op in plan.ops:
                if op.component not in held:
                    continue
                one = held[op.component]
                limits[op.key] = Limits(
                    rows=one.component.rows or self.config.max_rows,
                    tokens=max(self.config.token_budget or TOKENS, tile),
                    splits=one.splits(op.method),
                    tile=tile,
                )
        return limits

    def _calibration(
        self, limits: dict[Key, Limits], engine: Engine, held: dict[str, Held]
    ) -> Calibration | None:
        """Of the methods whose rows may be split; None where there is none, or the budget is given."""
        keys = {key: (one.rows, max(LEAST, one.tile)) for key, one in limits.items() if one.splits}
        if not keys or self.config.token_budget is not None:
            return None
        pages: dict[str, Pages] = {}
        for name, one in held.items():
            if one.cache is not None:
                pool, branches = one.cache.pool, len(one.component.branches)
                longest = min(one.cache.shape.context, pool.pages // branches * pool.page_size)
                pages[name] = Pages(pool, longest)
        on_gpu = any(one.device.type == "cuda" for one in held.values())
        settle = torch.cuda.synchronize if on_gpu else lambda: None
        return Calibration(keys, engine, pages, settle=settle, beat=self.beat)


def _dtype(wanted: str, device: torch.device) -> torch.dtype:
    """float32 on a CPU also for 16-bit files: every equality is promised there."""
    if wanted == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    dtype: Any = getattr(torch, wanted)
    return dtype  # type: ignore[no-any-return]


def _gpu_pages(shape: KVShape, page_size: int, device: torch.device, dtype: torch.dtype, workers: int) -> int:
    """What is left of this worker's share of the GPU's memory when weights are loaded."""
    share = torch.cuda.get_device_properties(device).total_memory * GPU_SHARE / workers
    page_bytes = 2 * shape.layers * page_size * shape.kv_heads * shape.head_dim * dtype.itemsize
    pages = int((share - torch.cuda.memory_allocated(device)) // page_bytes)
    if pages < 1:
        raise LoadError("no room for a cache is left beside the weights; use a larger GPU, or one more rank")
    return pages
