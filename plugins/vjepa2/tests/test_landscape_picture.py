"""The picture of a landscape shows where it is low, and where the plan goes."""

from __future__ import annotations

import numpy as np
import pytest

from walk_plugin_vjepa2.landscape_drawing import SIZE, draw_landscape

TICKS = [-0.075, -0.0375, 0.0, 0.0375, 0.075]
WHITE, ORANGE = np.array([255, 255, 255]), np.array([255, 122, 46])


def valley(at: tuple[int, int]) -> np.ndarray:
    """Energies that are lowest at these points of the two axes."""
    across, up = np.mgrid[0:5, 0:5]
    return np.hypot(across - at[0], up - at[1]).astype(np.float32)


def drawn(**changes) -> np.ndarray:
    said = {"lowest": (-0.075, 0.075), "planned": (0.0375, -0.0375)} | changes
    return draw_landscape(valley((0, 4)), TICKS, ("x", "gripper"), **said)


def middle(picture: np.ndarray, colour: np.ndarray) -> tuple[float, float]:
    """Where on the map a colour is, as shares of its width and of its height from below."""
    inside = picture[46:394, 74:422].astype(int)
    rows, columns = np.nonzero(np.abs(inside - colour).max(-1) < 12)
    return columns.mean() / 348, 1 - rows.mean() / 348


def test_it_is_a_picture_of_its_size():
    picture = drawn()
    assert picture.shape == (SIZE, SIZE, 3)
    assert picture.dtype == np.uint8


def test_the_first_axis_goes_to_the_right_and_the_second_up():
    assert middle(drawn(), WHITE) == pytest.approx((0.1, 0.9), abs=0.01)
    assert middle(drawn(), ORANGE) == pytest.approx((0.7, 0.3), abs=0.01)


def test_the_map_is_darkest_where_the_energy_is_lowest():
    picture = draw_landscape(valley((4, 0)), TICKS, ("x", "y"), lowest=(0.075, -0.075), planned=None)
    map_ = picture[46:394, 74:422].astype(int).sum(-1)
    corners = {"low": map_[-12, -12], "left": map_[-12, 12], "top": map_[12, -12], "far": map_[12, 12]}
    assert min(corners, key=corners.__getitem__) == "low"
    assert max(corners, key=corners.__getitem__) == "far"


def test_a_plan_outside_the_landscape_is_marked_at_its_edge():
    assert middle(drawn(planned=(9.0, 0.0)), ORANGE)[0] == pytest.approx(0.9, abs=0.01)


def test_without_a_plan_there_is_no_mark_of_one():
    inside = drawn(planned=None).astype(int)
    assert not (np.abs(inside - ORANGE).max(-1) < 12).any()


def test_a_flat_landscape_is_drawn_too():
    flat = np.full((5, 5), 0.5, np.float32)
    picture = draw_landscape(flat, TICKS, ("x", "y"), lowest=(0.0, 0.0), planned=None)
    assert picture.shape == (SIZE, SIZE, 3)
