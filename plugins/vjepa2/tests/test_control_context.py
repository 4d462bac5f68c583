"""Which frames a control loop has in the predictor's cache: one more per tick, and begun anew when full."""

from __future__ import annotations

import pytest

from walk_plugin_vjepa2.control import Context


def told(context: Context, tick: int) -> tuple[list[str], bool, int]:
    """A tick is added; which frames are then observed, whether anew, and how many the plan sees."""
    restarted = context.add(f"f{tick}", f"p{tick}", f"a{tick - 1}")
    observed = context.to_observe()
    rows = zip(observed["past"], observed["past_poses"], observed["past_actions"], strict=True)
    return [" ".join(row) for row in rows], restarted, context.frames


def test_a_frame_is_observed_when_the_next_has_come_with_what_was_done_between():
    context = Context(3)
    assert context.pose == []
    assert told(context, 0) == ([], False, 1)
    assert context.pose == "p0"
    assert told(context, 1) == (["f0 p0 a0"], False, 2)
    assert told(context, 2) == (["f1 p1 a1"], False, 3)


def test_a_full_context_is_begun_anew_with_the_last_frames():
    context = Context(3)
    for tick in range(3):
        told(context, tick)
    assert told(context, 3) == (["f1 p1 a1", "f2 p2 a2"], True, 3)
    assert told(context, 4) == (["f2 p2 a2", "f3 p3 a3"], True, 3)


def test_of_a_single_frame_nothing_is_ever_observed_nor_begun_anew():
    context = Context(1)
    assert [told(context, tick) for tick in range(3)] == [([], False, 1)] * 3


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_frames_are_held_than_plans_see(most: int):
    context = Context(most)
    for tick in range(20):
        observed, _, frames = told(context, tick)
        assert frames == min(tick + 1, most)
        assert len(observed) <= most - 1
