"""What is said on the socket of a control loop: the frames of its client, and what it is told."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

Numbers = list[float]

# --- by the client ----------------------------------------------------------------------------------------


class Start(Struct, frozen=True, tag="start", kw_only=True):
    """The first frame. Without ``goal`` the picture of it is the next, binary frame.

    Args:
        goal: A picture: the bytes of an image's file, or with ``goal_shape`` pixels; base64 in JSON.
        goal_shape: ``[height, width, 3]`` of pixels, uint8.
        options: Of task "control": ``horizon``, ``samples``, ``context_frames``, ``seed`` and so on.
        progress: Whether each iteration of a search is told.
        drop_late: Whether a tick that comes while a plan is made gives way to a newer one.
        timeout_s: How long the whole session may take.
    """

    model: str
    goal: bytes | None = None
    goal_shape: tuple[int, int, int] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    progress: bool = False
    drop_late: bool = True
    id: str | None = None
    timeout_s: float | None = None


class Tick(Struct, frozen=True, tag="tick", kw_only=True):
    """What the robot sees, and where it is. Without ``image`` the picture is the next, binary frame.

    Args:
        state: Seven numbers, when the picture was taken.
        executed: What was done since the tick before, seven numbers; the difference of the states where it
            is left out.
        image: A picture, as ``Start.goal`` is; ``shape`` likewise.
        id: The client's own name for it; the answers have it too.
    """

    state: Numbers
    executed: Numbers | None = None
    image: bytes | None = None
    shape: tuple[int, int, int] | None = None
    id: str | None = None


class Goal(Struct, frozen=True, tag="goal", kw_only=True):
    """What is wanted from the next tick on. Without ``image`` the picture is the next, binary frame."""

    image: bytes | None = None
    shape: tuple[int, int, int] | None = None


class End(Struct, frozen=True, tag="end"):
    """No tick comes any more; those that came are answered."""


FRAMES = (Start, Tick, Goal, End)

# --- by the server ----------------------------------------------------------------------------------------


class Started(Struct, frozen=True, tag="started", omit_defaults=True):
    """The session has begun. ``GET /v1/requests/{request_id}`` knows it."""

    request_id: str
    model: str
    seed: int
    horizon: int
    context_frames: int
    id: str | None = None


class Plan(Struct, frozen=True, tag="plan", kw_only=True):
    """What to do next.

    Args:
        tick: Which of the client's ticks it is for, from 0.
        actions: Seven numbers for each step of the horizon; the first is to be done now.
        energy: How far its imagined end is from the goal.
        seed: A request for a plan with this seed, and the same frames, finds the same.
        context_frames: How many frames it has seen.
        restarted: Whether the context was full, and was begun anew from position 0 with the last of them.
        dropped: Ticks that gave way to this one.
        latency_s: From when the tick was there.
    """

    tick: int
    id: str | None
    actions: list[Numbers]
    energy: float
    seed: int
    context_frames: int
    restarted: bool
    dropped: int
    latency_s: float


class Progress(Struct, frozen=True, tag="progress", kw_only=True):
    """One iteration of a search. ``mean`` and ``std``: dx, dy, dz and gripper for each step."""

    tick: int
    id: str | None
    iteration: int
    best_energy: float
    mean_energy: float
    mean: list[Numbers]
    std: list[Numbers]


class Ended(Struct, frozen=True, tag="ended"):
    """The last frame: of the ticks that came so many were planned for, refused, and dropped."""

    ticks: int
    planned: int
    refused: int
    dropped: int
