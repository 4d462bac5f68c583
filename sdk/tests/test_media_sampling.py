"""Which frames are taken: the same as the loaders that models were trained and shown with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkserve_sdk import BadRequest
from walkserve_sdk.media.sampling import Ends, Rate, Sampling, Spread, Step


def at(fps: float, count: int) -> tuple[np.ndarray, float]:
    """Times of a video of a constant rate, and its end."""
    return np.arange(count) / fps, count / fps


def taken(sampling: Sampling, count: int, fps: float = 10) -> list[int]:
    return sampling.choose(*at(fps, count)).tolist()


def test_each_way_takes_what_its_drawing_says() -> None:
    assert taken(Spread(4), 10) == [0, 2, 5, 7]
    assert taken(Ends(4), 10) == [0, 3, 6, 9]
    assert taken(Step(3, frames=3), 10) == [0, 3, 6]
    assert taken(Step(3), 10) == [0, 3, 6, 9]
    assert taken(Rate(5), 10) == [0, 2, 4, 6, 8]
    assert taken(Rate(4, frames=3), 10) == [0, 2, 5]
    assert taken(Sampling(), 3) == [0, 1, 2]


def test_the_authors_demo_takes_every_second_of_the_first_128_frames() -> None:
    assert taken(Step(2, frames=64), 300) == np.arange(0, 128, 2).tolist()


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 500), frames=st.integers(1, 80))
def test_spread_and_ends_are_what_transformers_takes(count: int, frames: int) -> None:
    video_utils = pytest.importorskip("transformers.video_utils")
    metadata = video_utils.VideoMetadata(total_num_frames=count, fps=10)
    if frames <= count:
        theirs = video_utils.default_sample_indices_fn(metadata, num_frames=frames)
        assert taken(Spread(frames), count) == theirs.tolist()
        assert taken(Ends(frames), count) == np.linspace(0, count - 1, frames, dtype=int).tolist()
    else:  # theirs refuses, or takes some twice
        assert taken(Spread(frames), count) == taken(Ends(frames), count) == list(range(count))


@settings(max_examples=40, deadline=None)
@given(seconds=st.integers(1, 9), fps=st.sampled_from([1, 2, 5, 10]))
def test_a_rate_that_divides_the_videos_own_is_what_transformers_takes(seconds: int, fps: int) -> None:
    video_utils = pytest.importorskip("transformers.video_utils")
    metadata = video_utils.VideoMetadata(total_num_frames=seconds * 10, fps=10)
    theirs = video_utils.default_sample_indices_fn(metadata, fps=fps)
    assert taken(Rate(fps), seconds * 10) == theirs.tolist()


def test_a_rate_goes_by_the_clock_and_not_by_the_number() -> None:
    times = np.array([0.0, 0.1, 0.2, 1.0, 1.5])  # frame 2 stays for 0.8 s
    assert Rate(2).choose(times, 2.0).tolist() == [0, 2, 3, 4]
    assert Rate(4).choose(times, 2.0).tolist() == [0, 2, 2, 2, 3, 3, 4, 4]
    assert Spread(2).choose(times, 2.0).tolist() == [0, 2]


def test_times_that_a_file_rounds_to_milliseconds_are_met_all_the_same() -> None:
    times = np.round(np.arange(300) / 30, 3)  # 0, 0.033, 0.067: the third is "late"
    assert Rate(30).choose(times, 10.0, 0.0005).tolist() == list(range(300))
    assert Rate(15).choose(times, 10.0, 0.0005).tolist() == list(range(0, 300, 2))


def test_a_window_takes_its_start_and_not_its_end() -> None:
    assert taken(Sampling(start_s=0.2, end_s=0.5), 10) == [2, 3, 4]
    assert taken(Spread(2, start_s=0.5), 10) == [5, 7]
    assert taken(Ends(2, end_s=0.5), 10) == [0, 4]
    assert taken(Step(2, start_s=0.3, end_s=99), 10) == [3, 5, 7, 9]
    assert taken(Rate(10, start_s=0.25, end_s=0.5), 10) == [2, 3, 4]
    for sampling in (Spread(2, start_s=7), Ends(2, start_s=7), Step(start_s=7), Rate(5, start_s=7)):
        assert taken(sampling, 10) == []


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.floats(0.001, 3), min_size=0, max_size=30),
    start=st.floats(0, 20),
    length=st.none() | st.floats(0.01, 20),
    frames=st.integers(1, 40),
    fps=st.floats(0.1, 60),
)
def test_whatever_the_video_frames_come_in_order_from_within_the_window(
    gaps: list[float], start: float, length: float | None, frames: int, fps: float
) -> None:
    times = np.cumsum([0.0, *gaps])
    over = float(times[-1]) + 0.1
    end = None if length is None else start + length
    window = {"start_s": start, "end_s": end}
    for sampling in (Spread(frames, **window), Ends(frames, **window), Step(3, frames=frames, **window)):
        chosen = sampling.choose(times, over)
        assert len(chosen) <= frames
        assert (np.diff(chosen) > 0).all()
        assert all(start <= times[index] and (end is None or times[index] < end) for index in chosen)
    rated = Rate(fps, frames, **window).choose(times, over)
    assert len(rated) <= frames and (np.diff(rated) >= 0).all()
    assert ((rated >= 0) & (rated < len(times))).all()
    assert (len(rated) == 0) == (start >= min(over, over if end is None else end))


@pytest.mark.parametrize(
    ("make", "message", "param"),
    [
        (lambda: Spread(0), "frames: it is more than 0, got 0", "frames"),
        (lambda: Step(0), "step: it is more than 0, got 0", "step"),
        (lambda: Rate(float("nan")), "fps: it is more than 0, got nan", "fps"),
        (lambda: Rate(float("inf")), "fps: it is more than 0, got inf", "fps"),
        (lambda: Rate(10_000), "fps: it is at most 1,000, got 10000", "fps"),
        (lambda: Sampling(start_s=-1), "start_s: it is 0 or more, got -1", "start_s"),
        (lambda: Sampling(start_s=2, end_s=2), "end_s: it is more than start_s, 2, got 2", "end_s"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(make, message: str, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        make()
    assert (str(refused.value), refused.value.param) == (message, param)
