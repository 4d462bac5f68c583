"""Where a robot's hand is after an action: positions add, rotations compose, the gripper stays in its range.

A pose is (x, y, z, three angles, how far the gripper is closed), an action the change of each; the angles are
turns about the fixed axes x, y, z, one after the other, in radians. The arithmetic is that of scipy's
``Rotation``, which the authors call once per sample: the same operations in the same order, in float64, over
all rows at once. So a pose has the bits that it has there, and where an angle cancels out, the same dust.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi

import torch
from torch import Tensor

_NO_TURN = 1e-7
"""A second angle this near to a right one leaves first and third undetermined: the third is 0 then."""


def next_pose(pose: Tensor, action: Tensor) -> Tensor:
    """Poses after actions, both (rows, 7): (rows, 7) in the type and on the device of ``pose``."""
    action = action.to(pose)
    place = pose[:, :3] + action[:, :3]
    closed = (pose[:, 6:] + action[:, 6:]).clamp(0, 1)
    turned = _product(_matrix(action[:, 3:6].double()), _matrix(pose[:, 3:6].double()))
    return torch.cat([place, _angles(turned).to(pose.dtype), closed], dim=1)


def action_between(pose: Tensor, later: Tensor) -> Tensor:
    """What must have been done between two poses, (7,) each: (7,).

    As the authors made the actions that their model was trained on (``poses_to_diffs`` in
    ``app/vjepa_droid/droid.py``): differences of what the robot told of itself, not what it was told to do.
    """
    before, after = (each[None].double() for each in (pose, later))
    back = [list(column) for column in zip(*_matrix(before[:, 3:6]), strict=True)]
    turned = _angles(_product(_matrix(after[:, 3:6]), back))
    action = torch.cat([after[:, :3] - before[:, :3], turned, after[:, 6:] - before[:, 6:]], dim=1)
    return action[0].to(later)


def _matrix(angles: Tensor) -> list[list[Tensor]]:
    """(rows, 3) angles to a 3 x 3 matrix whose entries are (rows,)."""
    x, y, z, w = _quaternion(angles)
    x2, y2, z2, w2 = x * x, y * y, z * z, w * w
    xy, zw, xz, yw, yz, xw = x * y, z * w, x * z, y * w, y * z, x * w
    return [
        [x2 - y2 - z2 + w2, 2 * (xy - zw), 2 * (xz + yw)],
        [2 * (xy + zw), -x2 + y2 - z2 + w2, 2 * (yz - xw)],
        [2 * (xz - yw), 2 * (yz + xw), -x2 - y2 + z2 + w2],
    ]


def _quaternion(angles: Tensor) -> list[Tensor]:
    """(rows, 3) angles to the quaternion (x, y, z, w) of the turns about x, then y, then z."""
    half = (angles / 2).unbind(1)
    sines, cosines = [each.sin() for each in half], [each.cos() for each in half]
    nothing = torch.zeros_like(half[0])
    turn = [sines[0], nothing, nothing, cosines[0]]
    turn = _compose([nothing, sines[1], nothing, cosines[1]], turn)
    return _compose([nothing, nothing, sines[2], cosines[2]], turn)


def _compose(p: Sequence[Tensor], q: Sequence[Tensor]) -> list[Tensor]:
    """The turn q, then the turn p."""
    cross = [p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]]
    turned = [p[3] * q[axis] + q[3] * p[axis] + cross[axis] for axis in range(3)]
    return [*turned, p[3] * q[3] - p[0] * q[0] - p[1] * q[1] - p[2] * q[2]]


def _product(a: list[list[Tensor]], b: list[list[Tensor]]) -> list[list[Tensor]]:
    return [[a[i][0] * b[0][j] + a[i][1] * b[1][j] + a[i][2] * b[2][j] for j in range(3)] for i in range(3)]


def _angles(m: list[list[Tensor]]) -> Tensor:
    """A rotation matrix to its (rows, 3) angles."""
    x, y, z, w = _from_matrix(m)
    half_sum, half_difference = torch.atan2(x + z, w - y), torch.atan2(z - x, y + w)
    second = 2 * torch.atan2(torch.hypot(y + w, z - x), torch.hypot(w - y, x + z))
    is_down, is_up = second.abs() <= _NO_TURN, (second - pi).abs() <= _NO_TURN
    first = torch.where(is_down, 2 * half_sum, -2 * half_difference)
    first = torch.where(is_down | is_up, first, half_sum - half_difference)
    third = torch.where(is_down | is_up, torch.zeros_like(first), half_sum + half_difference)
    angles = torch.stack([first, second - pi / 2, third], dim=1)
    angles = torch.where(angles < -pi, angles + 2 * pi, angles)
    return torch.where(angles > pi, angles - 2 * pi, angles)


def _from_matrix(m: list[list[Tensor]]) -> Sequence[Tensor]:
    """The unit quaternion (x, y, z, w) of a rotation matrix, by its largest component."""
    trace = m[0][0] + m[1][1] + m[2][2]
    largest = torch.stack([m[0][0], m[1][1], m[2][2], trace], dim=1).argmax(dim=1)
    candidates = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts = {i: 1 - trace + 2 * m[i][i], j: m[j][i] + m[i][j], k: m[k][i] + m[i][k], 3: m[k][j] - m[j][k]}
        candidates.append(torch.stack([parts[axis] for axis in range(4)], dim=1))
    sides = [m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1], 1 + trace]
    candidates.append(torch.stack(sides, dim=1))
    chosen = torch.stack(candidates)[largest, torch.arange(len(trace), device=trace.device)]
    squares = chosen * chosen
    return (chosen / squares.sum(dim=1, keepdim=True).sqrt()).unbind(1)
