"""``POST /v1/rollouts``: what would be seen, step by step, if a robot acted so, or so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

from walk_plugin_vjepa2.routes.answers import NPY, SAFETENSORS, Numbers, as_file, check_outputs, maybe
from walk_plugin_vjepa2.routes.fields import EXAMPLE_FRAME, Scene, SentTensor, Wanted
from walk_plugin_vjepa2.routes.gathering import gather
from walk_plugin_vjepa2.routes.tasks import refuse_task
from walkserve_sdk.errors import BadRequest
from walkserve_sdk.serving import Exchange, Route, Running

TENSORS = ("frames", "latents", "states", "past_actions", "actions", "goal", "goal_latents")


class Rollout(Scene, frozen=True, kw_only=True):
    """What was seen, and what to try."""

    actions: Annotated[
        SentTensor | None,
        Meta(
            description="What each candidate does, [candidates, horizon, 7]; of one [horizon, 7] will do. An "
            "action is what is added to the pose."
        ),
    ] = None
    outputs: Annotated[
        Annotated[list[Literal["latents", "poses", "energies"]], Meta(min_length=1)] | None,
        Meta(
            description="What is wanted. Left out: with a goal poses and energies, else latents and poses. "
            "Latents are large: tokens x width numbers for each step of each candidate.",
        ),
    ] = None


class RolledOut(Struct, frozen=True):
    """Every candidate's future.

    ``latents`` [candidates, horizon, tokens, width], ``poses`` [candidates, horizon, 7], ``energies``
    [candidates]: how far the last frame is from the goal, the mean absolute difference of their latents.
    ``best`` is the candidate of the lowest.
    """

    latents: Numbers | None
    poses: Numbers | None
    energies: Numbers | None
    best: int | None
    seed: int


class Step(Struct, frozen=True, tag="step"):
    """One more frame of one candidate: ``latents`` [tokens, width], ``pose`` [7], as asked for."""

    row: Annotated[int, Meta(ge=0, description="Which candidate.")]
    step: Annotated[int, Meta(ge=0, description="Which of its steps.")]
    pose: Numbers | None
    latents: Numbers | None


class Done(Struct, frozen=True, tag="done"):
    """The last event."""

    energies: Numbers | None
    best: int | None
    seed: int


async def roll_out(exchange: Exchange[Rollout]) -> object:
    refuse_task(exchange, "rollout")
    fields = exchange.fields
    scene = await gather(fields, tensors=TENSORS)
    scene.require_one("frames", "video", "latents", what="what was seen")
    scene.require("states", "the robot's pose at each frame, [frames, 7]")
    scene.require("actions", "what each candidate does, [candidates, horizon, 7]")
    has_goal = bool({"goal", "goal_latents"} & scene.names)
    outputs = fields.outputs or (["poses", "energies"] if has_goal else ["latents", "poses"])
    if "energies" in outputs and not has_goal:
        raise BadRequest("energies are distances to a goal; send goal or goal_latents", param="goal")
    options = {"task": "rollout"}
    check_outputs(exchange.media_type, outputs)
    running = await exchange.start(exchange.request(parts=scene.parts, outputs=outputs, options=options))
    if exchange.wants_events:
        return steps(running, outputs, fields.encoding_format)
    result = await running.result()
    made = {name: result.outputs.get(name) for name in ("latents", "poses", "energies")}
    if exchange.media_type in (SAFETENSORS, NPY):
        return await as_file(made, exchange.media_type)
    told = {name: maybe(array, fields.encoding_format) for name, array in made.items()}
    return RolledOut(**told, best=_best(made["energies"]), seed=result.seed)


async def steps(running: Running, outputs: list[Any], wanted: Wanted) -> AsyncIterator[Step | Done]:
    """A step as soon as all that is wanted of it is there."""
    shown = [name for name in ("latents", "poses") if name in outputs]
    counted: dict[tuple[str, int], int] = {}
    waiting: dict[tuple[int, int], dict[str, Any]] = {}
    energies = None
    async for event in running:
        if event.index is None or event.output == "energies":
            energies = event.data
            continue
        row = event.index
        step = counted.get((event.output, row), 0)
        counted[event.output, row] = step + 1
        waiting.setdefault((row, step), {})[event.output] = event.data
        if len(waiting[row, step]) == len(shown):
            made = waiting.pop((row, step))
            yield Step(row, step, maybe(made.get("poses"), wanted), maybe(made.get("latents"), wanted))
    result = await running.result()
    yield Done(maybe(energies, wanted), _best(energies), result.seed)


def _best(energies: Any) -> int | None:
    return None if energies is None else int(np.argmin(energies))


ROUTE = Route(
    path="/v1/rollouts",
    surface="rollouts",
    handle=roll_out,
    fields=Rollout,
    answer=RolledOut,
    events=Step | Done,
    media={
        SAFETENSORS: "Tensors `latents`, `poses` and `energies`, as asked for.",
        NPY: "The one tensor asked for in `outputs`.",
    },
    summary="Imagine what candidates' actions lead to",
    description="Send what was seen (`frames`, `video` or `latents`), the `states` there, and the `actions` "
    "of one candidate or of many; with a `goal` each is scored. Frames seen and imagined are at most as many "
    "as the model has. Accept `text/event-stream` to have every step as it comes.",
    example={
        "frames": [EXAMPLE_FRAME],
        "states": [[0.1, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0]],
        "actions": [[[0.05, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]], [[0.0, 0.05, 0.0, 0.0, 0.0, 0.0, 0.0]]],
        "outputs": ["poses"],
        "encoding_format": "lists",
    },
    example_answer={
        "latents": None,
        "poses": {
            "dtype": "float32",
            "shape": [2, 1, 7],
            "data": [[[0.15, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0]], [[0.1, 0.05, 0.1, 0.0, 0.0, 0.0, 0.0]]],
        },
        "energies": None,
        "best": None,
        "seed": 7,
    },
    example_event={
        "type": "step",
        "row": 0,
        "step": 0,
        "pose": {"dtype": "float32", "shape": [7], "data": [0.15, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0]},
        "latents": None,
    },
)
