"""What ``POST /v1/plans`` answers: the plan, how it was found, and what one step would cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from walk_plugin_vjepa2.routes.answers import NPY, SAFETENSORS, Numbers, as_file, maybe, numbers, png
from walk_plugin_vjepa2.routes.fields import Wanted
from walkserve_sdk.serving import Reply

EXAMPLE_ITERATION = {
    "type": "iteration",
    "iteration": 0,
    "best_energy": 0.25,
    "mean_energy": 0.375,
    "mean": {"dtype": "float32", "shape": [1, 4], "data": [[0.01, -0.02, 0.0, 0.0]]},
    "std": {"dtype": "float32", "shape": [1, 4], "data": [[0.02, 0.01, 0.03, 0.5]]},
}


class Iteration(Struct, frozen=True, tag="iteration"):
    """What one iteration found; ``mean`` and ``std`` [horizon, 4] of x, y, z and gripper are what it left."""

    iteration: Annotated[int, Meta(ge=0)]
    best_energy: float
    mean_energy: float
    mean: Numbers
    std: Numbers


class Landscape(Struct, frozen=True):
    """What one step would cost, all over a grid; ``energies`` has an axis for each of ``axes``."""

    axes: list[str]
    ticks: Numbers
    energies: Numbers
    lowest_energy: float
    lowest_action: Numbers


class Plan(Struct, frozen=True, tag="plan"):
    """The plan.

    ``actions`` [horizon, 7] are what is added to the pose: x, y, z, three angles, gripper. ``energy`` is how
    far the imagined last frame is from the goal. ``poses`` [horizon, 7] and ``latents``
    [horizon, tokens, width] are what the plan is imagined to lead through. ``picture`` is a PNG.
    """

    actions: Numbers | None
    energy: float | None
    iterations: list[Iteration]
    poses: Numbers | None
    latents: Numbers | None
    landscape: Landscape | None
    picture: bytes | None
    seed: int


async def answered(made: Mapping[str, Any], seed: int, wanted: Wanted) -> Plan:
    """All that was made, as the last event and the whole answer have it."""
    plan, chart, picture = (made.get(name) for name in ("plan", "landscape", "picture"))
    return Plan(
        actions=None if plan is None else numbers(plan.actions, wanted),
        energy=None if plan is None else plan.energy,
        iterations=[] if plan is None else _iterations(plan, wanted),
        poses=maybe(_of_the_plan(made.get("poses")), wanted),
        latents=maybe(_of_the_plan(made.get("latents")), wanted),
        landscape=None if chart is None else Landscape(**written(chart, wanted)),
        picture=None if picture is None else await png(picture),
        seed=seed,
    )


def _of_the_plan(imagined: Any) -> Any:
    """It was imagined as the only candidate."""
    return None if imagined is None else imagined[0]


def _iterations(plan: Any, wanted: Wanted) -> list[Iteration]:
    found = zip(plan.best_energies.tolist(), plan.mean_energies.tolist(), plan.means, plan.stds, strict=True)
    return [
        Iteration(number, best, average, numbers(mean, wanted), numbers(std, wanted))
        for number, (best, average, mean, std) in enumerate(found)
    ]


def written(record: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """A record whose arrays are as answers have them."""
    return {
        name: numbers(value, wanted) if isinstance(value, np.ndarray) else value
        for name, value in record.items()
    }


async def filed(made: Mapping[str, Any], media_type: str) -> Reply:
    """As a file: all there is by name; or where it holds one tensor, what the output is above all."""
    plan, chart = made.get("plan") or {}, made.get("landscape") or {}
    imagined = {name: _of_the_plan(made.get(name)) for name in ("poses", "latents")}
    if media_type == NPY:
        return await as_file(
            {"actions": plan.get("actions"), "energies": chart.get("energies")}
            | imagined
            | {"picture": made.get("picture")},
            NPY,
        )
    charted = {f"landscape.{name}": value for name, value in chart.items() if name != "axes"}
    tensors = {**plan, **imagined, **charted, "picture": made.get("picture")}
    return await as_file(tensors, SAFETENSORS, {"landscape.axes": " ".join(chart["axes"])} if chart else None)
