"""What options of a world model must be to each other, whatever each of them is by itself. No torch."""

from __future__ import annotations

from dataclasses import replace

from walk_plugin_vjepa2.frame_options import check_frame_options
from walkserve_sdk import BadRequest, Request

MOST_POINTS = 4096
"""Of a landscape, over all its axes: each is a candidate to roll out."""

_LANDSCAPE = ("landscape_axes", "landscape_range", "landscape_points")
_PLANNED = ("plan", "control")
_TASKS = {
    "pooled": ("encode",),
    "horizon": (*_PLANNED, "rollout"),  # a rollout is told how long its actions are
    "context_frames": ("control",),
    **dict.fromkeys(("samples", "iterations", "topk", "maxnorm", "close_gripper"), _PLANNED),
    **dict.fromkeys(("momentum_mean", "momentum_std"), _PLANNED),
    **dict.fromkeys(("momentum_mean_gripper", "momentum_std_gripper"), _PLANNED),
    **dict.fromkeys(_LANDSCAPE, ("plan", "landscape")),
}
"""Which tasks an option means something to; what is not here, means something to all."""


def check_options(request: Request) -> Request:
    """Refuse what does not go together, and complete a landscape that was asked for without axes.

    Raises:
        BadRequest: With the option to change as ``param``.
    """
    check_frame_options(request)
    _check_task(request)
    if request.options.task in _PLANNED:
        _check_plan(request)
    if request.options.task in ("plan", "landscape"):
        request = _with_axes(request)
        _check_landscape(request)
    return request


def _check_task(request: Request) -> None:
    task = request.options.task
    for name in sorted(request.given):
        tasks = _TASKS.get(name, (task,))
        if task not in tasks:
            raise BadRequest(
                f"{name} is an option of the task {' or '.join(tasks)}, and the task here is {task}; "
                "leave it out, or say which task is meant",
                param=name,
            )


def _check_plan(request: Request) -> None:
    options = request.options
    if options.topk > options.samples:
        raise BadRequest(
            f"topk is {options.topk}, but only {options.samples} samples are drawn; "
            "keep at most as many as there are",
            param="topk",
        )
    if options.close_gripper is not None and options.close_gripper >= options.horizon:
        raise BadRequest(
            f"close_gripper is {options.close_gripper}, but the steps of a plan with horizon "
            f"{options.horizon} are 0 to {options.horizon - 1}",
            param="close_gripper",
        )


def _with_axes(request: Request) -> Request:
    options = request.options
    if options.task == "landscape" and not options.landscape_axes:
        return replace(request, options=replace(options, landscape_axes=("x", "y")))
    return request


def _check_landscape(request: Request) -> None:
    options = request.options
    axes, points = options.landscape_axes, options.landscape_points
    if not axes:
        for name in _LANDSCAPE[1:]:
            if name in request.given:
                raise BadRequest(
                    f"{name} is given, but no landscape is asked for; say its landscape_axes", param=name
                )
    if len(set(axes)) < len(axes):
        raise BadRequest(f"landscape_axes has an axis twice: {', '.join(axes)}", param="landscape_axes")
    if points ** len(axes) > MOST_POINTS:
        raise BadRequest(
            f"a landscape of {points} points along each of {len(axes)} axes has {points ** len(axes)} "
            f"points, and it may have {MOST_POINTS}",
            param="landscape_points",
        )
