"""A listener who plays what comes: when he has to wait."""

import pytest

from walkserve.http.playback import Playback


def test_who_gets_sound_before_the_last_has_been_played_never_waits():
    played = Playback()
    assert [played.came(1.0, now) for now in (10.0, 10.5, 11.9, 12.999)] == [0, 0, 0, 0]
    assert played.underruns == 0


def test_who_has_played_all_before_more_comes_waits_and_plays_on_from_then():
    played = Playback()
    played.came(1.0, 10.0)
    assert played.came(1.0, 11.25) == pytest.approx(0.25)
    assert played.came(1.0, 12.0) == 0  # the second began at 11.25, not at 11
    assert played.came(1.0, 14.0) == pytest.approx(0.75)
    assert played.underruns == 2 and played.silent_s == pytest.approx(1.0)


def test_the_time_before_the_first_sound_is_no_underrun_and_nothing_is_no_sound():
    played = Playback()
    assert played.came(0.0, 1.0) == 0
    assert played.came(0.5, 100.0) == 0
    assert played.came(0.0, 200.0) == 0
    assert played.underruns == 0
