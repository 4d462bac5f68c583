"""Parts of a request become clips and scenes, or are refused with what is wrong and what is wanted."""

from __future__ import annotations

import io
import types
from typing import Any

import numpy as np
import pytest
import torch
from films import FIRST, film
from PIL import Image
from vjepa2_goldens import AC, BASE, CPU

from walk_plugin_vjepa2 import VJepa2, VJepa2AC
from walk_plugin_vjepa2.preprocessing import as_the_authors_planner_does, as_transformers_does, read_look
from walk_plugin_vjepa2.reading import ClipReader, SceneReader
from walkserve.engine.batch import TorchBatch
from walkserve.engine.held import Held
from walkserve.engine.rows import Row
from walkserve_sdk import BadRequest, Component, Part
from walkserve_sdk.arrays import write_npy, write_safetensors

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 80, 100, 3), dtype=np.uint8)


def png(pixels: np.ndarray, name: str = "") -> Part:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return Part("image", file.getvalue(), name=name)


def tensors(**arrays: np.ndarray) -> Part:
    return Part("tensor", write_safetensors(arrays))


def read(kind: type, *parts: Part, **options: Any) -> dict[str, Any]:
    """What the reader makes of one request's parts."""
    return read_rows(kind, parts, **options)[0]


def read_rows(kind: type, *requests: tuple[Part, ...], **options: Any) -> list[dict[str, Any]]:
    reader = kind.load(BASE if kind is ClipReader else AC, device=CPU, dtype=torch.float32)
    asked = (VJepa2 if kind is ClipReader else VJepa2AC).Options(**options)
    rows = [
        Row(
            {
                "kinds": [part.kind for part in parts],
                "names": [part.name for part in parts],
                "media": [part.data for part in parts],
            },
            types.SimpleNamespace(state=None),
            asked,
            (0, row),
        )
        for row, parts in enumerate(requests)
    ]
    held = Held("reader", Component("some.where:Reader"), CPU, torch.float32)
    made = reader.read(TorchBatch(held, rows, tile=1, deterministic=False))
    return [{name: column[row] for name, column in made.items()} for row in range(len(rows))]


def upright(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


# --- clips ------------------------------------------------------------------------------------------------


def test_frames_come_as_images_or_as_a_tensor_and_look_as_transformers_makes_them():
    expected = as_transformers_does(upright(PIXELS[:2]), read_look(BASE.folder(), 64))
    for parts in ([png(PIXELS[0]), png(PIXELS[1])], [tensors(frames=PIXELS[:2])]):
        made = read(ClipReader, *parts)
        assert torch.equal(made["clip"], expected)
        assert made["context"] is made["target"] is None


def test_images_of_several_sizes_are_one_clip():
    assert read(ClipReader, png(PIXELS[0]), png(PIXELS[1][:70, :66]))["clip"].shape == (2, 3, 64, 64)


def test_what_is_normed_already_is_taken_as_it_is():
    ready = np.random.default_rng(1).standard_normal((2, 3, 64, 64)).astype(np.float32)
    assert torch.equal(read(ClipReader, tensors(pixel_values_videos=ready))["clip"], torch.from_numpy(ready))


def test_masks_are_indices_of_the_clips_tokens():
    places = {"context": np.arange(20), "target": np.array([31], np.int32)}
    made = read(ClipReader, tensors(frames=PIXELS[:4], **places))
    assert made["context"].tolist() == list(range(20))
    assert made["target"].tolist() == [31]
    assert made["target"].dtype == torch.int64
    for wrong, why in (
        (np.array([32]), "from 32 to 32, and the tokens of this clip are 0 to 31"),
        (np.array([-1, 3]), "indices from -1 to 3"),
        (np.array([], np.int64), r"not int64 of shape \[0\]"),
        (np.array([[1]]), r"not int64 of shape \[1, 1\]"),
        (np.array([1.0]), "not float64"),
    ):
        with pytest.raises(BadRequest, match=why) as error:
            read(ClipReader, tensors(frames=PIXELS[:4], target=wrong))
        assert error.value.param == "target"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "a clip is needed: a video, images, or one of the tensors"),
        (
            [tensors(frames=PIXELS[:3])],
            "3 frames are given; this model takes one, or a multiple of 2 up to",
        ),
        ([tensors(frames=np.zeros((66, 2, 2, 3), np.uint8))], "66 frames are given, and this model takes 64"),
        (
            [tensors(frames=PIXELS[:2]), png(PIXELS[0])],
            "given as images and as the tensor 'frames'",
        ),
        (
            [tensors(frames=PIXELS.astype(np.float32))],
            r"is \[frames, height, width, 3\] of uint8, not",
        ),
        ([tensors(frames=PIXELS[..., :2])], r"not uint8 of shape \[6, 80, 100, 2\]"),
        ([tensors(pixel_values_videos=np.zeros((2, 3, 32, 32)))], r"this model takes \[…, 3, 64, 64\]"),
        ([tensors(pixel_values_videos=np.full((1, 3, 64, 64), np.nan))], "numbers that are not finite"),
        ([tensors(contxt=np.arange(2))], "there is no tensor 'contxt'; did you mean 'context'"),
        (
            [Part("tensor", write_npy(np.arange(2)))],
            r"the part with a \.npy file must have a name; known",
        ),
        ([png(PIXELS[0], name="goal")], "an image has no name here, or is 'frames', not 'goal'"),
        ([Part("video", b"x", name="left")], "a video has no name here, not 'left'"),
        ([Part("video", b"x"), Part("video", b"x")], "one video is taken, 2 were given"),
        ([tensors(frames=PIXELS), tensors(frames=PIXELS)], "the tensor 'frames' is given twice"),
        ([Part("image", b"no image")], "image"),
    ],
)
def test_a_clip_that_is_none_is_refused(parts, why):
    with pytest.raises(BadRequest, match=why):
        read(ClipReader, *parts)


def test_a_npy_file_is_called_as_its_part_is():
    part = Part("tensor", write_npy(PIXELS[:2]), name="frames")
    assert read(ClipReader, part)["clip"].shape == (2, 3, 64, 64)


def test_rows_of_several_requests_are_read_in_one_call():
    clips = read_rows(ClipReader, (png(PIXELS[0]),), (tensors(frames=PIXELS[:4]),))
    assert [len(row["clip"]) for row in clips] == [1, 4]


@pytest.mark.parametrize(("frames", "taken"), [(1, 1), (2, 2), (7, 6), (64, 64), (130, 64)])
def test_of_a_video_as_many_frames_are_taken_as_fill_tubelets(frames, taken):
    """Spread over all of it: of 130 the last one taken is the 128th."""
    clip = read(ClipReader, video(frames))["clip"]
    assert clip.shape == (taken, 3, 64, 64)
    grey = (clip * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)).mean(
        dim=(1, 2, 3)
    ) * 255
    last = {130: 127, 7: 5}.get(frames, frames - 1)
    assert grey[0] == pytest.approx(40, abs=3)
    assert grey[-1] == pytest.approx(40 + last, abs=3)


def video(frames: int, **more) -> Part:
    return Part("video", film(frames, **more))


def greys(made: torch.Tensor) -> list[int]:
    """Which frames these are of a film whose greys are 10 apart."""
    shown = made * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    return (shown.mean(dim=(1, 2, 3)) * 255 - FIRST).div(10).round().int().tolist()


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"num_frames": 4}, [0, 5, 10, 15]),
        ({"num_frames": 4, "sampling": "ends"}, [0, 6, 12, 19]),
        ({"fps": 2}, [0, 5, 10, 15]),
        ({"fps": 2, "num_frames": 2}, [0, 5]),
        ({"step": 3, "num_frames": 4}, [0, 3, 6, 9]),
        ({"start_s": 1.0, "num_frames": 2}, [10, 15]),
        ({"start_s": 0.5, "end_s": 0.75, "num_frames": 16}, [5, 6]),
    ],
)
def test_options_say_which_frames_of_a_video_are_taken(options, taken):
    made = greys(read(ClipReader, video(20, lighter=10), **options)["clip"])
    assert made == taken


def test_where_frames_do_not_come_evenly_a_rate_goes_by_the_clock():
    slow_then_fast = video(6, lighter=10, at_ms=[0, 900, 1000, 1100, 1200, 1300])
    assert greys(read(ClipReader, slow_then_fast, num_frames=6)["clip"]) == [0, 1, 2, 3, 4, 5]
    assert greys(read(ClipReader, slow_then_fast, fps=2)["clip"]) == [0, 0]


def test_more_frames_than_the_model_takes_are_refused_with_both_numbers():
    with pytest.raises(BadRequest, match="num_frames is 65, and this model takes 64") as error:
        read(ClipReader, video(2), num_frames=65)
    assert error.value.param == "num_frames"


@pytest.mark.parametrize(
    ("parts", "options", "param", "why"),
    [
        ([Part("image", b"x")], {"fps": 4}, "fps", "says which frames of a video are taken, and no video"),
        ([Part("video", b"x")], {"fps": 4, "step": 2}, "step", "fps and step are ways to choose frames"),
        ([Part("video", b"x")], {"sampling": "ends", "fps": 2}, "fps", "sampling and fps are ways"),
        ([Part("video", b"x")], {"start_s": 2, "end_s": 2}, "end_s", "more than start_s, here 2"),
    ],
)
@pytest.mark.parametrize("family", [VJepa2, VJepa2AC])
def test_a_sampling_that_is_none_is_refused(family, parts, options, param, why):
    with pytest.raises(BadRequest, match=why) as error:
        family().request(parts=parts, options=options)
    assert error.value.param == param


def test_of_a_robots_video_as_many_frames_are_taken_as_there_are_poses():
    given = tensors(states=STATES, past_actions=DONE, actions=TRIED)
    assert read(SceneReader, video(20), given)["frames"].shape == (3, 3, 64, 64)
    assert read(SceneReader, video(20), task="encode")["context_frames"] == 20
    assert read(SceneReader, video(50), task="encode")["context_frames"] == 32


# --- scenes -----------------------------------------------------------------------------------------------

STATES = np.random.default_rng(2).random((3, 7)).astype(np.float32)
DONE = np.zeros((2, 7), np.float32)
TRIED = np.zeros((5, 4, 7), np.float32)
LATENTS = np.zeros((3, 16, 48), np.float32)
GOAL = np.ones((16, 48), np.float32)


def test_a_scene_of_frames_looks_as_the_authors_planner_makes_it():
    made = read(SceneReader, tensors(frames=PIXELS[:3], states=STATES, past_actions=DONE, actions=TRIED))
    look = read_look(AC.folder(), 64)
    assert torch.equal(made["frames"], as_the_authors_planner_does(upright(PIXELS[:3]), look))
    assert made["past_poses"].tolist() == STATES[:2].tolist()
    assert made["pose"].tolist() == STATES[2].tolist()
    assert made["past_actions"].shape == (2, 7)
    assert made["actions"].shape == (5, 4, 7)
    assert (made["context_frames"], made["horizon"]) == (3, 4)
    assert made["latent"] is made["past"] is made["goal"] is made["goal_frame"] is None


def test_a_scene_of_latents_is_past_and_now():
    made = read(
        SceneReader,
        tensors(latents=LATENTS, states=STATES, past_actions=DONE, actions=TRIED, goal_latents=GOAL),
    )
    assert made["past"].shape == (2, 16, 48)
    assert made["latent"].shape == (16, 48)
    assert torch.equal(made["goal"], torch.from_numpy(GOAL))
    assert made["frames"] is None


def test_the_image_named_goal_is_the_goal_and_not_a_frame():
    parts = [png(PIXELS[0]), png(PIXELS[1], name="goal"), tensors(states=STATES[:1])]
    made = read(SceneReader, *parts, task="plan", horizon=3)
    assert made["frames"].shape == made["goal_frame"].shape == (1, 3, 64, 64)
    look = read_look(AC.folder(), 64)
    assert torch.equal(made["goal_frame"], as_the_authors_planner_does(upright(PIXELS[1:2]), look))
    assert made["past_actions"].shape == (0, 7)
    assert (made["context_frames"], made["horizon"]) == (1, 3)


def test_one_candidate_may_come_without_an_axis_for_it():
    made = read(SceneReader, tensors(latents=LATENTS[:1], states=STATES[:1], actions=TRIED[0]))
    assert made["actions"].shape == (1, 4, 7)


def test_what_is_only_encoded_or_scored_needs_no_states():
    assert read(SceneReader, png(PIXELS[0]), task="encode")["horizon"] == 0
    made = read(SceneReader, png(PIXELS[0]), tensors(goal_latents=GOAL), task="score")
    assert made["horizon"] == 0
    assert made["pose"] is None


@pytest.mark.parametrize(
    ("task", "given", "why"),
    [
        ("rollout", {"latents": LATENTS}, "a rollout needs the tensor 'states'"),
        ("rollout", {"states": STATES}, "what was observed is needed: images, a video, or one of"),
        ("rollout", {"latents": LATENTS, "states": STATES[:2]}, "3 frames were observed, but 'states' has 2"),
        ("rollout", {"latents": LATENTS, "states": STATES}, "are 2 'past_actions', but there are 0"),
        (
            "rollout",
            {"latents": LATENTS, "states": STATES, "past_actions": DONE},
            r"a rollout needs the tensor 'actions', \[candidates, horizon, 7\]",
        ),
        (
            "rollout",
            {"latents": LATENTS[:, :4], "states": STATES},
            r"'latents' is of shape \[3, 4, 48\], and this model takes \[…, 16, 48\]",
        ),
        ("rollout", {"latents": LATENTS[:0], "states": STATES[:0]}, "'latents' has no frame"),
        ("rollout", {"latents": LATENTS, "frames": PIXELS[:3], "states": STATES}, "as frames and as latents"),
        (
            "plan",
            {"latents": LATENTS[:1], "states": STATES[:1]},
            "a plan needs a goal: an image named",
        ),
        ("plan", {"latents": LATENTS[:1], "states": STATES[:1], "actions": TRIED}, "are for a rollout"),
        (
            "plan",
            {"latents": LATENTS[:1], "states": STATES[:1], "goal_frame": PIXELS[0], "goal_latents": GOAL},
            "the goal is given as a frame and as latents",
        ),
        (
            "plan",
            {"latents": LATENTS[:1], "states": STATES[:1] + np.inf},
            "'states' has numbers that",
        ),
        ("encode", {"latents": LATENTS}, "there is nothing to encode in latents"),
        ("encode", {"frames": np.repeat(PIXELS, 6, 0)}, "36 frames are given, and this model takes 32"),
    ],
)
def test_a_scene_that_is_none_is_refused(task, given, why):
    with pytest.raises(BadRequest, match=why):
        read(SceneReader, tensors(**given), task=task)
