"""Tokens become frames, and what fits no frame is dropped and counted."""

from hypothesis import given
from hypothesis import strategies as st

from walk_plugin_orpheus.frames import CODEBOOK_SLOTS, SLOTS, Aligned, align

FIRST = 100
SIZE = 10


def token(slot: int, code: int) -> int:
    return FIRST + SIZE * slot + code


def frame_tokens(*codes: int) -> list[int]:
    return [token(slot, code) for slot, code in enumerate(codes)]


def aligned(tokens: list[int], partial: tuple[int, ...] = ()) -> Aligned:
    return align(tokens, partial, first_code=FIRST, codebook_size=SIZE)


def test_every_slot_belongs_to_one_codebook():
    assert sorted(slot for slots in CODEBOOK_SLOTS for slot in slots) == list(range(SLOTS))


def test_seven_tokens_are_a_frame_and_the_rest_waits():
    tokens = frame_tokens(1, 2, 3, 4, 5, 6, 7) + frame_tokens(8, 9)
    assert aligned(tokens) == Aligned([(1, 2, 3, 4, 5, 6, 7)], (8, 9), dropped=0)


def test_no_tokens_change_nothing():
    assert aligned([], (3, 1)) == Aligned([], (3, 1), dropped=0)


def test_code_0_and_the_highest_code_are_codes_like_any_other():
    assert aligned(frame_tokens(0, 0, 0, 0, 0, 0, 0)) == Aligned([(0,) * 7], (), dropped=0)
    assert aligned(frame_tokens(*[SIZE - 1] * 7)) == Aligned([(SIZE - 1,) * 7], (), dropped=0)


def test_a_token_that_is_no_audio_code_takes_its_frame_with_it():
    tokens = [*frame_tokens(1, 2, 3), 5, token(3, 4), token(4, 5), *frame_tokens(7, 7, 7, 7, 7, 7, 7)]
    assert aligned(tokens) == Aligned([(7,) * 7], (), dropped=6)


def test_ids_just_outside_the_audio_codes_are_dropped():
    assert aligned([FIRST - 1, FIRST + SLOTS * SIZE, 0, -1, 10**9]) == Aligned([], (), dropped=5)


def test_a_wrong_token_of_slot_0_starts_the_next_frame():
    tokens = frame_tokens(1, 2, 3) + frame_tokens(4, 4, 4, 4, 4, 4, 4)
    assert aligned(tokens) == Aligned([(4,) * 7], (), dropped=3)


def test_a_missing_token_loses_one_frame_only():
    whole = frame_tokens(1, 2, 3, 4, 5, 6, 7)
    broken = whole[:2] + whole[3:]
    assert aligned(whole + broken + whole) == Aligned([(1, 2, 3, 4, 5, 6, 7)] * 2, (), dropped=6)


def test_speech_that_starts_mid_frame_is_heard_from_the_next_frame_on():
    assert aligned(frame_tokens(0, 1, 2, 3, 4, 5, 6)[4:] + frame_tokens(9)) == Aligned([], (9,), dropped=3)


tokens_with_faults = st.lists(
    st.one_of(
        st.integers(FIRST - 3, FIRST + SLOTS * SIZE + 3).map(lambda token: [token]),
        st.lists(st.integers(0, SIZE - 1), min_size=7, max_size=7).map(lambda codes: frame_tokens(*codes)),
    )
).map(lambda pieces: [token for piece in pieces for token in piece])


@given(tokens_with_faults, st.data())
def test_how_tokens_are_split_over_calls_changes_nothing(tokens: list[int], data: st.DataObject):
    cut = data.draw(st.integers(0, len(tokens)))
    first = aligned(tokens[:cut])
    second = aligned(tokens[cut:], first.partial)
    assert aligned(tokens) == Aligned(
        first.frames + second.frames, second.partial, first.dropped + second.dropped
    )


@given(tokens_with_faults)
def test_every_token_is_in_a_frame_waits_or_is_counted(tokens: list[int]):
    result = aligned(tokens)
    assert SLOTS * len(result.frames) + len(result.partial) + result.dropped == len(tokens)
    assert all(0 <= code < SIZE for frame in [*result.frames, result.partial] for code in frame)
