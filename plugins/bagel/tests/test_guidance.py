"""When a picture is guided, and by how much; how it begins, and how it goes on."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from walk_plugin_bagel import Bagel
from walk_plugin_bagel.guidance import guided
from walk_plugin_bagel.schedule import Schedule, make_schedule, previewing
from walkserve.worker.live import Branch


def test_guidance_is_the_references_in_all_its_kinds(said, tensors):
    assert len(said["guide"]) == 21
    for number, case in enumerate(said["guide"]):
        by_images = case["cfg_img_scale"] > 1
        mixed = guided(
            tensors["guide/v"],
            tensors["guide/vt"],
            tensors["guide/vi"] if by_images else None,
            cfg_text_scale=case["cfg_text_scale"],
            cfg_img_scale=case["cfg_img_scale"],
            cfg_renorm_type=case["kind"],
            cfg_renorm_min=case["cfg_renorm_min"],
        )
        assert (mixed - tensors[f"guide/out{number}"]).abs().max() <= 1e-5


def _schedule(**changes: object) -> Schedule:
    asked = {
        "num_timesteps": 50,
        "timestep_shift": 3.0,
        "cfg_text_scale": 4.0,
        "cfg_img_scale": 1.5,
        "cfg_interval": (0.4, 1.0),
    }
    return make_schedule(**asked | changes)


@settings(max_examples=50)
@given(st.integers(2, 1000), st.floats(0.1, 20))
def test_timesteps_are_torchs_to_the_bit(count, shift):
    uniform = torch.linspace(1, 0, count)
    times = shift * uniform / (1 + (shift - 1) * uniform)
    schedule = _schedule(num_timesteps=count, timestep_shift=shift)
    assert schedule.timesteps == times[:-1].tolist()
    assert schedule.steps == (times[:-1] - times[1:]).tolist()


def test_fifty_timesteps_are_forty_nine_steps_of_which_the_defaults_guide_forty_one():
    schedule = _schedule()
    assert (len(schedule.timesteps), sum(schedule.guided), sum(schedule.guided_by_images)) == (49, 41, 41)
    assert schedule.guided == [True] * 41 + [False] * 8


def test_an_interval_leaves_its_lower_end_out_and_its_upper_end_in():
    schedule = _schedule(num_timesteps=9, cfg_interval=(0.75, 0.9))
    guided_at = [time for time, on in zip(schedule.timesteps, schedule.guided, strict=True) if on]
    assert guided_at == pytest.approx([0.9, 0.8333333])


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_without_guidance_by_text_images_do_not_guide_either(scale):
    schedule = _schedule(cfg_text_scale=scale, cfg_img_scale=2.0)
    assert not any(schedule.guided + schedule.guided_by_images)
    assert not any(_schedule(cfg_img_scale=1.0).guided_by_images)


# --- noise --------------------------------------------------------------------------------------------


def test_one_generator_draws_the_noise_of_each_image_in_order_and_then_what_the_picture_begins_as(bench):
    torch.manual_seed(5)
    expected = [
        torch.randn(1, 16, 12, 16)[0],
        torch.randn(1, 16, 8, 5)[0],
        torch.randn(40, 64).view(8, 5, 64),
    ]
    solver = Branch(None)
    drawn = [
        bench.call("solver.posterior", solver, seed=5, size=(128, 96))["noise"],
        bench.call("solver.posterior", solver, seed=5, size=(40, 64))["noise"],
        bench.call("solver.noise", solver, seed=5, size=(80, 128))["latents"],
    ]
    assert all(torch.equal(here, there) for here, there in zip(drawn, expected, strict=True))


def test_what_one_request_draws_is_no_matter_of_who_draws_beside_it(bench):
    alone = [bench.call("solver.noise", seed=seed, size=(64, 64))["latents"] for seed in (0, 1)]
    beside = bench.rows("solver.noise", [(Branch(None), {"seed": seed, "size": (64, 64)}) for seed in (0, 1)])
    assert all(torch.equal(one, two["latents"]) for one, two in zip(alone, beside, strict=True))
    assert not torch.equal(*alone)


# --- steps --------------------------------------------------------------------------------------------


def test_a_picture_is_as_long_as_all_of_it_and_not_as_its_batch(bench):
    """``global`` measures one picture; a batch of several leaves each what it is alone."""
    options = dataclasses.replace(
        Bagel.Options(), cfg_text_scale=4.0, cfg_img_scale=1.5, cfg_renorm_type="global"
    )
    generator = torch.Generator().manual_seed(0)
    rows = [
        {
            name: torch.randn(2, 3, 64, generator=generator) * scale
            for name in ("latents", "full", "no_text", "no_image")
        }
        | {"t": 0.5, "step": 0.1}
        for scale in (1, 30)
    ]
    rows[1]["no_image"] = None
    together = bench.rows("solver.step", [(Branch(None), row) for row in rows], options=options)
    for row, given_out in zip(rows, together, strict=True):
        alone = bench.call("solver.step", options=options, **row)["latents"]
        assert torch.equal(given_out["latents"], alone)


def test_without_guidance_a_step_is_eulers(bench):
    latents, velocity = torch.ones(1, 2, 64), torch.full((1, 2, 64), 0.5)
    stepped = bench.call(
        "solver.step", latents=latents, t=0.75, step=0.25, full=velocity, no_text=None, no_image=None
    )
    assert torch.equal(stepped["latents"], latents - velocity * 0.25)
    assert torch.equal(stepped["likely"], latents - velocity * 0.75)  # all the way


@pytest.mark.parametrize(
    ("steps", "times", "after"),
    [(49, 0, []), (49, 1, [24]), (49, 3, [12, 24, 37]), (3, 2, [1, 2]), (2, 3, [1]), (1, 3, [])],
)
def test_previews_come_at_even_distances_and_before_the_picture(steps, times, after):
    shown = previewing(steps, times)
    assert len(shown) == steps
    assert [done for done, is_shown in enumerate(shown, start=1) if is_shown] == after
