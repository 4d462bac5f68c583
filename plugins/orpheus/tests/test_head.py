"""The head that computes only what is legal at a frame position."""

from __future__ import annotations

import torch

from walk_plugin_orpheus.ids import SpeechIds
from walk_plugin_orpheus.llama import Head

IDS = SpeechIds(end=5, first=10, codebook_size=16)
VOCABULARY = 10 + 7 * 16 + 1


def make_head() -> Head:
    return Head(torch.randn(VOCABULARY, 32, generator=torch.Generator().manual_seed(0)), IDS)


def test_a_row_with_a_slot_gets_the_logits_of_its_legal_ids_alone():
    head, hidden = make_head(), torch.randn(8, 32, generator=torch.Generator().manual_seed(1))
    slots = [0, 3, None, 6, 3, 0, None, 1]
    whole = head.whole(hidden)
    logits, allowed = head.by_slot(hidden, slots)
    for row, slot in enumerate(slots):
        if slot is None:
            assert allowed[row] is None
            assert torch.equal(logits[row], whole[row])
        else:
            assert torch.allclose(logits[row], whole[row, allowed[row]], atol=1e-5)


def test_legal_are_the_codes_of_the_position_and_between_frames_the_end():
    _, allowed = make_head().by_slot(torch.zeros(7, 32), list(range(7)))
    assert allowed[0].tolist() == [5, *range(10, 26)]
    for slot in range(1, 7):
        assert allowed[slot].tolist() == list(range(10 + 16 * slot, 26 + 16 * slot))


def test_a_row_gets_the_same_bits_whoever_is_beside_it():
    head, hidden = make_head(), torch.randn(9, 32, generator=torch.Generator().manual_seed(2))
    slots = [0, 3, None, 6, 3, 0, None, 1, 3]
    together, _ = head.by_slot(hidden, slots)
    for row, slot in enumerate(slots):
        alone, _ = head.by_slot(hidden[row : row + 1], [slot])
        assert torch.equal(alone[0], together[row])
