"""The options of a world model: what is asked of it, and how hard a plan is searched. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from walk_plugin_vjepa2.frame_options import FrameOptions

Axis = Literal["x", "y", "z", "gripper"]
"""What a plan moves."""


@dataclass(frozen=True)
class WorldOptions(FrameOptions):
    """What a client may choose; of planning, the defaults are the authors' planner's.

    Args:
        task: What to do: encode the frames, roll candidates' actions out, score the last frame by its
            distance to the goal, plan actions towards the goal, or only draw their energy landscape; or
            control a robot, with a plan for each tick that its client writes.
        pooled: One latent for each frame, the mean of its tokens; for task "encode".
        horizon: Steps that a plan has; with the frames observed, at most the model's frames.
        context_frames: The most frames that a plan sees, the newest included; for task "control".
        samples: Candidates that each iteration tries.
        iterations: How often the candidates are drawn anew, around the best so far.
        topk: How many of them are the best; two at least, for they have a spread.
        maxnorm: The furthest that a step moves along x, y or z, in metres.
        momentum_mean, momentum_std: How much of the mean and the spread before stays in the next; 0
            forgets them.
        momentum_mean_gripper, momentum_std_gripper: The same for the gripper.
        close_gripper: From this step on, counted from 0, the gripper closes; never when left out.
        landscape_axes: Draw the energy of one step over these axes too, "x", "y", "z" or "gripper";
            of two there is a picture. With task "landscape" and none given, x and y.
        landscape_range: How far the landscape goes, to both sides of no movement.
        landscape_points: Points of it along each axis.
    """

    task: Literal["encode", "rollout", "score", "plan", "landscape", "control"] = "rollout"
    pooled: bool = False
    horizon: Annotated[int, Meta(ge=1, le=1024)] = 2
    context_frames: Annotated[int, Meta(ge=1, le=1024)] = 1
    samples: Annotated[int, Meta(ge=2, le=65_536)] = 400
    iterations: Annotated[int, Meta(ge=1, le=1000)] = 10
    topk: Annotated[int, Meta(ge=2, le=65_536)] = 10
    maxnorm: Annotated[float, Meta(gt=0, le=10)] = 0.05
    momentum_mean: Annotated[float, Meta(ge=0, le=1)] = 0.15
    momentum_std: Annotated[float, Meta(ge=0, le=1)] = 0.15
    momentum_mean_gripper: Annotated[float, Meta(ge=0, le=1)] = 0.15
    momentum_std_gripper: Annotated[float, Meta(ge=0, le=1)] = 0.15
    close_gripper: Annotated[int, Meta(ge=0)] | None = None
    landscape_axes: Annotated[tuple[Axis, ...], Meta(max_length=4)] = ()
    landscape_range: Annotated[float, Meta(gt=0, le=10)] = 0.075
    landscape_points: Annotated[int, Meta(ge=2, le=101)] = 9
