"""``POST /v1/plans``: actions that lead to what a goal image shows, and what one step would cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from walk_plugin_vjepa2.routes.answers import NPY, PNG, SAFETENSORS, check_outputs, png
from walk_plugin_vjepa2.routes.fields import EXAMPLE_FRAME, Scene
from walk_plugin_vjepa2.routes.gathering import gather
from walk_plugin_vjepa2.routes.plan_answers import (
    EXAMPLE_ITERATION,
    Iteration,
    Plan,
    answered,
    filed,
    written,
)
from walk_plugin_vjepa2.routes.tasks import refuse_task
from walkserve_sdk.errors import BadRequest
from walkserve_sdk.results import OutputEvent, join_output
from walkserve_sdk.serving import Exchange, Reply, Route, Running

TENSORS = ("frames", "latents", "states", "past_actions", "goal", "goal_latents")
_CHARTS = ("landscape", "picture")


class Planning(Scene, frozen=True, kw_only=True):
    """What is seen, and where to go."""

    outputs: Annotated[
        Annotated[list[Literal["plan", "latents", "poses", "landscape", "picture"]], Meta(min_length=1)]
        | None,
        Meta(
            description="What is wanted. Left out: the plan and the poses that it leads through, and with "
            "landscape_axes the landscape, with two of them its picture. latents are those that the plan is "
            "imagined to lead through. Where no more than landscape and picture are wanted, no plan is "
            "searched.",
        ),
    ] = None


async def plan(exchange: Exchange[Planning]) -> object:
    fields = exchange.fields
    scene = await gather(fields, tensors=TENSORS)
    scene.require_one("frames", "video", "latents", what="what is seen")
    scene.require("states", "the robot's pose at each frame, [frames, 7]")
    scene.require_one("goal", "goal_latents", what="where to go")
    outputs, options = _wanted(exchange)
    refuse_task(exchange, options["task"])
    check_outputs(exchange.media_type, outputs)
    asked = [*outputs, "progress"] if exchange.wants_events and "plan" in outputs else outputs
    running = await exchange.start(exchange.request(parts=scene.parts, outputs=asked, options=options))
    if exchange.wants_events:
        return _progress(exchange, running)
    result = await running.result()
    match exchange.media_type:
        case media_type if media_type == PNG:
            return Reply(await png(result.picture), PNG)
        case media_type if media_type in (SAFETENSORS, NPY):
            return await filed({name: result.outputs[name] for name in outputs}, media_type)
        case _:
            return await answered(result.outputs, result.seed, fields.encoding_format)


def _wanted(exchange: Exchange[Planning]) -> tuple[list[str], dict[str, Any]]:
    """What is asked of the model, and the options that say so."""
    axes = exchange.options.get("landscape_axes", ())
    outputs: list[str] = list(exchange.fields.outputs or ())
    if not outputs:
        outputs = ["plan"] if exchange.media_type in (PNG, NPY) else ["plan", "poses"]
        outputs += [] if not axes or exchange.media_type == NPY else ["landscape"]
        outputs += ["picture"] if len(axes) == 2 and exchange.media_type != NPY else []
    if exchange.media_type == PNG and "picture" not in outputs:
        outputs.append("picture")
    is_charted = any(name in outputs for name in _CHARTS)
    options: dict[str, Any] = {"task": "plan" if set(outputs) - set(_CHARTS) else "landscape"}
    if is_charted and not axes:
        options["landscape_axes"] = axes = ["x", "y"]
    if "picture" in outputs and len(axes) != 2:
        raise BadRequest(
            f"a picture is of two axes, and landscape_axes has {len(axes)}: {', '.join(axes)}",
            param="landscape_axes",
        )
    return outputs, options


async def _progress(exchange: Exchange[Planning], running: Running) -> AsyncIterator[Iteration | Plan]:
    """Each iteration as it ends, then the plan with all that was asked for."""
    wanted = exchange.fields.encoding_format
    came: dict[str, list[OutputEvent]] = {}
    async for event in running:
        if event.output == "progress":
            yield Iteration(**written(event.data, wanted))
        else:
            came.setdefault(event.output, []).append(event)
    kinds = exchange.model.spec.outputs
    made = {name: join_output(kinds[name], events) for name, events in came.items()}
    yield await answered(made, (await running.result()).seed, wanted)


ROUTE = Route(
    path="/v1/plans",
    surface="plans",
    handle=plan,
    fields=Planning,
    answer=Plan,
    events=Iteration | Plan,
    media={
        PNG: "The picture of the energy landscape, over x and y unless landscape_axes says otherwise.",
        SAFETENSORS: "Tensors `actions`, `energy`, `best_energies`, `mean_energies`, `means`, `stds`; "
        "`poses`, `latents`, `landscape.energies`, `landscape.ticks` and `picture` as asked for.",
        NPY: "The actions, [horizon, 7]; or the one tensor asked for in `outputs`.",
    },
    summary="Find actions that lead to a goal",
    description="The cross-entropy method in the model's imagination, as the authors do: `iterations` times "
    "`samples` candidates are drawn, imagined for `horizon` steps and scored by the distance of their last "
    "frame to the `goal`, and the best `topk` say where to look next. Accept `text/event-stream` to have "
    "every iteration as it ends. The same `seed` gives the same plan.",
    example={
        "frames": [EXAMPLE_FRAME],
        "states": [[0.1, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0]],
        "goal": EXAMPLE_FRAME,
        "horizon": 1,
        "samples": 16,
        "topk": 4,
        "iterations": 1,
        "outputs": ["plan"],
        "encoding_format": "lists",
    },
    example_answer={
        "type": "plan",
        "actions": {"dtype": "float32", "shape": [1, 7], "data": [[0.01, -0.02, 0.0, 0.0, 0.0, 0.0, 0.0]]},
        "energy": 0.25,
        "iterations": [EXAMPLE_ITERATION],
        "poses": None,
        "latents": None,
        "landscape": None,
        "picture": None,
        "seed": 7,
    },
    example_event=EXAMPLE_ITERATION,
)
