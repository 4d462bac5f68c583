"""How likely tokens were."""

import math

import torch

from walkserve_sdk.nn import score_record, scores_of


def test_a_token_is_told_with_the_likeliest_at_its_place():
    logits = torch.tensor([0.0, math.log(2), math.log(5)])
    scores = scores_of(logits, 0, top=2)
    assert scores[:, 0].tolist() == [0, 2, 1]
    assert torch.allclose(scores[:, 1].exp(), torch.tensor([1, 5, 2], dtype=torch.float64) / 8)
    assert scores_of(logits, 1).shape == (1, 2)
    assert scores_of(logits, 1, top=9).shape == (4, 2)


def test_a_record_spells_them_as_bytes_and_what_is_not_written_has_none():
    words = {0: "ü".encode(), 1: b"", 2: b"c"}
    record = score_record(scores_of(torch.zeros(3), 0, top=1), words.__getitem__)
    assert record["token"].tolist() == list("ü".encode())
    assert record["logprob"] == record["top_logprobs"][0] == -math.log(3)
    empty = score_record(scores_of(torch.zeros(3), 1), words.__getitem__)
    assert empty["token"].dtype == torch.uint8 and empty["token"].tolist() == []
    assert empty["top"] == empty["top_logprobs"] == []
