"""Chunk policies, for every way in which items may arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkserve_sdk import (
    ChunkPolicy,
    DeclarationError,
    Each,
    Fixed,
    Helping,
    LeftContext,
    SlidingWindow,
    Stream,
)
from walkserve_sdk.streams import Cut

small = st.integers(1, 9)


@st.composite
def sliding_windows(draw: st.DrawFn) -> SlidingWindow:
    size = draw(small)
    return SlidingWindow(size, draw(st.integers(1, size)))


policies = st.one_of(
    st.just(Each()),
    st.builds(lambda n, times: Fixed(n, most=n * times), small, st.integers(1, 5)),
    st.builds(Fixed, small),
    sliding_windows(),
    st.builds(LeftContext, small, small),
)
arrivals = st.lists(st.integers(0, 12), max_size=12)
"""How many more items have come each time the reader looks; the end is known when the last of them has."""


def cuts(policy: ChunkPolicy, arrivals: list[int], *, end_is_known_late: bool) -> list[Cut]:
    """Every cut a reader gets that takes what it can each time it looks."""
    found: list[Cut] = []
    handed = arrived = 0

    def look(ended: bool) -> None:
        nonlocal handed
        while not (found and found[-1].last) and (cut := policy.cut(handed, arrived, ended)) is not None:
            found.append(cut)
            handed += cut.fresh

    for index, more in enumerate(arrivals):
        arrived += more
        look(ended=index == len(arrivals) - 1 and not end_is_known_late)
    look(ended=True)
    return found


@given(policies, arrivals, st.booleans())
def test_every_item_is_fresh_exactly_once_and_in_order(
    policy: ChunkPolicy, arrivals: list[int], late: bool
) -> None:
    fresh = [
        item
        for cut in cuts(policy, arrivals, end_is_known_late=late)
        for item in range(cut.stop - cut.fresh, cut.stop)
    ]
    assert fresh == list(range(sum(arrivals)))


@given(policies, arrivals, st.booleans())
def test_exactly_one_helping_is_the_last_and_nothing_follows_it(
    policy: ChunkPolicy, arrivals: list[int], late: bool
) -> None:
    last = [cut.last for cut in cuts(policy, arrivals, end_is_known_late=late)]
    assert last == [False] * (len(last) - 1) + [True]


@given(policies, arrivals, st.booleans())
def test_what_is_new_in_the_helpings_joins_to_the_items(
    policy: ChunkPolicy, arrivals: list[int], late: bool
) -> None:
    items = [f"item {index}" for index in range(sum(arrivals))]
    joined: list[str] = []
    for cut in cuts(policy, arrivals, end_is_known_late=late):
        helping = Helping(items[cut.start : cut.stop], cut.start, cut.fresh, cut.last)
        assert len(helping.items) == cut.stop - cut.start
        joined += helping.new
    assert joined == items


@given(policies, arrivals, st.booleans())
def test_no_later_helping_reaches_back_behind_the_oldest(
    policy: ChunkPolicy, arrivals: list[int], late: bool
) -> None:
    handed = oldest = 0
    for cut in cuts(policy, arrivals, end_is_known_late=late):
        assert 0 <= oldest <= cut.start <= cut.stop - cut.fresh == handed
        handed += cut.fresh
        assert policy.oldest(handed) >= oldest
        oldest = policy.oldest(handed)
        assert oldest <= handed


@given(policies, st.integers(0, 40))
def test_only_an_end_makes_an_empty_helping(policy: ChunkPolicy, handed: int) -> None:
    assert policy.cut(handed, handed, False) is None
    cut = policy.cut(handed, handed, True)
    assert cut is not None and cut.fresh == 0 and cut.last


def test_fixed_hands_over_whole_multiples_up_to_its_most() -> None:
    policy = Fixed(7, most=56)
    assert policy.cut(0, 6, False) is None
    assert policy.cut(0, 20, False) == Cut(0, 14, 14, last=False)
    assert policy.cut(14, 100, False) == Cut(14, 70, 56, last=False)
    assert policy.cut(70, 100, True) == Cut(70, 100, 30, last=True)
    assert policy.cut(0, 100, True) == Cut(0, 56, 56, last=False)


def test_a_sliding_window_repeats_what_it_has_shown() -> None:
    policy = SlidingWindow(4, 2)
    assert policy.cut(0, 3, False) is None
    assert policy.cut(0, 9, False) == Cut(0, 4, 4, last=False)
    assert policy.cut(4, 9, False) == Cut(2, 6, 2, last=False)
    assert policy.cut(8, 9, True) == Cut(5, 9, 1, last=True)


def test_left_context_stands_before_what_is_fresh() -> None:
    policy = LeftContext(3, context=2)
    assert policy.cut(0, 3, False) == Cut(0, 3, 3, last=False)
    assert policy.cut(3, 6, False) == Cut(1, 6, 3, last=False)
    assert policy.cut(6, 7, True) == Cut(4, 7, 1, last=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(0), "Fixed: n=0, but it must be at least 1"),
        (lambda: Fixed(7, most=50), "Fixed: most=50 is no multiple of n=7"),
        (lambda: SlidingWindow(2, 3), "SlidingWindow: step=3 skips items of a window of 2"),
        (lambda: LeftContext(1, 0), "LeftContext: context=0, but it must be at least 1"),
        (lambda: Stream(limit=0), "Stream: limit=0, but it must be at least 1"),
        (lambda: Stream(idle_s=5), "Stream: idle_s says how long a client may be silent; write by='client'"),
        (
            lambda: Stream(by="client", idle_s=0),
            "Stream: idle_s=0; give a number of seconds above 0, or math.inf",
        ),
        (
            lambda: Stream(by="server"),  # type: ignore[arg-type]
            "Stream: by='server'; a stream is written by a 'track' or by the 'client'",
        ),
        (
            lambda: Stream(7),  # type: ignore[arg-type]
            "Stream(7): it is no chunk policy; give one, Fixed(7) for instance",
        ),
        (
            lambda: Stream(SlidingWindow(64, 8), limit=32),
            "Stream: limit=32 stops the writer before SlidingWindow(size=64, step=8) has its first helping; "
            "raise it",
        ),
        (
            lambda: Stream(Fixed(7, most=28), limit=6),
            "Stream: limit=6 stops the writer before Fixed(n=7, most=28) has its first helping; raise it",
        ),
        (
            lambda: Stream(LeftContext(4, context=9), limit=3),
            "Stream: limit=3 stops the writer before LeftContext(n=4, context=9) has its first helping; "
            "raise it",
        ),
    ],
)
def test_a_stream_that_cannot_work_is_refused(make, message: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        make()
    assert str(refused.value) == message


@given(policies, st.integers(1, 12), st.integers(0, 30))
def test_a_limit_that_lets_the_first_helping_through_lets_all_through(
    policy: ChunkPolicy, limit: int, handed: int
) -> None:
    try:
        Stream(policy, limit=limit)
    except DeclarationError:
        assert policy.cut(0, limit, False) is None
    else:
        assert policy.cut(handed, handed + limit, False) is not None
