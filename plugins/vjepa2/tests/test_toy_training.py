"""The toy is made from nothing by the served modules, and what is made is what is shipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import dot_world
import numpy as np
import pytest
import torch
from torch import Tensor
from vjepa2_goldens import CPU, World

import walk_plugin_vjepa2.toy as toy
from walk_plugin_vjepa2.encoder import FrameEncoder
from walk_plugin_vjepa2.predictor import ActionPredictor
from walk_plugin_vjepa2.renaming import encoder_names
from walk_plugin_vjepa2.toy import train
from walk_plugin_vjepa2.toy.dots import after, episodes, pictures
from walk_plugin_vjepa2.toy.saving import NAME, authors_names
from walk_plugin_vjepa2.toy.train_predictor import predicted, untrained
from walkserve_sdk import Checkpoint

TOY = Path(toy.__file__).parent
FILES = {NAME, "config.json", "video_preprocessor_config.json"}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    train.make(folder, seed=0, is_quick=True)
    return folder


def checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint({"main": folder}, label=str(folder))


def stored(folder: Path) -> dict[str, dict[str, Tensor]]:
    return torch.load(folder / NAME, weights_only=True)


def test_training_writes_every_file_of_the_shipped_checkpoint(made: Path):
    assert {path.name for path in made.iterdir()} == FILES
    for name in FILES - {NAME}:
        assert json.loads((made / name).read_text()) == json.loads((TOY / name).read_text())


def test_what_was_written_is_16_bit_and_has_the_shipped_names_and_shapes(made: Path):
    def kinds(folder: Path) -> dict[str, dict[str, tuple[torch.dtype, torch.Size]]]:
        parts = stored(folder)
        return {part: {name: (t.dtype, t.shape) for name, t in parts[part].items()} for part in parts}

    assert kinds(made) == kinds(TOY)
    assert {dtype for part in kinds(made).values() for dtype, _ in part.values()} == {torch.bfloat16}


def test_the_authors_names_lead_back_to_those_they_were_made_of():
    encoder = {"layer.0.attention.proj.bias": torch.ones(3), "layernorm.weight": torch.ones(3)}
    encoder |= {
        f"layer.0.attention.{part}.weight": torch.full((2, 3), float(index))
        for index, part in enumerate(("query", "key", "value"))
    }
    named = authors_names(encoder)
    assert set(named) == {"blocks.0.attn.qkv.weight", "blocks.0.attn.proj.bias", "norm.weight"}
    again = encoder_names(named)
    assert again.keys() == encoder.keys()
    assert all(torch.equal(again[name], encoder[name]) for name in encoder)


def test_the_world_it_learns_is_the_world_it_is_judged_in():
    random = torch.Generator().manual_seed(0)
    seen, actions = episodes(4, 3, random)
    for state in seen.flatten(0, 1).double().numpy():
        drawn = pictures(torch.from_numpy(state).float()[None])[0].permute(1, 2, 0).numpy()
        assert np.abs(255 * drawn - dot_world.render(state)).max() < 0.51  # rounded there
    moved = dot_world.step(seen[0, 0].double().numpy(), actions[0, 0].double().numpy())
    assert after(seen[0, 0], actions[0, 0]).numpy() == pytest.approx(moved, abs=1e-6)
    assert torch.equal(after(seen[:, 0], actions[:, 0]), seen[:, 1])


@torch.no_grad()
def test_what_is_trained_all_frames_at_once_is_what_is_served_frame_by_frame():
    predictor = ActionPredictor.load(checkpoint(TOY), device=CPU, dtype=torch.float32)
    encoder = FrameEncoder.load(checkpoint(TOY), device=CPU, dtype=torch.float32)
    poses, actions = episodes(2, 4, torch.Generator().manual_seed(0))
    assert isinstance(encoder, FrameEncoder)
    latents = torch.randn(2, 4, 16, 96, generator=torch.Generator().manual_seed(1))
    at_once = predicted(predictor, latents[:, :3], actions, poses[:, :3])
    world = World(predictor)
    for row in range(2):
        with world.branch() as branch:
            served = world.observe(branch, latents[row, :3], actions[row], poses[row, :3])
        torch.testing.assert_close(torch.stack(served), at_once[row], atol=1e-5, rtol=0)


def test_no_frame_of_an_episode_sees_a_later_one_while_it_is_trained():
    predictor = ActionPredictor.load(checkpoint(TOY), device=CPU, dtype=torch.float32)
    poses, actions = episodes(1, 3, torch.Generator().manual_seed(0))
    latents = torch.randn(1, 2, 16, 96)
    before = predicted(predictor, latents, actions, poses[:, :2])
    latents[:, 1] += 1
    after_it = predicted(predictor, latents, actions, poses[:, :2])
    assert torch.equal(before[:, 0], after_it[:, 0])
    assert not torch.equal(before[:, 1], after_it[:, 1])


def test_gradients_reach_every_weight_but_that_of_extrinsics():
    weights, predictor = untrained(96)
    poses, actions = episodes(1, 3, torch.Generator().manual_seed(0))
    predicted(predictor, torch.randn(1, 2, 16, 96), actions, poses[:, :2]).square().sum().backward()
    without = {name for name, each in weights.named_parameters() if each.grad is None}
    assert without == {"extrinsics_encoder.weight", "extrinsics_encoder.bias"}
