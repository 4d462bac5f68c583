"""The planner: which actions lead from what is seen to what is wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from walk_plugin_vjepa2.cem import concluded, draw, first_belief, refined
from walkserve_sdk import Batch, Checkpoint, Gives


@dataclass(frozen=True)
class _Search:
    """What a search remembers besides its belief.

    Args:
        random: State of the CPU generator that the next candidates are drawn with. A generator, and not
            numbers by key, because a seed is to give the plan that ``torch.manual_seed`` gives the authors.
        tick: Of a control loop, which tick is planned for; else None.
        best, mean: Of each iteration so far, the lowest energy and the candidates' mean, (1,) each.
        beliefs: What each iteration left, (2, horizon, 4).
    """

    random: Tensor
    tick: int | None = None
    best: tuple[Tensor, ...] = ()
    mean: tuple[Tensor, ...] = ()
    beliefs: tuple[Tensor, ...] = ()


class Planner:
    """The cross-entropy method as nodes of a loop; the model, between them, says what each candidate costs.

    Rows are requests. Each has its own number of candidates, so that nothing is gained by stacking them:
    what costs is the rollouts, and those are batched where they run. All of it is on the CPU, where a seed
    draws the same on every machine, and where candidates' poses are computed from their actions.
    """

    dtype = torch.float32  # of actions and beliefs, whatever the model computes in

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> Planner:
        """It has no weights."""
        return cls()

    def begin(self, batch: Batch) -> Gives:
        """The belief (2, horizon, 4) before anything was tried. ``seed`` decides all draws of the search."""
        for row, (seed, tick) in enumerate(zip(batch.values("seed"), batch.values("tick"), strict=True)):
            batch.state[row] = _Search(torch.Generator().manual_seed(seed).get_state(), tick)
        return {"belief": [first_belief(options) for options in batch.options]}

    def propose(self, batch: Batch) -> Gives:
        """Candidates (samples, horizon, 7) of the belief, and where all of them start."""
        actions = []
        for row, belief in enumerate(batch.values("belief")):
            search: _Search = batch.state[row]
            generator = torch.Generator()
            generator.set_state(search.random)
            actions.append(draw(belief, batch.options[row], generator))
            batch.state[row] = replace(search, random=generator.get_state())
        return {"actions": actions, **_start(batch)}

    def refine(self, batch: Batch) -> Gives:
        """The belief around the best candidates, and a report for whoever watches."""
        beliefs, reports = [], []
        rows = zip(batch.values("belief"), batch.values("actions"), batch.values("energies"), strict=True)
        for row, (belief, actions, energies) in enumerate(rows):
            energies = energies.cpu()
            belief = refined(belief, actions, energies, batch.options[row])
            search: _Search = batch.state[row]
            best, mean = energies.min(), energies.mean()
            batch.state[row] = replace(
                search,
                best=(*search.best, best),
                mean=(*search.mean, mean),
                beliefs=(*search.beliefs, belief),
            )
            beliefs.append(belief)
            reports.append(
                {
                    **({} if search.tick is None else {"tick": search.tick}),
                    "iteration": len(search.best),
                    "best_energy": float(best),
                    "mean_energy": float(mean),
                    "mean": belief[0],
                    "std": belief[1],
                }
            )
        return {"belief": beliefs, "report": reports}

    def conclude(self, batch: Batch) -> Gives:
        """The plan as the only candidate of a last rollout, (1, horizon, 7), and where it starts."""
        return {"actions": [concluded(belief)[None] for belief in batch.values("belief")], **_start(batch)}

    def sum_up(self, batch: Batch) -> Gives:
        """The plan, what it costs, and what each iteration has found."""
        plans = []
        rows = zip(batch.values("actions"), batch.values("energies"), batch.state, strict=True)
        for actions, energies, search in rows:
            beliefs = torch.stack(search.beliefs)
            plans.append(
                {
                    "actions": actions[0],
                    "energy": float(energies[0]),
                    "best_energies": torch.stack(search.best),
                    "mean_energies": torch.stack(search.mean),
                    "means": beliefs[:, 0],
                    "stds": beliefs[:, 1],
                }
            )
        return {"plan": plans}

    def answer(self, batch: Batch) -> Gives:
        """The plan of a tick: what ``sum_up`` gives, and what it was made with."""
        told = zip(
            *(batch.values(name) for name in ("tick", "used_seed", "context", "restarted")), strict=True
        )
        names = ("tick", "seed", "context_frames", "restarted")
        plans = self.sum_up(batch)["plan"]
        return {
            "answer": [
                dict(zip(names, row, strict=True)) | plan for row, plan in zip(told, plans, strict=True)
            ]
        }


def _start(batch: Batch) -> Gives:
    """What was observed last, as every rollout of a loop begins with it anew."""
    return {"latent": batch.values("last_latent"), "pose": batch.values("last_pose")}
