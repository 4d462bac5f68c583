"""The control loop: a tick comes, a plan goes; and which frames the predictor has in its cache meanwhile.

What was observed before the newest frame is in the predictor's cache, each frame with its pose and with what
was done then. So a new tick adds one frame, and what was there is not computed again::

    context_frames = 3        cache           newest     told
    tick 0                                    f0         context_frames 1
    tick 1                    f0              f1         context_frames 2
    tick 2                    f0 f1           f2         context_frames 3
    tick 3                    f1 f2 (anew)    f3         context_frames 3, restarted

A frame's keys hold its position, and see those before it. So when the context is full nothing can be taken
from its front: it is begun anew, from position 0, with the latents of the last frames, which are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

from walkserve_sdk import Fork, Outcome, Request, Step
from walkserve_sdk.requests import SEED_LIMIT

TICK = ("tick", "frames", "latent", "pose", "executed", "goal_frame", "goal")
"""What is read of a tick; None where there is none of it."""
_NOTHING: dict[str, Any] = dict.fromkeys(TICK)


class Context:
    """The frames that plans see.

    Args:
        most: How many they may be, the newest included.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._past: deque[tuple[Any, Any, Any]] = deque(maxlen=most - 1)
        """Latent, pose and action of each but the newest."""
        self._cached = 0
        """So many of them are in the predictor's cache."""
        self._newest: tuple[Any, Any] | None = None

    @property
    def pose(self) -> Any:
        """Of the newest frame; empty before there is any."""
        return [] if self._newest is None else self._newest[1]

    def add(self, latent: Any, pose: Any, executed: Any) -> bool:
        """A further frame, and what was ``executed`` since the one before; whether the cache was full."""
        if self._newest is not None:
            self._past.append((*self._newest, executed))
        self._newest = latent, pose
        is_full = self._cached == self._most - 1 > 0
        if is_full:
            self._cached = 0
        return is_full

    def to_observe(self) -> dict[str, list[Any]]:
        """Inputs of a Walk that observes what is not in the cache yet; it counts as if it were."""
        fresh = list(self._past)[self._cached :]
        self._cached = len(self._past)
        return {
            "past": [latent for latent, _, _ in fresh],
            "past_poses": [pose for _, pose, _ in fresh],
            "past_actions": [action for _, _, action in fresh],
        }

    @property
    def frames(self) -> int:
        """How many there are."""
        return len(self._past) + 1


class Controlling:
    """The part of the world model's plan that reads ticks; ``VJepa2AC`` has its Walks."""

    watch: Any
    look: Any
    steer: Any
    predictor: Any

    def control(self, request: Request, prepared: Outcome) -> Generator[Step, Outcome, str | None]:
        """Plan for each tick until the client ends them; for tick n as a request of seed + n would."""
        context = Context(request.options.context_frames)
        goal = yield from self._latent_of(prepared.get("goal"), prepared.get("goal_frame"))
        missed = False
        while True:
            seen = yield self.watch(before=context.pose, missed=missed, **_NOTHING)
            tick = seen.get("tick")
            if tick is not None:
                missed = False
                latent = yield from self._latent_of(seen.get("latent"), seen.get("frames"))
                wanted = yield from self._latent_of(seen.get("goal"), seen.get("goal_frame"))
                goal = goal if wanted is None else wanted
                restarted = context.add(latent, seen["pose"], seen.get("executed"))
                if restarted:
                    yield Fork(self.predictor, None, to="main")
                seed = (request.seed + tick) % SEED_LIMIT
                yield self.steer(
                    **context.to_observe(),
                    last_latent=latent,
                    last_pose=seen["pose"],
                    goal=goal,
                    seed=seed,
                    used_seed=seed,
                    tick=tick,
                    context=context.frames,
                    restarted=restarted,
                    iterations=request.options.iterations,
                )
            else:
                missed = True  # a tick that could not be read: what the next says was done, was done since it
            if seen.ended_by == "stream":
                return None

    def _latent_of(self, latent: Any, frames: Any) -> Generator[Step, Outcome, Any]:
        """The latent that was sent, or that of the last of the frames; None of neither."""
        if latent is not None or frames is None:
            return latent
        seen = yield self.look(frames=frames)
        return seen["latent"]
