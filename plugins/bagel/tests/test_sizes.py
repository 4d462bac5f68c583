"""What a size is made before the model sees it, and which sizes can be painted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walk_plugin_bagel.resize import Canvas, resized
from walk_plugin_bagel.settings import Limits, Preprocessing, read_preprocessing, read_settings
from walkserve_sdk import BadRequest, Checkpoint, LoadError

DATA = Path(__file__).parent / "data"
PUBLISHED = Preprocessing()
CANVAS = Canvas(16, 1024)


@pytest.mark.parametrize("limits", ["real", "small"])
def test_sizes_become_the_references(said, limits):
    if limits == "real":
        images = PUBLISHED
    else:
        images = read_preprocessing(Checkpoint({"main": DATA / "golden"}))
    assert len(said["resize"][limits]) == 19
    for row in said["resize"][limits]:
        size = tuple(row["wh"])
        once = resized(size, images.vae_transform)
        assert list(once) == row["vae1"]
        assert list(resized(once, images.vae_transform)) == row["vae2"]
        assert list(resized(once, images.vit_transform)) == row["vit"]
        assert list(resized(size, images.vit_transform)) == row["vit_direct"]


@given(st.integers(1, 9000), st.integers(1, 9000))
def test_whatever_its_size_an_image_has_a_position_for_every_token(width, height):
    once = resized((width, height), PUBLISHED.vae_transform)
    assert all(side % 16 == 0 and 16 <= side <= 1024 for side in once)
    assert all(side % 14 == 0 and 14 <= side <= 980 for side in resized(once, PUBLISHED.vit_transform))


def test_a_size_that_can_be_painted_is_the_one_that_was_asked_for():
    assert CANVAS.read("1024x768") == (1024, 768)
    assert CANVAS.read("16x1024") == (16, 1024)


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("1000x768", "992x768, 1008x768"),
        ("1000x600", "992x592, 992x608, 1008x592, 1008x608"),
        ("2000x1024", "1024x1024"),
        ("0x100", "16x96, 16x112"),
    ],
)
def test_one_that_cannot_is_refused_with_those_that_are_nearest(asked, near):
    with pytest.raises(
        BadRequest, match=f"multiples of 16, of at most 1024; nearest to it: {near}$"
    ) as refused:
        CANVAS.read(asked)
    assert refused.value.param == "size"


@pytest.mark.parametrize(
    "asked", ["", "1024", "1024x", "x", "1024X768", "-16x16", "16.0x16", "٣x16", "9" * 5000 + "x16"]
)
def test_what_is_no_size_is_refused_with_an_example(asked):
    with pytest.raises(BadRequest, match="write WIDTHxHEIGHT, such as '1024x768'"):
        CANVAS.read(asked)


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_what_is_offered_instead_can_be_painted_and_nothing_is_nearer(width, height):
    near = CANVAS.near((width, height))
    assert all(CANVAS.near(each) == [each] for each in near)
    far = [abs(each[0] - width) + abs(each[1] - height) for each in near]
    assert far == sorted(far)
    sides = range(16, 1025, 16)
    assert far[0] == min(abs(side - width) for side in sides) + min(abs(side - height) for side in sides)


# --- where limits come from ---------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Checkpoint:
    """The golden checkpoint's files but the VAE's, to be changed."""
    for path in (DATA / "golden").iterdir():
        if path.name != "ae.safetensors":
            shutil.copy(path, tmp_path / path.name)
    return Checkpoint({"main": tmp_path}, "a copy")


def _change(checkpoint: Checkpoint, name: str, **changes: object) -> None:
    path = checkpoint.folder() / name
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes))


def test_limits_are_those_beside_the_checkpoint_or_the_published_ones(copy):
    assert read_preprocessing(copy) == Preprocessing(Limits(128, 64, 16), Limits(112, 56, 14))
    (copy.folder() / "preprocessor_config.json").unlink()
    assert read_preprocessing(copy) == Preprocessing(Limits(1024, 512, 16), Limits(980, 224, 14)) == PUBLISHED
    assert read_settings(copy).largest_side == 1024


def test_a_vae_that_the_files_do_not_describe_is_that_of_flux(copy):
    _change(copy, "config.json", vae_config={"z_channels": 16, "downsample": 8})
    vae = read_settings(copy).glue.vae_config
    assert (vae.ch, vae.ch_mult, vae.num_res_blocks) == (128, (1, 2, 4, 4), 2)
    assert (vae.scale_factor, vae.shift_factor) == (0.3611, 0.1159)


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        (
            "preprocessor_config.json",
            {"vae_transform": {"max_size": 2048, "min_size": 64, "stride": 16}},
            "images for the VAE may have 2048 pixels a side, but there are positions for 1024",
        ),
        (
            "preprocessor_config.json",
            {"vit_transform": {"max_size": 994, "min_size": 56, "stride": 14}},
            "images for the ViT may have 994 pixels a side, but there are positions for 980",
        ),
        (
            "preprocessor_config.json",
            {"vae_transform": {"max_size": 128, "min_size": 64, "stride": 8}},
            "images for the VAE come in 8 pixels, but a latent token is 16",
        ),
        (
            "vit_config.json",
            {"image_size": 224},
            "the ViT has 256 positions of its own, but 4900 where it is joined",
        ),
        ("llm_config.json", {"hidden_act": "gelu"}, "hidden_act is 'gelu', and only 'silu' is known"),
        ("llm_config.json", {"num_key_value_heads": 3}, "4 attention heads cannot share 3 heads of keys"),
        (
            "config.json",
            {"vae_config": {"downsample": 4}},
            "a VAE of 4 levels makes images 8 times smaller, not 4",
        ),
        ("llm_config.json", {"hidden_size": "64"}, "llm_config.json is not what BAGEL needs: Expected `int`"),
        ("vit_config.json", {"num_hidden_layers": 1}, "vit_config.json is not what BAGEL needs"),
    ],
)
def test_files_that_cannot_be_meant_are_refused_with_what_is_wrong(copy, name, changes, told):
    _change(copy, name, **changes)
    with pytest.raises(LoadError, match=told):
        read_settings(copy)
