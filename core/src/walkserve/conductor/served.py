"""One model being served: its declaration, its plans, where its components are, and its workers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from walkserve import messages as m
from walkserve.conductor.admission import Fanned, longest_request
from walkserve.conductor.life import Life
from walkserve.graph.lower import lower_model
from walkserve.graph.plan import Plan
from walkserve_sdk import Model


@dataclass(slots=True)
class WorkerRecord:
    """A worker and what it said of itself."""

    name: str
    address: str = ""
    pid: int = 0
    state: str = "starting"
    failure: str = ""  # why it could not load, until it can
    components: dict[str, str] = field(default_factory=dict)
    budgets: tuple[m.TokenBudget, ...] = ()
    is_calibrated: bool = True


class Served:
    """A model, its workers and its queue.

    Args:
        name: As clients know it.
        model: The family, for one checkpoint.
        ranks: Component -> name of the worker that holds it.
        profiles: Note of each request what it does, and tell its client when it ends.
        overcommit: How many times its pages each pool may be promised.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        ranks: Mapping[str, str],
        *,
        profiles: bool = False,
        overcommit: float = 1.0,
    ) -> None:
        self.name = name
        self.model = model
        self.ranks = dict(ranks)
        self.profiles = profiles
        self.overcommit = overcommit
        self.plans = lower_model(type(model))
        grown = {at for plan in self.plans.values() for fan in plan.fans for at in fan.grows}
        self.fanned: Fanned = Counter(component for component, _ in grown)
        self.workers = {rank: WorkerRecord(rank) for rank in dict.fromkeys(ranks.values())}
        self.pools: dict[str, m.PoolInfo] = {}
        self.reserved: dict[str, int] = {}
        self.queue: deque[Life] = deque()  # admitted in this order
        self.is_warm = False
        self.was_ready = False
        self.trouble = ""  # why it is not ready, where that is more than loading
        self.homes = {graph: self._home(plan) for graph, plan in self.plans.items()}
        spec = model.spec
        asked = [self.homes[graph] for graphs in spec.walks.values() for graph in graphs]
        cached = [rank for name, rank in self.ranks.items() if spec.components[name].kv is not None]
        self.track_workers = {*asked, *cached}
        """Workers that a request's tracks may call; others are done with it once it is prepared."""
        self.reader_of = self._ends("reads")
        self.writer_of = self._ends("writes")

    def _home(self, plan: Plan) -> str:
        """The worker that runs a graph: placement has seen to it that it holds all its components."""
        return self.ranks[plan.components[0]]

    def _ends(self, end: str) -> dict[str, str]:
        """Stream -> the one worker at its reading or writing end."""
        return {
            stream: self.homes[name] for name, plan in self.plans.items() for stream in getattr(plan, end)
        }

    def address_of(self, graph: str) -> str:
        """Where a graph runs now."""
        return self.workers[self.homes[graph]].address

    @property
    def addresses(self) -> list[str]:
        return [worker.address for worker in self.workers.values() if worker.state == "ready"]

    @property
    def is_ready(self) -> bool:
        """All workers are there, a warm-up request has passed through them, and they know their budgets."""
        return self.is_warm and self.has_all_workers and self.is_calibrated

    @property
    def is_calibrated(self) -> bool:
        return all(worker.is_calibrated for worker in self.workers.values())

    @property
    def has_all_workers(self) -> bool:
        return all(worker.state == "ready" for worker in self.workers.values())

    def has_room_for(self, pages: Mapping[str, int]) -> bool:
        """Whether so many pages of each component may be promised to one more request, all of them."""
        return all(
            self.reserved.get(part, 0) + more <= self.pools[part].pages * self.overcommit
            for part, more in pages.items()
        )

    def info(self, running: int) -> m.ModelInfo:
        """For ``/v1/server``."""
        return m.ModelInfo(
            name=self.name,
            family=self.model.spec.name,
            checkpoint=self.model.checkpoint.label,
            workers=tuple(
                m.WorkerInfo(
                    name=worker.name,
                    address=worker.address,
                    pid=worker.pid,
                    state=worker.state,
                    components=worker.components,
                    pools={
                        name: (pool.pages, self.reserved.get(name, 0))
                        for name, pool in self.pools.items()
                        if name in worker.components
                    },
                    tokens={
                        name: (
                            longest_request(self.model.spec.components[name], pool, self.fanned),
                            pool.pages * pool.page_size,
                        )
                        for name, pool in self.pools.items()
                        if name in worker.components and name in self.model.spec.components
                    },
                    budgets=worker.budgets,
                )
                for worker in self.workers.values()
            ),
            running=running,
            waiting=len(self.queue),
        )
