"""Plans and landscapes through an engine: the authors' plan, several requests at once, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from torch import Tensor
from vjepa2_goldens import DATA

from walkserve import Engine
from walkserve_sdk import BadRequest, Part

CLOSE = {"atol": 1e-5, "rtol": 0}
GOLDEN: dict[str, Any] = {
    "task": "plan",
    "horizon": 2,
    "samples": 16,
    "topk": 4,
    "iterations": 3,
    "momentum_std": 0.75,
    "maxnorm": 0.075,
    "seed": 0,
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(f"vjepa2-ac={DATA / 'ac'}", device="cpu", dtype="float32") as engine:
        yield engine


@pytest.fixture
def scene(ac_golden: dict[str, Tensor]) -> list[Part]:
    """The first frame, and the last as the goal."""
    return scene_of(ac_golden, 1)


def scene_of(golden: dict[str, Tensor], context: int) -> list[Part]:
    latents, states = golden["latents"].view(4, 16, 48).numpy(), golden["states"][0].numpy()
    tensors = {
        "latents": latents[:context].copy(),
        "states": states[:context].copy(),
        "goal_latents": latents[-1].copy(),
    }
    if context > 1:
        tensors["past_actions"] = golden["past_actions"][0, : context - 1].numpy().copy()
    return [Part("tensor", save(tensors))]


def test_a_plan_is_the_authors_plan(engine, scene, ac_golden):
    found = engine.generate(parts=scene, **GOLDEN)
    np.testing.assert_allclose(found.plan.actions, ac_golden["cem.action"], **CLOSE)
    assert [report.iteration for report in found.progress] == [0, 1, 2]
    assert found.plan.best_energies.tolist() == pytest.approx([one.best_energy for one in found.progress])
    assert found.energies.tolist() == pytest.approx([found.plan.energy])
    assert found.latents.shape == (1, 2, 16, 48)
    assert found.poses.shape == (1, 2, 7)
    assert found.landscape is None


def test_the_imagined_future_of_a_plan_is_a_rollout_of_its_actions(engine, scene, ac_golden):
    found = engine.generate(parts=scene, outputs=["plan", "latents", "poses"], **GOLDEN)
    tried = Part("tensor", save({"actions": found.plan.actions[None]}))
    rolled = engine.generate(parts=[*scene, tried], task="rollout", outputs=["latents", "poses", "energies"])
    np.testing.assert_allclose(found.latents, rolled.latents, **CLOSE)
    np.testing.assert_array_equal(found.poses, rolled.poses)
    assert found.plan.energy == pytest.approx(float(rolled.energies[0]), abs=1e-5)


def test_the_landscape_of_three_axes_is_the_authors(engine, scene, ac_golden):
    found = engine.generate(parts=scene, task="landscape", landscape_axes=["x", "y", "z"], landscape_points=3)
    assert found.landscape.axes == ["x", "y", "z"]
    assert found.landscape.ticks.tolist() == pytest.approx([-0.075, 0, 0.075])
    np.testing.assert_allclose(found.landscape.energies.flatten(), ac_golden["landscape.energy"], **CLOSE)
    lowest = ac_golden["landscape.energy"].min()
    assert found.landscape.lowest_energy == pytest.approx(float(lowest), abs=1e-5)
    assert found.picture is None  # of three axes there is none


def test_a_landscape_is_drawn_around_a_plan_and_the_plan_is_what_it_is_without(engine, scene):
    alone = engine.generate(parts=scene, outputs=["plan"], **GOLDEN)
    both = engine.generate(
        parts=scene, outputs=["plan", "landscape", "picture"], landscape_axes=["x", "gripper"], **GOLDEN
    )
    np.testing.assert_array_equal(both.plan.actions, alone.plan.actions)
    assert both.landscape.energies.shape == (9, 9)
    assert np.asarray(both.picture).shape == (512, 512, 3)


def test_after_several_observed_frames_the_landscape_is_the_same_with_and_without_a_plan(engine, ac_golden):
    """What was observed is in the cache once, whether or not a search has been there before."""
    scene = scene_of(ac_golden, 3)
    asked = {"landscape_axes": ["y"], "landscape_points": 4, "outputs": ["landscape"]}
    planned = engine.generate(parts=scene, **asked, **GOLDEN)
    alone = engine.generate(parts=scene, task="landscape", **asked)
    np.testing.assert_allclose(planned.landscape.energies, alone.landscape.energies, **CLOSE)


def test_several_plans_at_once_are_each_what_they_are_alone(engine, ac_golden):
    asked = [
        (scene_of(ac_golden, context), GOLDEN | {"seed": seed, "samples": samples, "outputs": ["plan"]})
        for seed, samples, context in ((0, 16, 1), (1, 9, 3), (2, 12, 1), (3, 16, 2))
    ]

    def plan(each: tuple[list[Part], dict[str, Any]]) -> np.ndarray:
        return engine.generate(parts=each[0], **each[1]).plan.actions

    alone = [plan(each) for each in asked]
    with ThreadPoolExecutor(len(asked)) as threads:
        together = list(threads.map(plan, asked))
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, **CLOSE)
    assert not np.allclose(alone[0], alone[2])


REFUSED = [
    (
        {"task": "rollout"},
        "iterations",
        "iterations is an option of the task plan or control, and the task here is rollout",
    ),
    ({"pooled": True}, "pooled", "pooled is an option of the task encode, and the task here is plan"),
    ({"landscape_points": 5}, "landscape_points", "no landscape is asked for; say its landscape_axes"),
    ({"samples": 8, "topk": 9}, "topk", "topk is 9, but only 8 samples are drawn"),
    ({"topk": 1}, "topk", "topk"),
    ({"horizon": 2, "close_gripper": 2}, "close_gripper", "the steps of a plan with horizon 2 are 0 to 1"),
    ({"landscape_axes": ["x", "x"]}, "landscape_axes", "an axis twice"),
    ({"landscape_axes": ["roll"]}, "landscape_axes", "roll"),
    (
        {"landscape_axes": ["x", "y", "z"], "landscape_points": 17},
        "landscape_points",
        "17 points along each of 3 axes has 4913 points, and it may have 4096",
    ),
]


@pytest.mark.parametrize(("changes", "param", "told"), REFUSED)
def test_options_that_do_not_go_together_are_refused_by_name(engine, scene, changes, param, told):
    with pytest.raises(BadRequest) as refused:
        engine.generate(parts=scene, **(GOLDEN | changes))
    assert refused.value.param == param
    assert told in str(refused.value)
