"""Going to goals in the simulator: at every tick a planner sees a picture and says one action."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import dot_world as world
import httpx
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

TICKS = 10
SEARCH: dict[str, Any] = {
    "horizon": 1,
    "samples": 64,
    "iterations": 6,
    "topk": 8,
    "maxnorm": 0.075,
    "seed": 0,
}

Planner = Callable[[world.State, world.State], world.Action]
"""Where it is, and where it is to go, to what is done next."""


@dataclass(frozen=True)
class Trip:
    """Where it was to go, and every state on the way, the first and the last included."""

    goal: world.State
    states: list[world.State]

    @property
    def left(self) -> float:
        """How far away the goal is in the end."""
        return world.distance(self.states[-1], self.goal)

    @property
    def is_reached(self) -> bool:
        return self.left < world.REACHED


def trips(plan: Planner, count: int, *, seed: int = 0, at_once: int = 4) -> list[Trip]:
    """Goals and starts of this seed, some of them travelled at once."""
    random = np.random.default_rng(seed)
    ends = [(world.some_state(random), world.some_state(random)) for _ in range(count)]
    with ThreadPoolExecutor(at_once) as threads:
        return list(threads.map(lambda pair: _trip(plan, *pair), ends))


def _trip(plan: Planner, start: world.State, goal: world.State) -> Trip:
    states = [start]
    for _ in range(TICKS):
        states.append(world.step(states[-1], plan(states[-1], goal)))
    return Trip(goal, states)


def seen(state: world.State, goal: world.State) -> dict[str, NDArray[Any]]:
    """What a request of one tick sends: a frame, the pose, and the picture of the goal."""
    return {
        "frames": world.render(state)[None],
        "states": state[None].astype(np.float32),
        "goal": world.render(goal),
    }


def by_plans(client: httpx.Client) -> Planner:
    """Each tick is one ``POST /v1/plans``."""
    form = {"model": "vjepa2-ac", **{name: str(value) for name, value in SEARCH.items()}}

    def plan(state: world.State, goal: world.State) -> world.Action:
        tensors = {"tensors": ("scene.safetensors", save(seen(state, goal)))}
        response = client.post("/v1/plans", data=form, files=tensors, headers={"accept": "application/x-npy"})
        assert response.status_code == 200, response.text
        return np.load(BytesIO(response.content))[0]

    return plan


def at_random(seed: int = 0) -> Planner:
    """A planner that does not look."""
    actions = _random_actions(seed)
    return lambda state, goal: next(actions)


def _random_actions(seed: int) -> Iterator[world.Action]:
    random = np.random.default_rng(seed)
    while True:
        yield world.some_action(random)
