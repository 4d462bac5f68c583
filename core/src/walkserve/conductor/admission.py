"""Admission: what a request will need of every cache, decided before any model computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from walkserve.messages import PoolInfo
from walkserve_sdk import Budget, Component, ContextLengthExceeded, Model, Outcome, Request


def fit(
    model: Model, request: Request, prepared: Outcome, pools: Mapping[str, PoolInfo]
) -> tuple[Request, Budget]:
    """The request with its length cut to what fits, and its budget.

    A length limit the client set is never changed: if it cannot fit, the request is refused.

    Raises:
        ContextLengthExceeded: It can never fit; the message has both numbers.
    """
    budget = model.budget(request, prepared)
    option = model.length_option
    room = min((_limit(pools[part.name]) - start for part, (start, _) in budget.items()), default=None)
    most = getattr(request.options, option, None)
    if room is not None and most is not None and most > room >= 1 and option not in request.given:
        request = dataclasses.replace(request, options=dataclasses.replace(request.options, **{option: room}))
        budget = model.budget(request, prepared)
    for part, (start, more) in budget.items():
        limit = _limit(pools[part.name])
        if start + more > limit:
            raise ContextLengthExceeded(
                f"this needs {start + more} tokens of {part.name} ({start} to begin with, {more} to come), "
                f"but one request may have {limit}; shorten the input or {option}",
                param=option if option in request.given and start < limit else None,
            )
    return request, budget


def pages_needed(budget: Budget, pools: Mapping[str, PoolInfo]) -> dict[str, int]:
    """Pages to reserve per component, for its worst length on every branch, one token in flight included."""
    return {
        part.name: _pages(part, start + more, pools[part.name].page_size)
        for part, (start, more) in budget.items()
    }


def _limit(pool: PoolInfo) -> int:
    return min(pool.context, pool.pages * pool.page_size)


def _pages(part: Component, tokens: int, page_size: int) -> int:
    return -(-tokens // page_size) * len(part.branches)
