"""Three layouts are read, strictly, to the same weights; what is none of them is named, with the cure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from vjepa2_goldens import AC, BASE, DATA, call, load

from walk_plugin_vjepa2.checkpoint import read_video_model, read_world_model
from walk_plugin_vjepa2.encoder import FrameEncoder, VideoEncoder
from walk_plugin_vjepa2.masked import MaskedPredictor
from walk_plugin_vjepa2.predictor import ActionPredictor
from walk_plugin_vjepa2.shapes import Stack, read_shape
from walkserve_sdk import Checkpoint, LoadError

PT = "vjepa2-ac-tiny.pt"


@pytest.fixture
def ac(tmp_path: Path) -> Checkpoint:
    """The golden world model's files, to be changed."""
    shutil.copytree(DATA / "ac", tmp_path / "ac", ignore=shutil.ignore_patterns("golden*"))
    return Checkpoint({"main": tmp_path / "ac"}, "a copy")


@pytest.fixture
def base(tmp_path: Path) -> Checkpoint:
    """The golden video model's files, to be changed."""
    shutil.copytree(DATA / "base", tmp_path / "base", ignore=shutil.ignore_patterns("golden*"))
    return Checkpoint({"main": tmp_path / "base"}, "a copy")


def rewrite(checkpoint: Checkpoint, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the ``.pt`` file holds."""
    path = checkpoint.folder() / PT
    said = torch.load(path, weights_only=True)
    change(said)
    torch.save(said, path)


def as_the_authors_publish(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """transformers' tensors by the authors' names, wrapped as theirs are."""
    parts: dict[str, dict[str, Tensor]] = {"encoder": {}, "predictor": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        rest = rest.replace("attention.", "attn.")
        if rest == "embeddings.mask_tokens":
            parts[part] |= {f"module.backbone.mask_tokens.{i}": one.clone() for i, one in enumerate(tensor)}
            continue
        if ".attn.query." in rest:
            thirds = [tensors[name.replace("query", third)] for third in ("query", "key", "value")]
            rest, tensor = rest.replace("query", "qkv"), torch.cat(thirds)
        elif ".attn.key." in rest or ".attn.value." in rest:
            continue
        if part == "encoder":
            rest = rest.replace("layer.", "blocks.").replace("layernorm.", "norm.")
            rest = rest.replace("embeddings.patch_embeddings.", "patch_embed.")
        else:
            rest = rest.replace("layer.", "predictor_blocks.").replace("layernorm.", "predictor_norm.")
            rest = rest.replace("embeddings.predictor_embeddings.", "predictor_embed.")
            rest = "predictor_proj." + rest.removeprefix("proj.") if rest.startswith("proj.") else rest
        parts[part][f"module.backbone.{rest}"] = tensor
    return {**parts, "target_encoder": parts["encoder"], "opt": {}, "epoch": 1}


def test_the_authors_file_of_a_video_model_is_transformers(base, base_golden):
    path = base.folder() / "model.safetensors"
    tensors = load_file(path)
    path.unlink()
    torch.save(as_the_authors_publish(tensors), base.folder() / "vitl.pt")
    clip = base_golden["pixel_values_videos"][0]
    (latent,) = call(load(VideoEncoder, base), "encode", clip=[clip])["latent"]
    assert torch.equal(latent, call(load(VideoEncoder, BASE), "encode", clip=[clip])["latent"][0])
    rows = {"latent": [latent], "context": [base_golden["context"][0]], "target": [base_golden["target"][0]]}
    (predicted,) = call(load(MaskedPredictor, base), "predict", **rows)["predicted"]
    assert torch.equal(predicted, call(load(MaskedPredictor, BASE), "predict", **rows)["predicted"][0])


def test_the_encoder_is_preferred_to_its_average_and_either_will_do(ac, ac_golden):
    frames = ac_golden["clip"][0].transpose(0, 1)[:1]

    def other(said: dict[str, Any]) -> None:
        said["target_encoder"] = {name: tensor + 1 for name, tensor in said["target_encoder"].items()}

    rewrite(ac, other)
    (latent,) = call(load(FrameEncoder, ac), "look", frames=[frames])["latent"]
    torch.testing.assert_close(latent, ac_golden["latents"][0, :16], atol=1e-5, rtol=0)
    rewrite(ac, lambda said: said.pop("encoder"))
    (moved,) = call(load(FrameEncoder, ac), "look", frames=[frames])["latent"]
    assert (moved - latent).abs().max() > 0.1


def test_a_position_table_that_rotations_leave_unused_is_left_behind(ac):
    names = torch.load(ac.folder() / PT, weights_only=True)["encoder"]
    assert "module.backbone.pos_embed" in names
    load(FrameEncoder, ac)


@pytest.mark.parametrize("kind", [FrameEncoder, ActionPredictor])
def test_tensors_that_do_not_fit_are_listed(ac, kind):
    part, blocks = ("encoder", "blocks") if kind is FrameEncoder else ("predictor", "predictor_blocks")

    def spoil(said: dict[str, Any]) -> None:
        prefix = "module.backbone." if part == "encoder" else "module."
        said[part].pop(f"{prefix}{blocks}.1.norm1.bias")
        said[part][f"{prefix}stranger"] = torch.zeros(1)
        said[part][f"{prefix}{blocks}.2.mlp.fc2.weight"] = torch.zeros(2, 2)

    rewrite(ac, spoil)
    with pytest.raises(LoadError) as error:
        load(kind, ac)
    message = str(error.value)
    assert f"{PT}: the {part} does not fit this model" in message
    assert "1.norm1.bias" in message.partition("missing:")[2].partition(";")[0]
    assert "unexpected: stranger" in message
    assert "2.mlp.fc2.weight (here (2, 2), the model has (" in message


def test_the_predictor_is_read_strictly_also_what_no_published_model_uses(ac):
    rewrite(ac, lambda said: said["predictor"].pop("module.extrinsics_encoder.weight"))
    with pytest.raises(LoadError, match=r"missing: extrinsics_encoder\.weight"):
        load(ActionPredictor, ac)


def test_a_folder_with_two_files_or_none_does_not_guess(ac):
    shutil.copy(ac.folder() / PT, ac.folder() / "another.pt")
    with pytest.raises(LoadError, match=r"holds 2 \.pt files, another\.pt, vjepa2-ac-tiny\.pt; which one"):
        load(ActionPredictor, ac)
    for path in ac.folder().glob("*.pt"):
        path.unlink()
    with pytest.raises(LoadError, match=r"nor a \.pt file .* it holds config\.json"):
        load(ActionPredictor, ac)


def test_the_one_family_names_the_other_where_the_checkpoint_is_its(ac, base):
    with pytest.raises(LoadError, match=r"without actions, in transformers' layout; serve.* vjepa2=.*/base"):
        read_world_model(base)
    with pytest.raises(LoadError, match=r"conditioned on actions.*serve it as vjepa2-ac=.*/ac"):
        read_video_model(ac)
    tensors = load_file(base.folder() / "model.safetensors")
    torch.save(as_the_authors_publish(tensors), base.folder() / "vitl.pt")
    with pytest.raises(LoadError, match=r"has no action_encoder; serve it as vjepa2=.*/base"):
        read_world_model(base)


def test_a_fine_tuned_classifier_is_refused(base):
    path = base.folder() / "model.safetensors"
    save_file(load_file(path) | {"classifier.weight": torch.zeros(2, 2)}, path)
    with pytest.raises(LoadError, match=r"classifier\.weight.*a fine-tuned classifier is not served"):
        load(VideoEncoder, base)


def test_what_is_no_checkpoint_is_named(ac):
    path = ac.folder() / PT
    path.write_bytes(b"no zip at all")
    with pytest.raises(LoadError, match="cannot be read as a PyTorch checkpoint"):
        load(ActionPredictor, ac)
    torch.save([1, 2], path)
    with pytest.raises(LoadError, match="holds a list; a mapping with encoder and predictor is needed"):
        load(ActionPredictor, ac)
    torch.save({"model": {}}, path)
    with pytest.raises(LoadError, match="has no encoder and no target_encoder; it has model"):
        load(ActionPredictor, ac)


# --- shapes -------------------------------------------------------------------------------------------------


def test_both_spellings_of_a_world_models_configuration_are_one(tmp_path):
    nested = {
        "img_size": 64,
        "patch_size": 16,
        "tubelet_size": 2,
        "encoder": {"embed_dim": 48, "depth": 3, "num_heads": 3, "mlp_ratio": 4.363636363636363},
        "predictor": {
            "predictor_embed_dim": 64,
            "depth": 3,
            "num_heads": 4,
            "mlp_ratio": 4,
            "num_frames": 64,
            "is_frame_causal": True,
            "use_rope": True,
            "use_extrinsics": False,
        },
        "layer_norm_eps": 1e-06,
    }
    (tmp_path / "config.json").write_text(json.dumps(nested))
    shape = read_shape(tmp_path)
    assert shape == read_shape(DATA / "ac")
    assert (shape.encoder, shape.predictor) == (Stack(48, 3, 3, 209), Stack(64, 3, 4, 256))
    assert (shape.steps, shape.patches, shape.step_tokens) == (32, 16, 18)


def test_transformers_configuration_is_the_same_thing_again():
    shape = read_shape(DATA / "base")
    assert (shape.encoder, shape.predictor) == (Stack(48, 3, 3, 209), Stack(24, 2, 2, 96))
    assert (shape.image, shape.grid, shape.frames) == (64, 4, 64)


def test_the_published_models_need_no_configuration(ac, tmp_path):
    """Heads are those of the width; the rest is in the tensors' shapes and in what is published."""
    (ac.folder() / "config.json").unlink()

    def widen(said: dict[str, Any]) -> None:
        said["encoder"]["module.backbone.patch_embed.proj.weight"] = torch.zeros(1408, 3, 2, 16, 16)
        said["encoder"]["module.backbone.blocks.0.mlp.fc1.weight"] = torch.zeros(6144, 1)
        said["predictor"]["module.predictor_embed.weight"] = torch.zeros(1024, 1408)
        said["predictor"]["module.predictor_blocks.0.mlp.fc1.weight"] = torch.zeros(4096, 1)

    rewrite(ac, widen)
    shape = read_world_model(ac).shape
    assert (shape.encoder, shape.predictor) == (Stack(1408, 3, 22, 6144), Stack(1024, 3, 16, 4096))
    assert (shape.image, shape.patch, shape.tubelet, shape.steps) == (256, 16, 2, 32)
    assert shape.step_tokens == 258


def test_a_file_of_384_pixels_says_so_in_its_name(tmp_path):
    assert read_shape(tmp_path).image == 256
    (tmp_path / "vitg-384.pt").touch()
    assert read_shape(tmp_path).image == 384


def test_heads_that_nobody_tells_are_asked_for(ac):
    (ac.folder() / "config.json").unlink()
    with pytest.raises(LoadError, match=r"how many heads the encoder has.*48 wide.*put a config\.json"):
        load(FrameEncoder, ac)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"use_rope": False}, "use_rope is false"),
        ({"is_frame_causal": False}, "is_frame_causal is false"),
        ({"use_extrinsics": True}, "extrinsics are no input of this family"),
        ({"img_size": 60}, "60 pixels are no whole patches of 16"),
        ({"num_frames": 1}, "1 frames are less than a tubelet's 2"),
        ({"depth": "three"}, "cannot be read"),
        ([1], "holds a list"),
    ],
)
def test_a_configuration_that_cannot_be_served_is_refused(tmp_path, said, why):
    config = json.loads((DATA / "ac" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | said if isinstance(said, dict) else said))
    with pytest.raises(LoadError, match=why):
        read_shape(tmp_path)


def test_weights_of_sixteen_bits_are_served_in_the_type_that_is_asked_for(ac):
    def halve(said: dict[str, Any]) -> None:
        for part in ("encoder", "predictor"):
            said[part] = {name: tensor.bfloat16() for name, tensor in said[part].items()}

    rewrite(ac, halve)
    predictor = load(ActionPredictor, ac)
    assert {each.dtype for each in predictor._weights.parameters()} == {torch.float32}


def test_the_golden_folders_are_whole():
    assert read_world_model(AC).is_conditioned
    assert not read_video_model(BASE).is_conditioned
