"""The goldens once more, asked of an engine: parts in, results out, candidates on forks of the runtime's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from safetensors.torch import save
from torch import Tensor
from vjepa2_goldens import DATA

from walkserve import Engine
from walkserve_sdk import BadRequest, ContextLengthExceeded, Part


@pytest.fixture(scope="module")
def video() -> Iterator[Engine]:
    with Engine(f"vjepa2={DATA / 'base'}", device="cpu", dtype="float32") as engine:
        yield engine


@pytest.fixture(scope="module")
def world() -> Iterator[Engine]:
    with Engine(f"vjepa2-ac={DATA / 'ac'}", device="cpu", dtype="float32") as engine:
        yield engine


def tensors(**given: Tensor) -> Part:
    return Part("tensor", save({name: tensor.contiguous() for name, tensor in given.items()}))


def scene(golden: dict[str, Tensor], context: int, horizon: int, **more: Tensor) -> Part:
    """The first frames of the golden clip, and what the authors' rollout of this size went on with."""
    return tensors(
        latents=golden["latents"].view(4, 16, 48)[:context],
        states=golden["states"][0, :context],
        past_actions=golden["past_actions"][0, : context - 1],
        actions=golden[f"T{context}.H{horizon}.actions"][:, context - 1 :],
        **more,
    )


def near(made: np.ndarray, golden: Tensor) -> bool:
    return made.size == golden.numel() and np.abs(made - golden.numpy().reshape(made.shape)).max() <= 1e-5


def test_a_clips_latents_and_hidden_places_are_transformers(video, base_golden):
    clip = base_golden["pixel_values_videos"][0]
    asked = tensors(
        pixel_values_videos=clip, context=base_golden["context"][0], target=base_golden["target"][0]
    )
    result = video.generate(parts=(asked,))
    assert result.latents.shape == (64, 48)
    assert near(result.latents, base_golden["encoder"])
    assert near(result.predicted, base_golden["predicted"])
    alone = video.generate(parts=(tensors(pixel_values_videos=clip),), outputs=("predicted",))
    assert near(alone.predicted, base_golden["predicted_default_masks"])


def test_a_single_frame_is_a_clip_and_may_be_pooled(video, base_golden):
    frame = tensors(pixel_values_videos=base_golden["pixel_values_videos"][0, :1])
    result = video.generate(parts=(frame,), outputs=("latents",))
    assert near(result.latents, base_golden["encoder_one_frame"])
    pooled = video.generate(parts=(frame,), outputs=("latents",), pooled=True)
    assert near(pooled.latents, base_golden["encoder_one_frame"][0].mean(dim=0))


@pytest.mark.parametrize("context", [1, 3])
@pytest.mark.parametrize("horizon", [1, 2, 4, 8])
def test_every_candidates_future_is_the_authors(world, ac_golden, context, horizon):
    golden = {name: ac_golden[f"T{context}.H{horizon}.{name}"] for name in ("z", "s", "energy")}
    goal = ac_golden["latents"].view(4, 16, 48)[-1]
    asked = scene(ac_golden, context, horizon, goal_latents=goal)
    result = world.generate(parts=(asked,), outputs=("latents", "poses", "energies"))
    assert result.latents.shape == (len(golden["z"]), horizon, 16, 48)
    assert near(result.latents, golden["z"])
    assert np.array_equal(result.poses, golden["s"].numpy())
    assert near(result.energies, golden["energy"])


def test_without_a_goal_there_are_no_energies(world, ac_golden):
    result = world.generate(parts=(scene(ac_golden, 1, 2),), outputs=("latents", "energies"))
    assert near(result.latents, ac_golden["T1.H2.z"])
    assert result.energies is None


def test_beyond_the_models_frames_both_numbers_are_said(world, ac_golden):
    states, latents = ac_golden["states"][0], ac_golden["latents"].view(4, 16, 48)
    for horizon, refused in ((29, True), (28, False)):
        asked = tensors(
            latents=latents,
            states=states,
            past_actions=ac_golden["past_actions"][0],
            actions=ac_golden["T1.H1.actions"][:1].expand(1, horizon, 7),
        )
        if not refused:
            assert world.generate(parts=(asked,), outputs=("latents",)).latents.shape[1] == horizon
            continue
        with pytest.raises(ContextLengthExceeded, match="of 29 are 33 frames, and this model sees 32"):
            world.generate(parts=(asked,), outputs=("latents",))


def test_a_rollouts_horizon_is_said_by_its_actions_alone(world, ac_golden):
    with pytest.raises(BadRequest, match="as long as its actions, here 2 steps; leave horizon out"):
        world.generate(parts=(scene(ac_golden, 1, 2),), outputs=("latents",), horizon=3)
