"""Admission: what a request will need of every cache, decided before any model computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from walkserve.messages import PoolInfo
from walkserve_sdk import Budget, Component, ContextLengthExceeded, Model, Outcome, Request

Pools = Mapping[str, PoolInfo]


def fit(model: Model, request: Request, prepared: Outcome, pools: Pools) -> tuple[Request, Budget]:
    """The request with its length cut to what fits, and its budget.

    A length limit the client set is never changed: if it cannot fit, the request is refused.

    Raises:
        ContextLengthExceeded: It can never fit; the message has both numbers.
    """
    budget = model.budget(request, prepared)
    if _excess(budget, pools) is None:
        return request, budget
    option = model.length_option
    most = getattr(request.options, option, None)
    if isinstance(most, int) and option not in request.given:
        cut = _longest(model, request, prepared, pools, most)
        if cut is not None:
            return cut, model.budget(cut, prepared)
    raise _too_long(model, request, budget, pools)


def pages_needed(budget: Budget, pools: Pools) -> dict[str, int]:
    """Pages to reserve per component, for its worst length on every branch."""
    return {
        part.name: -(-(start + more) // pools[part.name].page_size) * len(part.branches)
        for part, (start, more) in budget.items()
    }


def _longest(model: Model, request: Request, prepared: Outcome, pools: Pools, most: int) -> Request | None:
    """The request with the largest length limit that fits, by halving; None if not even 1 does."""
    fits: Request | None = None
    least, most = 1, most - 1
    while least <= most:
        middle = (least + most) // 2
        options = dataclasses.replace(request.options, **{model.length_option: middle})
        tried = dataclasses.replace(request, options=options)
        if _excess(model.budget(tried, prepared), pools) is None:
            fits, least = tried, middle + 1
        else:
            most = middle - 1
    return fits


def _excess(budget: Budget, pools: Pools) -> Component | None:
    """The first component whose cache could never hold what is asked of it."""
    for part, (start, more) in budget.items():
        if start + more > longest_request(part, pools[part.name]):
            return part
    return None


def longest_request(part: Component, pool: PoolInfo) -> int:
    """Tokens one request may have: the model's context, or the whole pool shared by the branches."""
    return min(pool.context, pool.pages // len(part.branches) * pool.page_size)


def _too_long(model: Model, request: Request, budget: Budget, pools: Pools) -> ContextLengthExceeded:
    part = _excess(budget, pools)
    assert part is not None
    start, more = budget[part]
    limit, option = longest_request(part, pools[part.name]), model.length_option
    if start >= limit:
        return ContextLengthExceeded(
            f"this is {start} tokens of {part.name} to begin with, and one request may have {limit}, "
            "what is added included; shorten the input",
            param=model.inputs[0] if len(model.inputs) == 1 else None,
        )
    return ContextLengthExceeded(
        f"this needs {start + more} tokens of {part.name} ({start} to begin with, {more} to come), "
        f"but one request may have {limit}; shorten the input or {option}",
        param=option if option in request.given else None,
    )
