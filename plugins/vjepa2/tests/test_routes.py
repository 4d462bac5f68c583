"""Routes of a running server: every way in and out tells the same, and errors name the field at fault."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import dot_world as world
import httpx
import numpy as np
import pytest
from closed_loop import by_plans, trips
from films import film
from PIL import Image
from tests.system.conftest import RunningServer
from tests.system.test_openapi import EXAMPLES, SHORT
from vjepa2_goldens import DATA

from walkserve_sdk import Part
from walkserve_sdk.arrays import from_json, read_tensors, write_npy, write_safetensors
from walkserve_sdk.client import Client

NOW = np.array([-0.1, 0.05, 0.1, 0, 0, 0, 0.2])
THERE = np.array([0.1, -0.1, 0.1, 0, 0, 0, 0.2])
FRAME, GOAL = world.render(NOW), world.render(THERE)
STATES = [NOW.tolist()]
ACTIONS = np.random.default_rng(0).uniform(-0.05, 0.05, (3, 2, 7)).astype(np.float32)
SEARCH = {"samples": 16, "topk": 4, "iterations": 2, "seed": 3}
SAFETENSORS, NPY, PNG = "application/x-safetensors", "application/x-npy", "image/png"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    log = tmp_path_factory.mktemp("routes") / "log"
    models = ("vjepa2-ac:toy", f"vjepa2={DATA / 'base'}")
    server = RunningServer(*models, "--port", "0", "--dtype", "float32", log=log)
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed


def png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def written(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def scene(**more: Any) -> dict[str, Any]:
    """A body in JSON."""
    seen = {"model": "vjepa2-ac", "frames": [written(png(FRAME))], "states": STATES}
    return {**seen, "goal": written(png(GOAL))} | more


def post(server: RunningServer, route: str, accept: str = "application/json", **more: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/{route}", headers={"accept": accept}, timeout=60, **more)


def told(server: RunningServer, route: str, **more: Any) -> dict[str, Any]:
    response = post(server, route, **more)
    assert response.status_code == 200, response.text
    return response.json()


def events(server: RunningServer, route: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = post(server, route, "application/x-ndjson", json=body)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


# --- encodings --------------------------------------------------------------------------------------------


def test_frames_come_as_images_in_json_or_in_a_form_or_as_arrays_and_have_the_same_latents(server):
    asked = {"model": "vjepa2-ac", "pooled": True}
    first = told(server, "encodings", json=asked | {"frames": [written(png(FRAME)), written(png(GOAL))]})
    assert first["latents"]["shape"] == [2, 96] and first["latents"]["dtype"] == "float32"
    assert first["predicted"] is None
    both = np.stack([FRAME, GOAL])
    form = {"model": (None, "vjepa2-ac"), "pooled": (None, "true")}
    forms = (
        [*form.items(), ("frames", ("now.png", png(FRAME))), ("frames", ("there.png", png(GOAL)))],
        [*form.items(), ("frames", ("both.npy", write_npy(both)))],
        [*form.items(), ("tensors", ("scene.safetensors", write_safetensors({"frames": both})))],
    )
    for files in forms:
        assert told(server, "encodings", files=files) == first
    latents = from_json(first["latents"])
    as_npy = post(
        server, "encodings", NPY, json=asked | {"frames": [written(png(FRAME)), written(png(GOAL))]}
    )
    assert as_npy.headers["content-type"] == NPY
    np.testing.assert_array_equal(np.load(BytesIO(as_npy.content)), latents)


def test_a_video_is_encoded_and_its_hidden_places_are_predicted(server):
    form = {"model": (None, "vjepa2"), "video": ("clip.mp4", film(8, lighter=10))}
    whole = told(server, "encodings", files=form)
    assert whole["latents"]["shape"] == [4 * 16, 48] and whole["predicted"] is None
    fewer = told(server, "encodings", files=form | {"fps": (None, "5"), "num_frames": (None, "2")})
    assert fewer["latents"]["shape"] == [16, 48]
    assert told(server, "encodings", files=form | {"pooled": (None, "true")})["latents"]["shape"] == [48]
    hidden = form | {"context": (None, "[0, 1, 2]"), "target": (None, "[40, 63]")}
    guessed = told(server, "encodings", files=hidden)
    assert guessed["latents"] == whole["latents"] and guessed["predicted"]["shape"] == [2, 48]
    alone = post(server, "encodings", SAFETENSORS, files=hidden | {"outputs": (None, '["predicted"]')})
    np.testing.assert_array_equal(
        read_tensors(alone.content)["predicted"], from_json(guessed["predicted"]), strict=True
    )


@pytest.mark.parametrize("size", [(64, 96), (66, 98), (16, 400)])
@pytest.mark.parametrize("frames", [1, 3])
def test_a_video_of_one_frame_or_of_odd_sizes_is_encoded(server, size, frames):
    form = {"model": (None, "vjepa2"), "video": ("clip.mp4", film(frames, size=size))}
    assert told(server, "encodings", files=form)["latents"]["shape"] == [16, 48]


def test_a_video_that_is_none_is_refused_and_the_next_one_is_not(server):
    form = {"model": (None, "vjepa2")}
    for data, why in (
        (b"Dear robot,\nplease move.\n", "a video is a file of"),
        (film(0), "no video track"),
        (film(3)[:-40], "cut off"),
    ):
        refused = post(server, "encodings", files=form | {"video": ("clip.mp4", data)})
        problem = refused.json()["error"]
        assert (refused.status_code, problem["param"]) == (400, "video"), problem
        assert why in problem["message"]
    late = form | {"video": ("clip.mp4", film(3)), "start_s": (None, "5")}
    assert "none of its 3 frames lies between 5 s" in post(server, "encodings", files=late).text
    told(server, "encodings", files=form | {"video": ("clip.mp4", film(3))})


# --- rollouts ---------------------------------------------------------------------------------------------


def test_a_rollout_streams_its_steps_and_they_are_those_of_the_whole_answer(server):
    body = scene(actions=ACTIONS.tolist(), outputs=["latents", "poses", "energies"])
    whole = read_tensors(post(server, "rollouts", SAFETENSORS, json=body).content)
    shapes = {"latents": (3, 2, 16, 96), "poses": (3, 2, 7), "energies": (3,)}
    assert {name: one.shape for name, one in whole.items()} == shapes
    *steps, done = events(server, "rollouts", body)
    assert sorted((step["row"], step["step"]) for step in steps) == [(r, s) for r in range(3) for s in (0, 1)]
    for step in steps:
        for field, output in (("latents", "latents"), ("pose", "poses")):
            np.testing.assert_array_equal(from_json(step[field]), whole[output][step["row"], step["step"]])
    np.testing.assert_array_equal(from_json(done["energies"]), whole["energies"])
    assert done["type"] == "done" and done["best"] == whole["energies"].argmin()
    np.testing.assert_allclose(whole["poses"][:, 0, :3], NOW[:3] + ACTIONS[:, 0, :3], atol=1e-6)


def test_what_is_wanted_of_a_rollout_depends_on_whether_there_is_a_goal(server):
    asked = {"actions": ACTIONS[0].tolist(), "encoding_format": "lists"}
    scored = told(server, "rollouts", json=scene(**asked))
    assert scored["latents"] is None and scored["poses"]["shape"] == [1, 2, 7]
    assert scored["energies"]["data"] == pytest.approx([scored["energies"]["data"][0]])
    free = scene(**asked)
    del free["goal"]
    free = told(server, "rollouts", json=free)
    assert free["latents"]["shape"] == [1, 2, 16, 96]
    assert free["energies"] is free["best"] is None
    assert free["poses"] == scored["poses"]


def test_latents_go_in_as_they_came_out(server):
    encoded = told(server, "encodings", json={"model": "vjepa2-ac", "frames": [written(png(FRAME))] * 2})
    goal = told(server, "encodings", json={"model": "vjepa2-ac", "frames": written(png(GOAL))})["latents"]
    both = {"states": STATES * 2, "past_actions": [[0] * 7], "actions": ACTIONS.tolist()}
    seen = told(server, "rollouts", json=scene(**both, frames=[written(png(FRAME))] * 2))
    body = {"model": "vjepa2-ac", "latents": encoded["latents"], **both}
    goal_latents = from_json(goal)[0].tolist()
    latent = told(server, "rollouts", json=body | {"goal_latents": goal_latents})
    np.testing.assert_allclose(from_json(latent["energies"]), from_json(seen["energies"]), atol=1e-6)


# --- plans ------------------------------------------------------------------------------------------------


def test_a_plan_comes_with_how_it_was_found_and_in_events_just_so(server):
    body = scene(**SEARCH, horizon=2)
    plan = told(server, "plans", json=body)
    assert plan["actions"]["shape"] == plan["poses"]["shape"] == [2, 7]
    assert [one["iteration"] for one in plan["iterations"]] == [0, 1]
    assert plan["iterations"][0]["mean"]["shape"] == [2, 4]
    assert plan["latents"] is plan["landscape"] is plan["picture"] is None
    assert plan["seed"] == 3
    *iterations, last = events(server, "plans", body)
    assert iterations == plan["iterations"] and last == plan
    actions = np.load(BytesIO(post(server, "plans", NPY, json=body).content))
    np.testing.assert_array_equal(actions, from_json(plan["actions"]))
    by_name = read_tensors(post(server, "plans", SAFETENSORS, json=body).content)
    np.testing.assert_array_equal(by_name["actions"], actions)
    assert by_name["means"].shape == (2, 2, 4) and by_name["poses"].shape == (2, 7)


def test_a_plan_is_the_one_that_generate_gives(server):
    tensors = {"frames": FRAME[None], "states": NOW[None].astype(np.float32), "goal_frame": GOAL}
    seen = Part("tensor", write_safetensors(tensors))
    with Client(server.url) as client:
        generated = client.generate("vjepa2-ac", inputs=[seen], task="plan", outputs=["plan"], **SEARCH)
    plan = told(server, "plans", json=scene(**SEARCH))
    np.testing.assert_array_equal(from_json(plan["actions"]), generated.plan.actions)


def test_a_picture_of_the_landscape_is_had_by_accepting_it_or_in_json(server):
    body = scene(**SEARCH, landscape_points=5)
    picture = post(server, "plans", PNG, json=body)
    assert picture.headers["content-type"] == PNG
    with Image.open(BytesIO(picture.content)) as image:
        assert image.size == (512, 512)
    plan = told(server, "plans", json=body | {"landscape_axes": ["x", "y"]})
    assert base64.b64decode(plan["picture"]) == picture.content
    assert plan["landscape"]["energies"]["shape"] == [5, 5]
    line = told(server, "plans", json=body | {"landscape_axes": ["gripper"]})
    assert line["landscape"]["axes"] == ["gripper"] and line["picture"] is None


def test_a_landscape_alone_needs_no_search(server):
    alone = told(server, "plans", json=scene(outputs=["landscape"], landscape_points=3))
    assert alone["actions"] is None and alone["iterations"] == []
    assert alone["landscape"]["energies"]["shape"] == [3, 3]


def test_a_trip_whose_every_tick_is_one_request_ends_at_its_goal(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        (trip,) = trips(by_plans(client), 1, seed=1, at_once=1)
    assert trip.is_reached, f"{trip.left:.3f} away from {trip.goal}"


# --- refusals ---------------------------------------------------------------------------------------------

TRIED = ACTIONS.tolist()
ONE = written(png(FRAME))
REFUSED = [
    ("rollouts", {"frames": None, "actions": TRIED}, "frames", "send one of frames, video, latents"),
    ("rollouts", {"states": None, "actions": TRIED}, "states", "'states' is missing"),
    ("rollouts", {}, "actions", "'actions' is missing"),
    ("rollouts", {"actions": [TRIED]}, "actions", "shape [1, 3, 2, 7], and this model takes […, …, 7]"),
    ("rollouts", {"actions": ACTIONS[..., :6].tolist()}, "actions", "is of shape [3, 2, 6]"),
    (
        "rollouts",
        {"actions": TRIED, "states": STATES * 2},
        "states",
        "1 frames were observed, but 'states' has 2",
    ),
    (
        "rollouts",
        {"actions": TRIED, "states": STATES * 3, "frames": [ONE] * 3, "past_actions": [[0] * 7]},
        "past_actions",
        "between 3 observed frames are 2 'past_actions', but there are 1",
    ),
    (
        "rollouts",
        {"actions": np.zeros((1, 40, 7)).tolist()},
        "actions",
        "1 observed frames and a horizon of 40 are 41 frames",
    ),
    (
        "rollouts",
        {"actions": TRIED, "goal": None, "outputs": ["energies"]},
        "goal",
        "distances to a goal",
    ),
    ("rollouts", {"actions": TRIED, "horizon": 2}, "horizon", "as long as its actions, here 2 steps"),
    ("rollouts", {"actions": TRIED, "samples": 20}, "samples", "samples is an option of the task plan"),
    ("rollouts", {"actions": TRIED, "goal": written(b"no image")}, "goal", "goal: "),
    ("rollouts", {"actions": TRIED, "frames": [written(b"no image")]}, "frames", "frames: "),
    ("rollouts", {"actions": TRIED, "latents": [[0.5]], "frames": None}, "latents", "takes […, 16, 96]"),
    ("rollouts", {"actions": TRIED, "goal": None, "goal_latents": [[0.5]]}, "goal_latents", "takes [16, 96]"),
    ("rollouts", {"actions": TRIED, "video": ONE}, "video", "frames and video are given"),
    ("rollouts", {"actions": TRIED, "fps": 4}, "fps", "no video was sent"),
    ("rollouts", {"actions": TRIED, "action": TRIED}, "action", "did you mean 'actions'"),
    ("plans", {"goal": None}, "goal", "where to go: it is missing; send one of goal, goal_latents"),
    ("plans", {"task": "rollout"}, "task", "what is asked here is 'plan'"),
    ("plans", {"horizon": 32}, "horizon", "1 observed frames and a horizon of 32 are 33 frames"),
    ("plans", {"samples": 8}, "topk", "topk is 10, but only 8 samples are drawn"),
    (
        "plans",
        {"outputs": ["picture"], "landscape_axes": ["x"]},
        "landscape_axes",
        "is of two axes",
    ),
    ("plans", {"outputs": ["landscape"], "iterations": 3}, "iterations", "an option of the task plan"),
    ("plans", {"outputs": []}, "outputs", "length >= 1"),
    ("encodings", {"states": STATES}, "states", "unknown field 'states'"),
]


@pytest.mark.parametrize(("route", "changes", "param", "why"), REFUSED)
def test_what_does_not_fit_is_refused_by_its_field_with_both_numbers(server, route, changes, param, why):
    body = {name: value for name, value in scene(**changes).items() if value is not None}
    refused = post(server, route, json=body)
    problem = refused.json()["error"]
    assert (refused.status_code, problem["param"]) == (400, param), problem
    assert why in problem["message"]


def test_a_npy_file_of_several_tensors_is_refused_before_anything_is_made(server):
    refused = post(server, "rollouts", NPY, json=scene(actions=TRIED))
    assert refused.json()["error"]["param"] == "outputs"
    assert "there would be 2: poses, energies" in refused.text


def test_a_video_encoder_plans_nothing_and_a_world_model_guesses_nothing(server):
    refused = post(server, "plans", json=scene(model="vjepa2"))
    assert refused.status_code == 400 and "encodings" in refused.text
    seen = {"model": "vjepa2-ac", "frames": ONE}
    for changes, param in (({"target": [0]}, "target"), ({"outputs": ["predicted"]}, "outputs")):
        problem = post(server, "encodings", json=seen | changes).json()["error"]
        assert problem["param"] == param and "predicts nothing that is hidden" in problem["message"]


HOW_TO = Path(__file__).parents[3] / "docs/how-to/ask-a-world-model.md"


def test_what_the_guide_says_to_run_does_what_it_says(server, tmp_path):
    fenced = re.findall(r"^```(\w+)\n(.*?)^```$", HOW_TO.read_text("utf-8"), re.M | re.S)
    printed = []
    for language, block in fenced:
        block = block.replace("http://127.0.0.1:8000", server.url).replace("curl -s", "curl -sf")
        command = {"bash": ["bash", "-c", block], "python": [sys.executable, "-c", block]}[language]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, block + done.stderr
        printed.append(done.stdout)
    _, plan, _, planning, _, rolled, steps, encoded, python = printed
    assert json.loads(plan)["actions"]["shape"] == [2, 7]
    assert np.load(tmp_path / "plan.npy").shape == (2, 7)
    assert planning.count('"type":"iteration"') == 8 and planning.count('"type":"plan"') == 1
    assert (tmp_path / "landscape.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(rolled)["best"] == 0
    assert [json.loads(line)["type"] for line in steps.splitlines()] == ["step"] * 6 + ["done"]
    assert json.loads(encoded)["latents"]["shape"] == [2, 96]
    assert python == "(2, 7) True\n"


CONFIG = """
[[operations]]
include-path-regex = "^/v1/(encodings|rollouts|plans)$"
# how long lists of numbers are, and which fields go together, no schema says
checks.positive_data_acceptance.enabled = false
"""


def test_the_routes_do_as_their_description_says(server, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/schema/openapi.json"),
            *("--include-path-regex", "^/v1/(encodings|rollouts|plans)$", "--max-examples", EXAMPLES),
            *("--seed", "1", *SHORT),
            *("--continue-on-failure", "--request-timeout", "30"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ
        | {
            "SCHEMATHESIS_HOOKS": "routes_hooks",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        },
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 selected" in done.stdout
    server.wait_for(lambda state: state["open_requests"] == 0)
