"""Futures rolled out from the cache are those of the authors, who compute every frame again at each step."""

from __future__ import annotations

import pytest
import torch
from vjepa2_goldens import AC, World, load

from walk_plugin_vjepa2.predictor import ActionPredictor

CLOSE = {"atol": 1e-5, "rtol": 0}


def test_every_frame_of_an_observed_scene_predicts_the_next(world, ac_golden):
    """Teacher forcing: each step sees the true frames so far, not what was predicted of them."""
    latents = ac_golden["latents"].view(4, 16, 48)
    past = ac_golden["past_actions"][0]
    with world.branch() as branch:
        made = world.observe(branch, latents, torch.cat([past, past[:1]]), ac_golden["states"][0])
        assert branch.table.length == 4 * 18
    expected = torch.nn.functional.layer_norm(ac_golden["teacher.z"].view(4, 16, 48), (48,))
    torch.testing.assert_close(torch.stack(made), expected, **CLOSE)


@pytest.mark.parametrize("context", [1, 3])
@pytest.mark.parametrize("horizon", [1, 2, 4, 8])
def test_every_candidates_future_is_the_authors(world, ac_golden, context, horizon):
    golden = {name: ac_golden[f"T{context}.H{horizon}.{name}"] for name in ("actions", "z", "s", "energy")}
    count = len(golden["actions"])
    latents, states = ac_golden["latents"].view(4, 16, 48), ac_golden["states"][0]
    now = context - 1
    with world.branch() as branch:
        world.observe(branch, latents[:now], ac_golden["past_actions"][0, :now], states[:now])
        with world.forks(branch, count) as rows:
            z, s = [latents[now]] * count, [states[now]] * count
            for step in range(horizon):
                z, s = world.step(rows, z, list(golden["actions"][:, now + step]), s)
                expected = golden["z"].view(count, horizon, 16, 48)[:, step]
                torch.testing.assert_close(torch.stack(z), expected, **CLOSE)
                assert torch.equal(torch.stack(s), golden["s"][:, step])
    energies = (torch.stack(z) - latents[-1]).abs().mean(dim=(1, 2))
    torch.testing.assert_close(energies, golden["energy"], **CLOSE)


def test_the_first_columns_of_a_candidates_actions_are_what_was_done_before(ac_golden):
    """So the authors' batch of whole sequences and a fork of what was observed are one thing."""
    for horizon in (1, 2, 4, 8):
        before = ac_golden[f"T3.H{horizon}.actions"][:, :2]
        assert torch.equal(before, ac_golden["past_actions"][:, :2].expand_as(before))


def test_rows_of_several_lengths_step_in_one_batch_each_as_alone(world, ac_golden):
    latents, states = ac_golden["latents"].view(4, 16, 48), ac_golden["states"][0]
    past = ac_golden["past_actions"][0]
    action = ac_golden["T1.H1.actions"][0, 0]
    with world.branch() as short, world.branch() as long:
        world.observe(short, latents[:1], past[:1], states[:1])
        world.observe(long, latents[:3], past[:3], states[:3])
        rows = [short, long]
        with world.forks(short, 1) as (a,), world.forks(long, 1) as (b,):
            alone = [
                world.step([row], [latents[at]], [action], [states[at]])[0][0] for row, at in ((a, 1), (b, 3))
            ]
        together, _ = world.step(rows, [latents[1], latents[3]], [action] * 2, [states[1], states[3]])
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def test_padded_to_tiles_a_row_has_the_same_bits_in_any_batch(predictor, ac_golden):
    """Deterministic: 18 tokens are padded to 20, five rows' 90 to 92."""
    world = World(predictor, tile=4)
    actions, state = ac_golden["T1.H1.actions"][:, 0], ac_golden["states"][0, 0]
    latent = ac_golden["latents"].view(4, 16, 48)[0]
    with world.branch() as branch, world.forks(branch, 5) as rows:
        several = [*actions, actions[0]]
        together, _ = world.step(rows, [latent] * 5, several, [state] * 5)
        for action, row in zip(several, together, strict=True):
            with world.forks(branch, 1) as alone:
                assert torch.equal(world.step(alone, [latent], [action], [state])[0][0], row)
    torch.testing.assert_close(torch.stack(together[:4]), ac_golden["T1.H1.z"], **CLOSE)


def test_in_bfloat16_a_future_is_near_the_authors(ac_golden):
    """Keys and values have the cache's type, latents are float32 whatever computed them."""
    world = World(load(ActionPredictor, AC, torch.bfloat16), dtype=torch.bfloat16)
    latent, state = ac_golden["latents"].view(4, 16, 48)[0], ac_golden["states"][0, 0]
    with world.branch() as branch:
        (made,), (pose,) = world.step([branch], [latent], [ac_golden["T1.H1.actions"][0, 0]], [state])
    assert made.dtype == pose.dtype == torch.float32
    assert (made - ac_golden["T1.H1.z"][0]).abs().max() < 0.2
    assert torch.equal(pose, ac_golden["T1.H1.s"][0, 0])
