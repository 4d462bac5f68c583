"""Let the toy world model drive a disc to where a picture shows it, and draw what it imagined and what came.

    walkserve serve vjepa2-ac:toy
    python examples/plan.py http://127.0.0.1:8000

Toy weights, real architecture: the model was shown a disc that moves as it is told, never a goal.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from plan_drawing import animation, strip
from safetensors.numpy import load, save

from walk_plugin_vjepa2.toy.dots import after, camera

MODEL = "vjepa2-ac"
START = np.array([-0.2, -0.18, 0.05, 0, 0, 0, 0.1], np.float32)
GOAL = np.array([0.2, 0.16, 0.22, 0, 0, 0, 0.9], np.float32)
ROUNDS = 3
SEARCH = {"horizon": 3, "samples": 200, "topk": 16, "iterations": 7, "maxnorm": 0.075}

Numbers = NDArray[np.float32]


def moved(state: Numbers, action: Numbers) -> Numbers:
    """The state after an action, in the world and not in the model."""
    return after(torch.from_numpy(state), torch.from_numpy(action)).numpy()


@dataclass
class Round:
    """One plan, what the model imagined of it, and what came of it; places are x, y, z and the gripper."""

    energy: float
    imagined: Numbers
    true: list[Numbers] = field(default_factory=list)


def ask(client: httpx.Client, route: str, scene: dict[str, Numbers], **fields: Any) -> dict[str, Numbers]:
    """Send tensors as one file, and have those of the answer as one."""
    form = {"model": MODEL, **{name: json.dumps(value) for name, value in fields.items()}}
    file = {"tensors": ("scene.safetensors", save(scene))}
    answer = client.post(route, data=form, files=file, headers={"accept": "application/x-safetensors"})
    if answer.is_error:
        raise SystemExit(answer.text)
    return load(answer.content)


def plan(client: httpx.Client, state: Numbers) -> dict[str, Numbers]:
    """Three actions towards the goal, and the latents of the frames that they are to lead to."""
    scene = {"frames": camera(state[None]), "states": state[None], "goal": camera(GOAL[None])[0]}
    return ask(client, "/v1/plans", scene, outputs=["plan", "latents"], seed=0, **SEARCH)


def encode(client: httpx.Client, states: Numbers) -> Numbers:
    """One latent for each picture of these states, the mean of its patches: (frames, width)."""
    some = np.split(states, len(states) // 4)
    encoded = [ask(client, "/v1/encodings", {"frames": camera(each)}, pooled=True) for each in some]
    return np.concatenate([each["latents"] for each in encoded])


def probe(client: httpx.Client) -> Numbers:
    """A linear map from a latent to x, y, z and the gripper, fitted to 160 pictures; none of the model's."""
    random = np.random.default_rng(0)
    low, high = [-0.3, -0.3, 0, 0, 0, 0, 0], [0.3, 0.3, 0.3, 0, 0, 0, 1]
    states = random.uniform(low, high, (160, 7)).astype(np.float32)
    return np.linalg.lstsq(_with_one(encode(client, states)), states[:, [0, 1, 2, 6]], rcond=None)[0]


def read(latents: Numbers, probe: Numbers) -> Numbers:
    """Where the disc is in latents (frames, tokens, width): (frames, 4)."""
    return _with_one(latents.mean(axis=1)) @ probe


def _with_one(latents: Numbers) -> Numbers:
    return np.concatenate([latents, np.ones((len(latents), 1), latents.dtype)], axis=1)


def travel(client: httpx.Client, probe: Numbers) -> list[Round]:
    """Plan three steps, take them, look again."""
    state, rounds = START, []
    for number in range(ROUNDS):
        found = plan(client, state)
        this = Round(float(found["energy"]), read(found["latents"], probe))
        for action in found["actions"]:
            state = moved(state, action)
            this.true.append(state)
        rounds.append(this)
        left = np.linalg.norm((state - GOAL)[:3])
        print(f"plan {number + 1}: energy {this.energy:.3f}, then {left:.3f} away from the goal", flush=True)
    return rounds


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    with httpx.Client(base_url=url, timeout=60) as client:
        rounds = travel(client, probe(client))
    strip(camera, START, GOAL, rounds).save("plan.png", optimize=True)
    animation(camera, START, GOAL, rounds, "plan.gif")
    print("drawn: plan.png, plan.gif")


if __name__ == "__main__":
    main()
