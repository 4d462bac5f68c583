"""Pixels become what the encoder was trained on; the two ways are told apart."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from vjepa2_goldens import DATA

from walk_plugin_vjepa2.preprocessing import (
    FILE,
    Look,
    as_the_authors_planner_does,
    as_transformers_does,
    read_look,
)
from walkserve_sdk import LoadError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LOOK = Look(64, MEAN, STD)
PLAIN = Look(64, (0.0,) * 3, (1 / 255,) * 3)
"""With this, what comes out are the pixels themselves."""


def picture(height: int, width: int) -> torch.Tensor:
    """(1, 3, height, width) uint8, smooth with some grain."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    grain = torch.rand(3, height, width, generator=torch.Generator().manual_seed(0)) * 40
    channels = torch.stack([y * 200, x * 200, (x + y) * 100]) + grain
    return channels.clamp(0, 255).to(torch.uint8)[None]


@pytest.mark.parametrize("size", [(120, 160), (160, 120), (73, 73), (40, 90), (73, 200)])
def test_as_transformers_the_shorter_side_becomes_eight_sevenths_and_the_middle_is_kept(size):
    """Pillow's bilinear filter is the antialiased one; it rounds twice, so it may be one level apart."""
    frames = picture(*size)
    made = as_transformers_does(frames, PLAIN)
    height, width = size
    short = min(size)
    resized = Image.fromarray(frames[0].permute(1, 2, 0).numpy()).resize(
        (int(73 * width / short), int(73 * height / short)), Image.Resampling.BILINEAR
    )
    left, top = (int((side - 64) / 2) for side in resized.size)
    expected = np.asarray(resized.crop((left, top, left + 64, top + 64))).astype(np.float32)
    assert made.shape == (1, 3, 64, 64)
    assert torch.equal(made.round(), made.clamp(0, 255)) or made.sub(made.round()).abs().max() < 1e-4
    assert np.abs(made[0].permute(1, 2, 0).numpy() - expected).max() <= 1.01


def test_without_resizing_pixels_are_only_cropped_and_normed():
    frames = picture(73, 80)
    made = as_transformers_does(frames, LOOK)
    expected = (frames[:, :, 4:68, 8:72] / 255.0 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(
        3, 1, 1
    )
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=0)


def test_the_authors_planner_takes_the_middle_square_and_does_not_antialias():
    frames = picture(128, 200)
    made = as_the_authors_planner_does(frames, PLAIN)
    # half the size, not antialiased: the mean of the four pixels around each place
    square = frames[:, :, :, 36:164].float()
    expected = torch.nn.functional.avg_pool2d(square, 2)
    torch.testing.assert_close(made, expected, atol=1e-3, rtol=0)


def test_what_has_the_size_already_is_only_normed():
    frames = picture(64, 64)
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))
    expected = (frames.float() - 255 * mean) / (255 * std)
    assert torch.equal(as_the_authors_planner_does(frames, LOOK), expected)


def test_the_two_ways_are_not_each_others():
    frames = picture(240, 320)
    ours, theirs = as_the_authors_planner_does(frames, LOOK), as_transformers_does(frames, LOOK)
    assert (ours - theirs).abs().max() > 0.1


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (2, 3)])
def test_odd_sizes_come_out_square(size):
    for transform in (as_transformers_does, as_the_authors_planner_does):
        made = transform(picture(*size), LOOK)
        assert made.shape == (1, 3, 64, 64)
        assert made.isfinite().all()


def test_mean_and_deviation_come_from_the_checkpoints_file(tmp_path):
    assert read_look(DATA / "base", 64) == Look(64, MEAN, STD)
    assert read_look(tmp_path, 256) == Look(256, MEAN, STD)
    said = {"image_mean": [0.45] * 3, "image_std": [0.25] * 3, "do_resize": True}
    (tmp_path / FILE).write_text(json.dumps(said))
    assert read_look(tmp_path, 64) == Look(64, (0.45,) * 3, (0.25,) * 3)


def test_a_file_that_crops_to_another_size_than_the_encoder_takes_is_refused():
    with pytest.raises(LoadError, match="crops to 64 pixels, but the encoder takes 256"):
        read_look(DATA / "base", 256)


@pytest.mark.parametrize("said", ["{", '{"image_mean": [0.5]}', '{"image_std": "x"}'])
def test_a_file_that_is_none_is_refused(tmp_path, said):
    (tmp_path / FILE).write_text(said)
    with pytest.raises(LoadError, match="cannot be read"):
        read_look(tmp_path, 64)
