"""What a whole answer holds of an output that rows of a Fan give."""

import numpy as np

from walkserve_sdk.results import Sound, join_pieces


def pieces(*rows: int) -> list[np.ndarray]:
    return [np.full((2, 3), row) for row in rows]


def test_pieces_of_a_row_are_stacked_in_order_and_then_the_rows() -> None:
    indexes = [1, 0, 1, 0]
    joined = join_pieces("tensor", pieces(10, 0, 11, 1), indexes=indexes)
    assert joined.shape == (2, 2, 2, 3)
    assert joined[:, :, 0, 0].tolist() == [[0, 1], [10, 11]]


def test_rows_of_several_lengths_are_a_list_and_one_that_gave_nothing_has_its_place() -> None:
    joined = join_pieces("tensor", pieces(0, 20, 21), indexes=[0, 2, 2])
    assert [getattr(one, "shape", one) for one in joined] == [(1, 2, 3), [], (2, 2, 3)]


def test_pieces_of_several_shapes_are_a_list() -> None:
    joined = join_pieces("tensor", [np.zeros(2), np.zeros(3), np.zeros(2)], indexes=[0, 0, 1])
    assert [len(one) for one in joined] == [2, 1] and [len(one) for one in joined[0]] == [2, 3]
    assert joined[1].shape == (1, 2)


def test_text_and_sound_of_rows_are_one_of_each_row() -> None:
    assert join_pieces("text", ["a", "x", "b"], indexes=[0, 1, 0]) == ["ab", "x"]
    sounds = [Sound(np.full(2, each, np.float32), 8) for each in (1, 2)]
    joined = join_pieces("audio", [sounds[0], sounds[1], sounds[0]], indexes=[0, 1, 0], rate=8)
    assert [one.samples.tolist() for one in joined] == [[1, 1, 1, 1], [2, 2]]


def test_what_comes_from_no_row_is_as_ever() -> None:
    assert join_pieces("text", ["a", "b"], indexes=[None, None]) == "ab"
    assert len(join_pieces("tensor", pieces(0, 1), indexes=[None, 0])) == 2
