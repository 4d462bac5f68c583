"""How likely a token was, and which others were: what ``Model.token_scores`` tells of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def scores_of(logits: Tensor, token: int, top: int = 0) -> Tensor:
    """A token and the likeliest ones, as float64 (1 + top, 2): ids, and logarithms of how likely they are.

    As the model has it: before temperature and whatever else decides what is drawn.

    Args:
        logits: (vocabulary,), of one row.
        token: Which was drawn.
        top: How many of the likeliest are told, the likeliest first; it may be among them.
    """
    scores = logits.double().log_softmax(dim=0)
    best = scores.topk(min(top, len(scores)))
    ids = torch.cat([best.indices.new_tensor([token]), best.indices])
    return torch.stack([ids.double(), scores[ids]], dim=1).cpu()


def score_record(scores: Tensor, spell: Callable[[int], bytes]) -> dict[str, Any]:
    """What ``scores_of`` made, as a record of ``token_scores``.

    Args:
        spell: The bytes that a token adds to the text; none of one that is not written.

    Returns:
        ``token`` and ``top``, bytes as uint8 arrays, with ``logprob`` and ``top_logprobs``.
    """
    ids, logprobs = scores[:, 0].long().tolist(), scores[:, 1].tolist()
    spelled = [torch.tensor(list(spell(id)), dtype=torch.uint8) for id in ids]
    return {"token": spelled[0], "logprob": logprobs[0], "top": spelled[1:], "top_logprobs": logprobs[1:]}
