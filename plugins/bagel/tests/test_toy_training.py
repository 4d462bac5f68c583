"""The toy's training: it makes a checkpoint that loads strictly, and trains what is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import Bench
from diffusers import AutoencoderKL
from safetensors import safe_open

import walk_plugin_bagel.toy as toy
from walk_plugin_bagel.mot import BagelLM
from walk_plugin_bagel.settings import read_settings
from walk_plugin_bagel.text import Tokenizer, delimiters, open_tokenizer
from walk_plugin_bagel.toy import train
from walk_plugin_bagel.toy.drawings import PROMPTS, TRAINED, digits, drawn, said
from walk_plugin_bagel.toy.judge import Judge
from walk_plugin_bagel.toy.practice import Practice
from walk_plugin_bagel.toy.saving import authors_names, toy_settings
from walk_plugin_bagel.toy.score import Toy
from walk_plugin_bagel.toy.train_joint import begin_language
from walk_plugin_bagel.vae import config_of, converted
from walkserve_sdk import Checkpoint

TOY = Path(toy.__file__).parent
CHECKPOINT = Checkpoint({"main": TOY}, label="toy")
FILES = {
    "ae.safetensors",
    "config.json",
    "ema.safetensors",
    "llm_config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "vit_config.json",
}


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


@pytest.fixture(scope="module")
def served() -> Bench:
    return Bench(CHECKPOINT, pages=40)


def test_training_writes_every_file_of_the_shipped_checkpoint(made: Path):
    assert {path.name for path in made.iterdir()} == FILES
    for name in ("llm_config.json", "vit_config.json", "preprocessor_config.json"):
        assert json.loads((made / name).read_text()) == json.loads((TOY / name).read_text())


@pytest.mark.parametrize("name", ["ae.safetensors", "ema.safetensors"])
def test_what_was_written_is_16_bit_and_has_the_shipped_names_and_shapes(made: Path, name: str):
    def kinds(path: Path) -> dict[str, tuple[torch.dtype, torch.Size]]:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}

    assert kinds(made / name) == kinds(TOY / name)
    assert {dtype for dtype, _ in kinds(made / name).values()} == {torch.bfloat16}


def test_what_was_written_loads_strictly_and_paints_and_describes(made: Path):
    fresh = Toy(made)
    (picture,) = fresh.paint(["a red seven"])
    assert picture.shape == (32, 32, 3)
    assert len(fresh.describe([picture])) == 1


def test_what_is_trained_with_is_what_the_files_will_say():
    said_there, here = read_settings(CHECKPOINT), toy_settings()
    for name in ("language", "vision", "images", "latent_side", "vit_side", "latent_channels"):
        assert getattr(said_there, name) == getattr(here, name)


def test_the_authors_names_lead_back_to_those_they_were_made_of():
    said = toy_settings().glue.vae_config
    tensors = AutoencoderKL(**config_of(said)).state_dict()
    again = converted(authors_names(tensors), said, "here")
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)


@torch.inference_mode()
def test_what_is_trained_side_by_side_is_what_is_served_over_the_cache(served: Bench):
    """Prompts of several lengths; a picture that is seen, a question and a first word; and velocities."""
    tokenizer = Tokenizer.load(CHECKPOINT, device=None, dtype=None)
    blocks = [tokenizer.block(said(prompt, 7, "red")) for prompt in PROMPTS[:3]]
    assert len({len(block) for block in blocks}) > 1
    latents = torch.randn(3, 4, 4, 16, generator=torch.Generator().manual_seed(0))
    seen = torch.randn(3, 16, 128, generator=torch.Generator().manual_seed(1))
    llm = served.parts["llm"].methods["velocity"].__self__
    assert isinstance(llm, BagelLM)
    rows = Practice(3)
    llm.prefill_vit(rows.turn(seen=seen))
    llm.prefill_text(rows.turn(ids=blocks))
    at_once = llm.velocity(rows.turn(latents=latents, t=[0.3] * 3, keeps=False))["velocity"]
    for row in range(3):
        branch = served.branch()
        served.call("llm.prefill_vit", branch, seen=seen[row])
        served.call("llm.prefill_text", branch, ids=blocks[row])
        alone = served.call("llm.velocity", branch, latents=latents[row], t=0.3, keeps=False)["velocity"]
        torch.testing.assert_close(at_once[row], alone, atol=1e-5, rtol=0)


def test_what_a_turn_does_not_keep_no_later_one_sees():
    llm = BagelLM(
        begin_language(toy_settings(), 0), toy_settings().language, delimiters(open_tokenizer(CHECKPOINT))
    )
    rows, latents = Practice(2), torch.randn(2, 4, 4, 16)
    llm.prefill_text(rows.turn(ids=[[0, 5, 1], [0, 5, 6, 7, 1]]))
    once, again = (
        torch.stack(llm.velocity(rows.turn(latents=latents, t=[0.5] * 2, keeps=False))["velocity"])
        for _ in range(2)
    )
    assert torch.equal(once, again)
    llm.prefill_text(rows.turn(ids=[[0, 1], [0, 1]]))
    later = torch.stack(llm.velocity(rows.turn(latents=latents, t=[0.5] * 2, keeps=False))["velocity"])
    assert not torch.equal(once, later)


def test_gradients_reach_every_weight_but_the_tables_of_positions():
    settings = toy_settings()
    weights = begin_language(settings, 0)
    llm = BagelLM(weights, settings.language, delimiters(open_tokenizer(CHECKPOINT)))
    rows = Practice(4)
    llm.prefill_text(rows.turn(ids=[[0, 5, 1]] * 4))
    painted = llm.velocity(rows.turn(latents=torch.randn(4, 4, 4, 16), t=[0.5] * 4, keeps=False))["velocity"]
    logits = llm.logits(rows.turn(ids=[[0, 5]] * 4))
    (torch.stack(painted).square().sum() + logits.square().sum()).backward()
    without = {name for name, each in weights.named_parameters() if each.grad is None}
    assert without == {"latent_pos_embed.pos_embed"}


def test_the_tables_of_positions_are_those_of_the_shipped_checkpoint():
    table = begin_language(toy_settings(), 0).latent_pos_embed.pos_embed
    with safe_open(TOY / "ema.safetensors", framework="pt") as file:
        torch.testing.assert_close(
            table, file.get_tensor("latent_pos_embed.pos_embed").float(), atol=5e-3, rtol=0
        )


def test_the_judge_reads_digits_of_people_it_does_not_know():
    judge, known = Judge(TRAINED), digits()
    told = [judge.digit(drawn(image, "red")) for image in known.images[TRAINED:]]
    assert np.mean(told == known.labels[TRAINED:]) >= 0.96


def test_the_judge_is_not_fooled_by_noise_or_nothing():
    judge = Judge(TRAINED)
    noise = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
    told = [judge.digit(picture) for picture in noise]
    assert np.mean(np.array(told) == np.arange(100) % 10) <= 0.3
    assert judge.colour(np.zeros((32, 32, 3), np.uint8)) == "none"
