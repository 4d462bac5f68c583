"""A pose after an action: scipy's arithmetic, all rows at once."""

from __future__ import annotations

import math

import pytest
import torch

from walk_plugin_vjepa2.poses import action_between, next_pose


def poses(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def test_one_row_and_many_have_the_same_bits():
    generator = torch.Generator().manual_seed(3)
    pose, action = ((torch.rand(33, 7, generator=generator) - 0.5) * size for size in (2, 0.3))
    together = next_pose(pose, action)
    alone = torch.cat([next_pose(pose[row : row + 1], action[row : row + 1]) for row in range(33)])
    assert torch.equal(together, alone)


def test_positions_add_and_the_gripper_stays_between_open_and_closed():
    made = next_pose(
        poses([0.1, 0.2, 0.3, 0, 0, 0, 0.9], [0, 0, 0, 0, 0, 0, 0.1]),
        poses([1, -1, 0.5, 0, 0, 0, 0.75], [0, 0, 0, 0, 0, 0, -0.75]),
    )
    torch.testing.assert_close(made[0, :3], torch.tensor([1.1, -0.8, 0.8]))
    assert made[:, 6].tolist() == [1, 0]


def test_turns_about_one_axis_add_and_come_round():
    for axis in (3, 5):
        pose, action = torch.zeros(1, 7), torch.zeros(1, 7)
        pose[0, axis], action[0, axis] = 3.0, 0.5
        expected = torch.zeros(1, 7)
        expected[0, axis] = 3.5 - 2 * math.pi
        torch.testing.assert_close(next_pose(pose, action), expected, atol=1e-6, rtol=0)


def test_an_actions_turn_comes_after_the_poses():
    """First backwards about x, then a quarter about z: z is the room's, not the hand's."""
    made = next_pose(poses([0, 0, 0, 2.5, 0, 0, 0]), poses([0, 0, 0, 0, 0, math.pi / 2, 0]))
    torch.testing.assert_close(made, poses([0, 0, 0, 2.5, 0, math.pi / 2, 0]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("second", [math.pi / 2, -math.pi / 2])
def test_where_first_and_third_angle_are_one_turn_the_third_is_zero(second):
    made = next_pose(poses([0, 0, 0, 0.3, second, 0.2, 0]), torch.zeros(1, 7))
    first = 0.3 - math.copysign(0.2, second)
    torch.testing.assert_close(made[0, 3:6], torch.tensor([first, second, 0]), atol=1e-3, rtol=0)
    assert made[0, 5] == 0


def test_they_are_scipys_bit_by_bit():
    rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    generator = torch.Generator().manual_seed(5)
    for size in (0.1, 3.0):
        pose, action = ((torch.rand(200, 7, generator=generator) - 0.5) * 2 * size for _ in range(2))
        turns = [rotation.from_euler("xyz", each[:, 3:6].numpy()).as_matrix() for each in (action, pose)]
        expected = rotation.from_matrix(turns[0] @ turns[1]).as_euler("xyz")
        assert torch.equal(next_pose(pose, action)[:, 3:6], torch.from_numpy(expected).float())


def test_the_action_between_two_poses_leads_from_the_one_to_the_other():
    generator = torch.Generator().manual_seed(4)
    before, after = ((torch.rand(50, 7, generator=generator) - 0.5) * 2 for _ in range(2))
    before[:, 6], after[:, 6] = before[:, 6].abs(), after[:, 6].abs()
    actions = torch.stack([action_between(*pair) for pair in zip(before, after, strict=True)])
    torch.testing.assert_close(next_pose(before, actions), after, atol=1e-6, rtol=0)
    assert not torch.allclose(actions[:, 3:6], after[:, 3:6] - before[:, 3:6], atol=1e-2)  # turns do not add
    torch.testing.assert_close(action_between(before[0], before[0]), torch.zeros(7), atol=1e-6, rtol=0)
