"""What a robot tells at each tick of its control loop, as the model takes it: on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walk_plugin_vjepa2.control import TICK
from walk_plugin_vjepa2.parts import GOAL, Sent
from walk_plugin_vjepa2.poses import action_between
from walk_plugin_vjepa2.reading import POSE, SceneReader
from walkserve_sdk import BadRequest, Batch, Gives
from walkserve_sdk.errors import WalkserveError, did_you_mean
from walkserve_sdk.media.images import read_image

FIELDS = ("frame", "latents", "state", "executed", GOAL, "goal_latents")
"""Of a tick: what is seen and where the robot is; and where it differs, what was done, what is wanted now."""


class TickReader(SceneReader):
    """One tick after another. One that cannot be read is refused, and the loop goes on."""

    def tick(self, batch: Batch) -> Gives:
        """The next tick, or nothing where the client has ended them; None for what was not sent.

        Takes the pose ``before`` (7,), of the last tick that was read, or None. Gives its number ``tick``,
        ``frames`` (1, 3, size, size) or ``latent`` (tokens, width), ``pose`` (7,), the action ``executed``
        since then (7,), ``goal_frame`` (1, 3, size, size) or ``goal`` (tokens, width); or it gives
        ``refused``, a record of what is wrong with it, and nothing else.
        """
        rows = [
            self._row(helping, before, missed)
            for helping, before, missed in zip(
                batch.values("ticks"), batch.values("before"), batch.values("missed"), strict=True
            )
        ]
        return {name: [row.get(name) for row in rows] for name in (*TICK, "refused")}

    def _row(self, helping: Any, before: Any, missed: Any) -> Mapping[str, Any]:
        if not len(helping.new):
            return {}
        (tick,) = helping.new
        number = helping.start + len(helping.items) - 1
        try:
            return {"tick": number, **self._tick(tick, before, is_next=not missed)}
        except WalkserveError as error:
            return {"refused": {"tick": number, "message": str(error), "param": error.param or ""}}

    def _tick(self, tick: Any, before: Any, *, is_next: bool) -> Mapping[str, Any]:
        if not isinstance(tick, Mapping):
            raise BadRequest("a tick is a record with a 'state', and a 'frame' or 'latents'")
        for name in tick:
            if name not in FIELDS:
                raise BadRequest(f"a tick has no {name!r}{did_you_mean(name, FIELDS)}", param=name)
        sent = Sent({}, (), {name: _array(name, value) for name, value in tick.items()})
        pose, frame, latent = self._now(sent)
        executed = sent.numbers("executed", POSE)
        if before is None or isinstance(before, list):
            executed = None
        elif executed is None or not is_next:
            executed = action_between(before, pose)
        wanted, goal = self._seen(sent, GOAL), sent.numbers("goal_latents", self._shape.patches, self._width)
        if wanted is not None and goal is not None:
            raise BadRequest("the goal is given as a frame and as latents; give it in one way", param=GOAL)
        return {
            "pose": pose,
            "frames": frame,
            "latent": _tensor(latent),
            "executed": _tensor(executed),
            "goal_frame": wanted,
            "goal": _tensor(goal),
        }

    def _now(self, sent: Sent) -> tuple[Tensor, Tensor | None, NDArray[np.float32] | None]:
        pose = sent.numbers("state", POSE)
        if pose is None:
            raise BadRequest("a tick needs 'state', the robot's pose when it saw it, [7]", param="state")
        frame = self._seen(sent, "frame")
        latent = sent.numbers("latents", self._shape.patches, self._width)
        if (frame is None) == (latent is None):
            said = "needs what is seen now" if frame is None else "has what is seen twice"
            raise BadRequest(f"a tick {said}; give it as 'frame' or as 'latents'", param="frame")
        return torch.from_numpy(pose), frame, latent

    def _seen(self, sent: Sent, name: str) -> Tensor | None:
        """A picture: pixels, or the bytes of a file, which are uint8 in one axis."""
        value = sent.tensors.get(name)
        if value is None:
            return None
        if value.dtype == np.uint8 and value.ndim == 1:
            value = read_image(value.tobytes(), place=name)
        if value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3 or not value.size:
            raise BadRequest(
                f"{name!r} is uint8 [height, width, 3], or the bytes of an image's file, not {value.dtype} "
                f"of shape {list(value.shape)}",
                param=name,
            )
        return self._pictures([value])


def _array(name: str, value: Any) -> NDArray[Any]:
    if isinstance(value, str) or value is None:
        raise BadRequest(f"{name!r} is an array of numbers, not {value!r:.40}", param=name)
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"{name!r} is an array of numbers: {error}", param=name) from error


def _tensor(array: Any) -> Tensor | None:
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array
