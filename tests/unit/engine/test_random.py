"""Keyed draws: the same key gives the same number, in any process."""

from hypothesis import given
from hypothesis import strategies as st

from walkserve.engine.random import key63, uniform

parts = st.lists(st.one_of(st.integers(), st.text(st.characters(exclude_categories=["Cs"]))), max_size=5)


def test_numbers_are_the_same_today_as_ever():
    assert uniform(7, 0, "speech", 1, 42, 0) == 0.7293561186634332
    assert key63(7, 0, "speech", 1, 42, 0) == 5372868932181179473


@given(parts)
def test_ranges(key):
    assert 0 <= uniform(*key) < 1
    assert 0 <= key63(*key) < 2**63


@given(parts, parts)
def test_two_keys_share_no_draw(one, other):
    assert (key63(*one) == key63(*other)) == (one == other)
    assert (uniform(*one) == uniform(*other)) == (one == other)


def test_parts_do_not_run_into_one_another():
    keys = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("1",),
        (1,),
        (1, 0),
        (1, ""),
        (256,),
        (1, 1),
        (-1,),
        (255,),
        (),
    ]
    assert len({key63(*key) for key in keys}) == len(keys)


def test_both_kinds_of_draw_are_independent():
    assert key63(1, "noise") >> 10 != int(uniform(1, "noise") * 2**53)


def test_neighbouring_keys_are_spread_evenly():
    draws = [uniform(3, "talker", turn) for turn in range(4000)]
    for tenth in range(10):
        assert 320 < sum(tenth / 10 <= draw < (tenth + 1) / 10 for draw in draws) < 480
