"""Every case of the reference, through the plugin's own components."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import CASES, apart, held, paint, picture, read_inputs, write


def _cases(*, paints: bool) -> list[str]:
    return [name for name, case in CASES.items() if ("gen" in case) == paints]


@pytest.mark.parametrize("name", _cases(paints=False))
def test_what_it_writes_is_what_the_reference_writes(bench, name):
    case = CASES[name]
    contexts = read_inputs(bench, case)
    assert held(contexts.main) == case["decode_start"]
    read, text, ended = write(bench, contexts, most=case["params"]["max_think_token_n"] - 1)
    assert read == case["token_ids"]
    assert ended == case["hit_eos"]
    assert text == case["outputs"][0]["text"]
    contexts.drop()
    assert bench.cache.pool.held == 0


@pytest.mark.parametrize("name", _cases(paints=True))
def test_what_it_paints_is_what_the_reference_paints(bench, tensors, name):
    case = CASES[name]
    contexts = read_inputs(bench, case)
    if case["params"].get("think"):
        assert held(contexts.main) == case["decode_start"]
        read, text, _ = write(bench, contexts, most=case["params"]["max_think_token_n"] - 1)
        assert read == case["token_ids"]
        assert text == case["outputs"][0]["text"]
        contexts.thought(text)
    contexts.end()
    for branch, there in (
        (contexts.main, "gen"),
        (contexts.no_text, "cfg_text"),
        (contexts.no_image, "cfg_img"),
    ):
        assert held(branch) == {what: case[there][what] for what in ("kv_len", "rope")}
    if contexts.size is not None:
        assert list(contexts.size) == case["image_shape"][::-1]
    painted = paint(bench, contexts)
    some = slice(None, None, 4 if name.endswith("_real") else 1)
    for of, velocity in painted.velocities.items():
        if f"{name}/v0.{of}" in tensors:
            assert apart(velocity[some], tensors[f"{name}/v0.{of}"]) <= 1e-5
    # guidance multiplies by its scale what two velocities differ by, and their rounding with it
    allowed = 1e-5 * case["params"].get("cfg_text_scale", 3.0)
    assert apart(painted.combined[some], tensors[f"{name}/v0.combined"]) <= allowed
    assert apart(painted.latents[some], tensors[f"{name}/final_latent"]) <= 1e-3
    pixels = painted.picture
    assert np.abs(pixels.astype(int) - picture(f"{name}.png")).max() <= 1
    contexts.drop()
    assert bench.cache.pool.held == 0
