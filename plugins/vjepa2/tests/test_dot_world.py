"""The simulator, before anything is judged by it."""

import dot_world as world
import numpy as np
import pytest

STILL = np.zeros(7)


def state(x: float = 0.0, y: float = 0.0, z: float = 0.1, closed: float = 0.0) -> world.State:
    return np.array([x, y, z, 0, 0, 0, closed])


def disc(seen: np.ndarray) -> np.ndarray:
    """Where the picture is more of the disc than of what it is with the disc far away."""
    without = world.render(state(x=-99.0))
    apart = np.abs(seen.astype(int) - without).max(-1)
    return apart > apart.max() / 2


def middle(seen: np.ndarray) -> tuple[float, float]:
    rows, columns = np.nonzero(disc(seen))
    return columns.mean(), rows.mean()


@pytest.mark.parametrize(("x", "y"), [(0.0, 0.0), (0.2, 0.1), (-0.25, -0.2)])
def test_the_disc_stands_where_the_state_says(x: float, y: float):
    assert middle(world.render(state(x, y))) == pytest.approx((32 + 90 * x, 32 - 90 * y), abs=0.5)


def test_a_higher_disc_is_larger():
    near, far = (disc(world.render(state(z=z))).sum() for z in (0.3, 0.0))
    assert near == pytest.approx(np.pi * 8.1**2, rel=0.2)
    assert far == pytest.approx(np.pi * 4.5**2, rel=0.2)


def test_a_closed_gripper_is_green_and_an_open_one_red():
    assert world.render(state(closed=0.0))[32, 32].tolist() == pytest.approx([255, 64, 51], abs=8)
    assert world.render(state(closed=1.0))[32, 32].tolist() == pytest.approx([102, 217, 51], abs=8)


def test_an_action_is_added():
    moved = world.step(state(0.1, closed=0.25), np.array([0.05, -0.02, 0.01, 0, 0, 0, 0.5]))
    assert moved == pytest.approx(state(0.15, -0.02, 0.11, 0.75))


def test_the_world_ends_and_a_step_has_its_length():
    assert world.step(state(0.29), np.full(7, 9.0)) == pytest.approx(state(0.3, 0.075, 0.175, 0.75))


def test_standing_still_changes_nothing():
    there = world.some_state(np.random.default_rng(0))
    assert world.step(there, STILL) == pytest.approx(there)


def test_every_state_it_offers_shows_the_whole_disc():
    random = np.random.default_rng(0)
    for _ in range(50):
        seen = disc(world.render(world.some_state(random)))
        assert seen.any()
        assert not (seen[0].any() or seen[-1].any() or seen[:, 0].any() or seen[:, -1].any())


def test_a_distance_is_between_places_and_leaves_the_gripper_out():
    assert world.distance(state(0.1), state(0.1, closed=1.0)) == 0
    assert world.distance(state(0.0, 0.0, 0.0), state(0.03, 0.0, 0.04)) == pytest.approx(0.05)
