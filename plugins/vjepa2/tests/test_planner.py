"""The planner draws, keeps and blends as the authors' does, to the last draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from vjepa2_goldens import CPU, Branch, World

from walk_plugin_vjepa2 import VJepa2AC
from walk_plugin_vjepa2.cem import concluded, draw, first_belief, refined
from walk_plugin_vjepa2.landscape import grid
from walk_plugin_vjepa2.planner import Planner
from walk_plugin_vjepa2.scoring import Scorer, energies
from walkserve.engine.batch import TorchBatch
from walkserve.engine.held import Held
from walkserve.engine.rows import UNCHANGED, Row
from walkserve_sdk import Component

CLOSE = {"atol": 1e-5, "rtol": 0}
GOLDEN = VJepa2AC.Options(
    horizon=2, samples=16, topk=4, iterations=3, momentum_std=0.75, maxnorm=0.075, seed=0
)
"""What the golden plan was searched with; the other momenta are 0.15, as by default."""


class Rows:
    """Calls of one component for some requests, whose states are committed as a worker does it."""

    def __init__(self, component: Any, options: Sequence[VJepa2AC.Options]) -> None:
        self.component = component
        self.options = options
        self.branches = [Branch(None) for _ in options]
        self.held = Held("component", Component("some.where:Component", state=True), CPU, torch.float32)

    def call(self, method: str, **values: Sequence[Any]) -> Any:
        rows = [
            Row({name: each[row] for name, each in values.items()}, branch, options, (0, row))
            for row, (branch, options) in enumerate(zip(self.branches, self.options, strict=True))
        ]
        batch = TorchBatch(self.held, rows, tile=1, deterministic=False)
        with torch.inference_mode():
            gives = getattr(self.component, method)(batch)
        for branch, result in zip(self.branches, batch.results, strict=True):
            if result.state is not UNCHANGED:
                branch.state = result.state
        return gives


def imagined(world: World, actions: Tensor, latent: Tensor, pose: Tensor) -> Tensor:
    """The last latents of candidates (candidates, horizon, 7), (candidates, tokens, width)."""
    count = len(actions)
    with world.branch() as branch, world.forks(branch, count) as rows:
        z, s = [latent] * count, [pose] * count
        for step in range(actions.shape[1]):
            z, s = world.step(rows, z, list(actions[:, step]), s)
    return torch.stack(z)


def plans(world: World, golden: dict[str, Tensor], options: Sequence[VJepa2AC.Options]) -> Any:
    """Search for every one of these at once, node by node, as the Walk does."""
    latents, pose = golden["latents"].view(4, 16, 48), golden["states"][0, 0]
    count = len(options)
    planner, scorer = Rows(Planner(), options), Rows(Scorer(), options)
    start = {"last_latent": [latents[0]] * count, "last_pose": [pose] * count}
    goals = [latents[-1]] * count
    reports = []
    belief = planner.call("begin", seed=[each.seed for each in options], tick=[None] * len(options))["belief"]
    for _ in range(options[0].iterations):
        proposed = planner.call("propose", belief=belief, **start)
        futures = [imagined(world, actions, latents[0], pose) for actions in proposed["actions"]]
        scored = scorer.call("energy", latent=futures, goal=goals)["energies"]
        refined = planner.call("refine", belief=belief, actions=proposed["actions"], energies=scored)
        belief = refined["belief"]
        reports.append(refined["report"])
    actions = planner.call("conclude", belief=belief, **start)["actions"]
    futures = [imagined(world, each, latents[0], pose) for each in actions]
    scored = scorer.call("energy", latent=futures, goal=goals)["energies"]
    return planner.call("sum_up", actions=actions, energies=scored)["plan"], reports


def test_the_plan_of_a_seed_is_the_authors_plan_of_that_seed(world, ac_golden):
    (plan,), _ = plans(world, ac_golden, [GOLDEN])
    torch.testing.assert_close(plan["actions"], ac_golden["cem.action"], **CLOSE)


def test_several_searches_in_one_batch_are_each_what_they_are_alone(world, ac_golden):
    others = [GOLDEN, VJepa2AC.Options(horizon=1, samples=5, topk=2, iterations=3, seed=9)]
    together, _ = plans(world, ac_golden, others)
    for options, plan in zip(others, together, strict=True):
        (alone,), _ = plans(world, ac_golden, [options])
        torch.testing.assert_close(plan["actions"], alone["actions"])
        assert len(plan["actions"]) == options.horizon


def test_every_iteration_reports_and_the_plan_keeps_the_reports(world, ac_golden):
    (plan,), reports = plans(world, ac_golden, [GOLDEN])
    told = [report[0] for report in reports]
    assert [one["iteration"] for one in told] == [0, 1, 2]
    assert plan["best_energies"].tolist() == pytest.approx([one["best_energy"] for one in told])
    assert plan["mean_energies"].tolist() == pytest.approx([one["mean_energy"] for one in told])
    assert torch.equal(plan["means"], torch.stack([one["mean"] for one in told]))
    assert torch.equal(plan["stds"], torch.stack([one["std"] for one in told]))
    assert plan["means"].shape == plan["stds"].shape == (3, 2, 4)


def test_the_energy_of_a_plan_is_that_of_its_own_future(world, ac_golden):
    (plan,), _ = plans(world, ac_golden, [GOLDEN])
    latents, pose = ac_golden["latents"].view(4, 16, 48), ac_golden["states"][0, 0]
    future = imagined(world, plan["actions"][None], latents[0], pose)[0]
    assert plan["energy"] == pytest.approx(float((future - latents[-1]).abs().mean()), abs=1e-5)


def test_no_candidate_moves_further_than_it_may():
    wild = VJepa2AC.Options(horizon=3, samples=50, maxnorm=0.01)
    belief = first_belief(wild) * 100
    actions = draw(belief, wild, torch.Generator().manual_seed(0))
    assert actions.shape == (50, 3, 7)
    assert actions[..., :3].abs().max() == pytest.approx(0.01)
    assert actions[..., 3:6].abs().max() == 0
    assert actions[..., 6].abs().max() == pytest.approx(0.75)


def test_a_gripper_that_is_to_close_closes_from_that_step_on():
    closing = VJepa2AC.Options(horizon=3, samples=4, topk=2, close_gripper=1)
    actions = draw(first_belief(closing), closing, torch.Generator().manual_seed(0))
    assert (actions[:, 1:, 6] == 1).all()
    assert (actions[:, 0, 6].abs() <= 0.75).all()


def test_momentum_keeps_what_was_believed_and_without_it_nothing_is_kept():
    options = VJepa2AC.Options(horizon=1, samples=3, topk=2)
    actions = torch.zeros(3, 1, 7)
    actions[:, 0, 0], actions[:, 0, 6] = torch.tensor([1.0, 3.0, 9.0]), torch.tensor([0.2, 0.4, 9.0])
    costs = torch.tensor([1.0, 2.0, 3.0])  # the first two are kept
    keeps = VJepa2AC.Options(momentum_mean=1, momentum_std=1, topk=2)
    forgets = VJepa2AC.Options(
        momentum_mean=0, momentum_std=0, momentum_mean_gripper=0, momentum_std_gripper=0, topk=2
    )
    belief = first_belief(options)
    kept = refined(belief, actions, costs, keeps)
    assert torch.equal(kept[..., :3], belief[..., :3])
    assert kept[0, 0, 3] == pytest.approx(0.85 * 0.3)  # the gripper has momenta of its own
    assert refined(belief, actions, costs, forgets)[0, 0].tolist() == pytest.approx([2.0, 0, 0, 0.3])


def test_a_small_movement_of_the_gripper_is_none():
    belief = torch.zeros(2, 2, 4)
    belief[0, :, 3] = torch.tensor([0.24, -0.26])
    assert concluded(belief)[:, 6].tolist() == pytest.approx([0.0, -0.26])


def test_the_landscape_of_three_axes_is_the_authors(world, ac_golden):
    latents, pose = ac_golden["latents"].view(4, 16, 48), ac_golden["states"][0, 0]
    actions = grid(("x", "y", "z"), torch.linspace(-0.075, 0.075, 3))
    found = energies(imagined(world, actions[:, None], latents[0], pose), latents[-1])
    torch.testing.assert_close(found, ac_golden["landscape.energy"], **CLOSE)


def test_a_grid_moves_only_the_axes_it_is_over_the_first_outermost():
    actions = grid(("gripper", "y"), torch.tensor([-1.0, 1.0]))
    assert actions[:, [6, 1]].tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    assert actions[:, [0, 2, 3, 4, 5]].abs().max() == 0
    assert grid(("z",), torch.tensor([0.5])).tolist() == [[0, 0, 0.5, 0, 0, 0, 0]]


def test_energies_are_of_all_candidates_or_of_one_latent():
    goal = torch.zeros(2, 3)
    candidates = torch.stack([torch.full((2, 3), float(each)) for each in range(70)])
    assert energies(-candidates, goal).tolist() == [float(each) for each in range(70)]
    assert energies(candidates[3].bfloat16(), goal).item() == 3
