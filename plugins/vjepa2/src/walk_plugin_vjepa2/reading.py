"""What a request sent, as a model takes it: on the host, before anything is admitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walk_plugin_vjepa2.parts import FRAMES, GOAL, Pixels, Sent, sort_parts
from walk_plugin_vjepa2.preprocessing import (
    Look,
    as_the_authors_planner_does,
    fitted,
    read_look,
    squared,
)
from walk_plugin_vjepa2.shapes import Shape, read_shape
from walkserve_sdk import BadRequest, Batch, Checkpoint, Gives

POSE = 7


class _Reader:
    """A checkpoint's figures, which are all that a reader loads."""

    def __init__(self, shape: Shape, look: Look) -> None:
        self._shape = shape
        self._look = look

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: Any, dtype: Any) -> Any:
        folder = checkpoint.folder()
        shape = read_shape(folder)
        return cls(shape, read_look(folder, shape.image))

    @staticmethod
    def _rows(batch: Batch) -> Any:
        return zip(*(batch.values(name) for name in ("kinds", "names", "media")), batch.options, strict=True)


class ClipReader(_Reader):
    """A clip to encode, and which of its places to predict from which."""

    def read(self, batch: Batch) -> Gives:
        """``clip`` (frames, 3, size, size) float32; ``context`` and ``target`` int64 (places,), or None.

        Of a video, ``frames_per_clip`` frames are taken, spread evenly, or all it has; what does not fill a
        last tubelet is left out. One frame alone is a clip too.
        """
        rows = [self._read(*row) for row in self._rows(batch)]
        return _by_name(("clip", "context", "target"), rows)

    def _read(self, kinds: Any, names: Any, media: Any, options: Any) -> tuple[Any, ...]:
        tensors = ("frames", "pixel_values_videos", "context", "target")
        sent = sort_parts(kinds, names, media, images=("", FRAMES), tensors=tensors)
        clip = self._clip(sent, options)
        tokens = max(1, len(clip) // self._shape.tubelet) * self._shape.patches
        places = (sent.places(name, tokens) for name in ("context", "target"))
        return clip, *(None if each is None else torch.from_numpy(each) for each in places)

    def _clip(self, sent: Sent, options: Any) -> Tensor:
        shape = self._shape
        frames = sent.frames(self._fit, options, most=shape.frames)
        ready = sent.numbers("pixel_values_videos", None, 3, shape.image, shape.image)
        if (frames is None) == (ready is None):
            raise BadRequest(
                "a clip is needed: a video, images, or one of the tensors 'frames' and 'pixel_values_videos'"
                if frames is None
                else "a clip is given as frames and as 'pixel_values_videos'; give it in one way",
                param=FRAMES,
            )
        clip = torch.from_numpy(ready) if ready is not None else self._look.normed(_stacked(frames or []))
        if sent.videos and len(clip) > 1:
            clip = clip[: max(1, len(clip) // shape.tubelet * shape.tubelet)]
        if not 1 <= len(clip) <= shape.frames or (len(clip) > 1 and len(clip) % shape.tubelet):
            raise BadRequest(
                f"{len(clip)} frames are given; this model takes one, or a multiple of {shape.tubelet} up to "
                f"{shape.frames}",
                param=FRAMES if ready is None else "pixel_values_videos",
            )
        return clip

    def _fit(self, pixels: Pixels) -> Pixels:
        return _pixels(fitted(_stacked([pixels]), self._look.size))


class SceneReader(_Reader):
    """What a robot has seen and done, what it may do next, and where it is to arrive."""

    GIVES = (
        "frames",
        "goal_frame",
        "past",
        "latent",
        "goal",
        "past_poses",
        "pose",
        "past_actions",
        "actions",
        "context_frames",
        "horizon",
    )

    def read(self, batch: Batch) -> Gives:
        """What was sent; None for what was not.

        ``frames`` (T, 3, size, size) and ``goal_frame`` (1, 3, size, size) are for the encoder; who has
        latents already gives ``past`` (T - 1, tokens, width), ``latent`` and ``goal`` (tokens, width).
        ``past_poses`` (T - 1, 7), ``pose`` (7,), ``past_actions`` (T - 1, 7); ``actions`` (candidates,
        horizon, 7) of a rollout. ``context_frames`` is T, ``horizon`` how many are imagined.
        """
        rows = [self._read(*row) for row in self._rows(batch)]
        return _by_name(self.GIVES, rows)

    def _read(self, kinds: Any, names: Any, media: Any, options: Any) -> tuple[Any, ...]:
        task = options.task
        if task == "control":
            return self._wanted(kinds, names, media, options)
        tensors = ("frames", "latents", "states", "past_actions", "actions", "goal_frame", "goal_latents")
        sent = sort_parts(kinds, names, media, images=("", FRAMES, GOAL), tensors=tensors)
        states = sent.numbers("states", None, POSE)
        if states is None and task not in ("encode", "score"):
            raise BadRequest(
                f"a {task} needs the tensor 'states': for each observed frame the robot's pose, [frames, 7]",
                param="states",
            )
        frames, latents = self._observed(sent, states, options)
        count = len(frames if frames is not None else latents)
        if states is not None and len(states) != count:
            raise BadRequest(
                f"{count} frames were observed, but 'states' has {len(states)} poses; give one each",
                param="states",
            )
        past_actions = self._done(sent, count, task)
        actions = self._tried(sent, task)
        goal_frame, goal = self._goal(sent, task)
        horizon = {"rollout": 0 if actions is None else actions.shape[1], "plan": options.horizon}.get(task)
        return (
            frames,
            goal_frame,
            None if latents is None else latents[:-1],
            None if latents is None else latents[-1],
            goal,
            *(_past_and_now(states)),
            past_actions,
            actions,
            count,
            (1 if task == "landscape" else 0) if horizon is None else horizon,
        )

    def _wanted(self, kinds: Any, names: Any, media: Any, options: Any) -> tuple[Any, ...]:
        """Of a control loop only the goal is known before; all else comes with its ticks."""
        sent = sort_parts(kinds, names, media, images=(GOAL,), tensors=("goal_frame", "goal_latents"))
        if sent.videos:
            raise BadRequest("a control loop sees what its ticks bring; it takes no video", param="video")
        goal_frame, goal = self._goal(sent, "control")
        nothing = dict.fromkeys(self.GIVES)
        sizes = {"context_frames": options.context_frames, "horizon": options.horizon}
        return tuple((nothing | sizes | {"goal_frame": goal_frame, "goal": goal}).values())

    def _observed(
        self, sent: Sent, states: NDArray[np.float32] | None, options: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Frames, or latents that are normed already."""
        poses = None if states is None else max(1, len(states))
        frames = sent.frames(_square, options, most=self._shape.steps, enough=poses)
        latents = sent.numbers("latents", None, self._shape.patches, self._width)
        if (frames is None) == (latents is None):
            raise BadRequest(
                "what was observed is needed: images, a video, or one of the tensors 'frames' and 'latents'"
                if frames is None
                else "what was observed is given as frames and as latents; give it in one way",
                param=FRAMES if frames is None else "latents",
            )
        if latents is not None and (options.task == "encode" or not len(latents)):
            why = "there is nothing to encode in latents" if len(latents) else "'latents' has no frame"
            raise BadRequest(f"{why}; send what was observed", param="latents")
        return self._pictures(frames), None if latents is None else torch.from_numpy(latents)

    @property
    def _width(self) -> int | None:
        return None if self._shape.encoder is None else self._shape.encoder.width

    def _done(self, sent: Sent, count: int, task: str) -> Tensor | None:
        """What was done between the observed frames."""
        done = sent.numbers("past_actions", None, POSE)
        if task in ("encode", "score"):
            return None
        if done is None:
            done = np.empty((0, POSE), np.float32)
        if len(done) != count - 1:
            raise BadRequest(
                f"between {count} observed frames are {count - 1} 'past_actions', but there are {len(done)}",
                param="past_actions",
            )
        return torch.from_numpy(done)

    def _tried(self, sent: Sent, task: str) -> Tensor | None:
        """Candidates; one alone may come without its axis."""
        if task != "rollout":
            if "actions" in sent.tensors:
                raise BadRequest(f"'actions' are for a rollout; the task is {task!r}", param="actions")
            return None
        found = sent.tensors.get("actions")
        is_one = found is not None and found.ndim == 2
        actions = sent.numbers("actions", *((None, POSE) if is_one else (None, None, POSE)))
        if actions is None or not actions.size:
            raise BadRequest(
                "a rollout needs the tensor 'actions', [candidates, horizon, 7] or for one [horizon, 7]",
                param="actions",
            )
        return torch.from_numpy(actions[None] if is_one else actions)

    def _goal(self, sent: Sent, task: str) -> tuple[Tensor | None, Tensor | None]:
        frame = sent.goal(_square)
        latents = sent.numbers("goal_latents", self._shape.patches, self._width)
        if frame is not None and latents is not None:
            raise BadRequest("the goal is given as a frame and as latents; give it in one way", param=GOAL)
        if task in ("plan", "control", "landscape", "score") and frame is None and latents is None:
            raise BadRequest(
                f"a {task} needs a goal: an image named 'goal', or one of the tensors 'goal_frame' and "
                "'goal_latents'",
                param=GOAL,
            )
        pictures = self._pictures(None if frame is None else [frame])
        return pictures, None if latents is None else torch.from_numpy(latents)

    def _pictures(self, frames: Sequence[Pixels] | None) -> Tensor | None:
        """Frames of any sizes."""
        if frames is None:
            return None
        return torch.cat([as_the_authors_planner_does(_stacked([one]), self._look) for one in frames])


def _past_and_now(states: NDArray[np.float32] | None) -> tuple[Tensor | None, Tensor | None]:
    if states is None:
        return None, None
    poses = torch.from_numpy(states)
    return poses[:-1], poses[-1]


def _square(pixels: Pixels) -> Pixels:
    return _pixels(squared(_stacked([pixels])))


def _stacked(frames: Sequence[Pixels]) -> Tensor:
    """(height, width, 3) each, of one size, to (frames, 3, height, width)."""
    return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)


def _pixels(frames: Tensor) -> Pixels:
    """(1, 3, height, width) to (height, width, 3)."""
    pixels: Pixels = frames[0].permute(1, 2, 0).contiguous().numpy()
    return pixels


def _by_name(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Gives:
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
