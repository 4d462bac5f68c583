"""Settings, as every process of a server gets them: frozen, complete, already checked."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from walkserve_sdk import Checkpoint

CACHE_TOKENS = 32_768
DRAIN_TIMEOUT_S = 30.0
STUCK_AFTER_S = 60.0


class ModelConfig(Struct, frozen=True):
    """One model to serve.

    Args:
        name: As clients know it: ``orpheus`` or ``orpheus:toy``.
        family: Its entry point's name.
        plugin: The distribution that brings the family; the only one it is loaded from.
        label: What the user named as its checkpoint.
        folders: Part of the checkpoint -> folder on this machine.
        ranks: Component -> name of the worker that holds it, ``orpheus.host`` or ``orpheus.rank0``.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"auto"``: float32 on a CPU, bfloat16 on a GPU.
        deterministic: Batched equals alone, to the bit on a CPU; slower.
        cache_tokens: Tokens a cached component's pool holds in all on a CPU.
        overcommit: How many times its pages a pool may be promised; what is too much moves to host memory.
        token_budget: The most tokens of long rows in one batch; None measures it when the model is warm.
        max_rows: The most rows in one batch.
        profile: Note of each request what it did and waited for.
        journal: Folder for a journal of each request, or "".
        device_ranks: Numbers of all device ranks of the server, every model's: who shares a GPU with whom.
    """

    name: str
    family: str
    label: str
    folders: dict[str, str]
    ranks: dict[str, str]
    device: str = "auto"
    dtype: str = "auto"
    deterministic: bool = False
    cache_tokens: int = CACHE_TOKENS
    overcommit: float = 1.0
    token_budget: int | None = None
    max_rows: int = 64
    profile: bool = False
    journal: str = ""
    device_ranks: tuple[int, ...] = ()
    plugin: str = ""

    @property
    def checkpoint(self) -> Checkpoint:
        """For the family's declaration and its components."""
        return Checkpoint({part: Path(folder) for part, folder in self.folders.items()}, self.label)

    @property
    def plugins(self) -> tuple[str, ...]:
        """Where the family may be loaded from."""
        return (self.plugin,) if self.plugin else ()

    @property
    def workers(self) -> tuple[str, ...]:
        """Every worker of this model, once."""
        return tuple(dict.fromkeys(self.ranks.values()))


class ServerConfig(Struct, frozen=True):
    """One server.

    Args:
        run_folder: Sockets and shared memory of this server.
        threads: CPU threads of each worker.
        drain_timeout_s: How long requests have to finish once the server was told to stop.
        stuck_after_s: A process that has not moved for so long is killed; 0 for never.
    """

    models: tuple[ModelConfig, ...]
    run_folder: str
    log_level: str = "info"
    log_format: str = "text"
    threads: int = 1
    drain_timeout_s: float = DRAIN_TIMEOUT_S
    stuck_after_s: float = STUCK_AFTER_S


def rank_number(worker: str) -> int | None:
    """Of a worker's name: ``orpheus.rank1`` is rank 1, ``orpheus.host`` has no number."""
    rank = worker.rpartition(".")[2]
    return int(rank.removeprefix("rank")) if rank.startswith("rank") else None


def usable_cores() -> int:
    """Cores that this process may use: in a container or under ``taskset`` fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_threads(cores: int, workers: int) -> int:
    """CPU threads for each worker: threads of busy neighbours wait for each other, so they are shared out."""
    return max(1, (cores - 1) // max(1, workers))
