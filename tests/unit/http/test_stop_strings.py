"""Strings that end a text, however it is cut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkserve.http.stop_strings import StopStrings


def read(pieces: Sequence[str], *stops: str) -> tuple[list[str], bool]:
    """What is let through after each piece and at the end, and whether a stop string was found."""
    reader = StopStrings(stops)
    return [*map(reader.feed, pieces), reader.flush()], reader.is_found


def test_one_that_is_cut_across_pieces_is_never_let_through():
    assert read(["abc DE", "F", "GH"], "DEFG") == (["abc ", "", "", ""], True)


def test_what_only_began_like_one_is_let_through():
    assert read(["abc DE", "F", "xy"], "DEFG") == (["abc ", "", "DEFxy", ""], False)
    assert read(["aa", "ab"], "aab") == (["", "a", ""], True)  # it begins anew within what was held


def test_what_is_held_at_the_end_is_let_through():
    assert read(["abc DEF"], "DEFG") == (["abc ", "DEF"], False)


def test_nothing_is_let_through_after_one():
    assert read(["a.b", "c"], ".") == (["a", "", ""], True)


def test_of_several_the_first_to_be_complete_ends_the_text_and_of_these_the_longest():
    assert read(["xabcd"], "abcd", "bc") == (["xa", ""], True)
    assert read(["xabc"], "bc", "abc") == (["x", ""], True)


def test_without_any_all_is_let_through_at_once():
    assert read(["a", "b"]) == (["a", "b", ""], False)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text("ab", max_size=4), max_size=8),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_it_does_not_matter_how_a_text_is_cut(pieces, stops):
    through, is_found = read(pieces, *stops)
    text = "".join(pieces)
    whole, was_found = read([text], *stops)
    assert ("".join(through), is_found) == ("".join(whole), was_found)
    assert was_found == any(stop in text for stop in stops)
    assert not any(stop in "".join(through) for stop in stops)
    assert text.startswith("".join(through))
    for count in range(len(pieces)):  # nothing is held that can no longer become one
        so_far, held = "".join(pieces[: count + 1]), "".join(pieces[: count + 1])
        held = held.removeprefix("".join(through[: count + 1]))
        if not any(stop in so_far for stop in stops):
            assert held == "" or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize("stop", ["a", "ab", "aab"])
def test_a_stop_string_alone_leaves_nothing(stop):
    assert read(list(stop), stop) == ([""] * (len(stop) + 1), True)
