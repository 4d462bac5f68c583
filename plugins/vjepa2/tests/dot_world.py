"""The world that the toy checkpoint was trained on: a disc that moves as it is told. It knows no model.

What a state looks like, 64 x 64 pixels::

      column 32 + 90 x
              ▼
    ┌─────────┊──────────┐
    │    ▒    ┊          │     x, y in [-0.3, 0.3]: where the disc is
    │    ▒   ▄█▄ ┄┄┄┄┄┄┄┄│◄─   z in [0, 0.3]: how large, radius 4.5 + 12 z
    │    ▒   ▀█▀         │     c in [0, 1]: from red (open) to green (closed)
    │▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│
    └────────────────────┘     row 32 - 90 y; a fixed background with two lighter bars

A state is what a robot would tell of itself, x, y, z, three angles that stay zero, and the gripper; an action
is what is added to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIZE = 64
LOW = np.array([-0.3, -0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
HIGH = np.array([0.3, 0.3, 0.3, 0.0, 0.0, 0.0, 1.0])
MOST = np.array([0.075, 0.075, 0.075, 0.0, 0.0, 0.0, 0.75])
"""The furthest that one step moves each of the seven."""

REACHED = 0.04
"""Closer than this to a goal is there: under four pixels."""

State = NDArray[np.float64]
Action = NDArray[np.float64]


def some_state(random: np.random.Generator) -> State:
    """Anywhere that the whole disc is in the picture, with any gripper."""
    state = random.uniform(LOW, HIGH)
    state[:2] *= 0.25 / 0.3
    return state


def some_action(random: np.random.Generator) -> Action:
    """As far as a step goes, in any direction."""
    return random.uniform(-MOST, MOST)


def step(state: State, action: Action) -> State:
    """What the state is after an action. Neither the world nor a step goes on for ever."""
    return np.clip(state + np.clip(action, -MOST, MOST), LOW, HIGH)


def distance(one: State, other: State) -> float:
    """Between the places of two states; the gripper is not counted."""
    return float(np.linalg.norm(one[:3] - other[:3]))


def render(state: State) -> NDArray[np.uint8]:
    """What a camera sees, (64, 64, 3)."""
    x, y, z, closed = state[[0, 1, 2, 6]]
    row, column = np.mgrid[0:SIZE, 0:SIZE].astype(np.float64)
    away = np.hypot(column - (32 + 90 * x), row - (32 - 90 * y))
    cover = (1 + np.tanh((4.5 + 12 * z - away) / 2.4))[..., None] / 2  # the sigmoid of a soft edge
    disc = np.array([1 - 0.6 * closed, 0.25 + 0.6 * closed, 0.2])
    seen = cover * disc + (1 - cover) * _background(row, column)
    return (255 * seen.clip(0, 1)).round().astype(np.uint8)


def _background(row: NDArray[np.float64], column: NDArray[np.float64]) -> NDArray[np.float64]:
    plain = np.stack([0.15 + 0.1 * column / SIZE, 0.15 + 0.1 * row / SIZE, np.full_like(row, 0.25)], -1)
    bars = ((column >= 8) & (column <= 11)) | ((row >= 40) & (row <= 43))
    return plain + 0.1 * bars[..., None]
