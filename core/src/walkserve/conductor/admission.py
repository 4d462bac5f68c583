"""Admission: what a request will need of every cache, decided before any model computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from walkserve.messages import PoolInfo
from walkserve_sdk import Budget, Component, ContextLengthExceeded, Model, Outcome, Request

Pools = Mapping[str, PoolInfo]
Fanned = Mapping[str, int]
"""Component -> how many of its branches rows of Fans fork and write; those without any are not there."""
NOTHING: Fanned = MappingProxyType({})


def fit(
    model: Model, request: Request, prepared: Outcome, pools: Pools, fanned: Fanned = NOTHING
) -> tuple[Request, Budget]:
    """The request with its length cut to what fits, and its budget.

    A length limit the client set is never changed: if it cannot fit, the request is refused.

    Raises:
        ContextLengthExceeded: It can never fit; the message has both numbers.
    """
    budget = model.budget(request, prepared)
    if _excess(budget, pools, fanned) is None:
        return request, budget
    option = model.length_option
    most = getattr(request.options, option, None)
    if isinstance(most, int) and option not in request.given:
        cut = _longest(model, request, prepared, pools, fanned, most)
        if cut is not None:
            return cut, model.budget(cut, prepared)
    raise _too_long(model, request, budget, pools, fanned)


def pages_needed(budget: Budget, pools: Pools, fanned: Fanned = NOTHING) -> dict[str, int]:
    """Pages to reserve per component, for its worst length on every branch.

    Of a branch that a Fan forks, the start and one row beyond it: as much as the branch itself at its worst,
    and one page more, as both have the one that the start ends in. More rows run where more pages are free,
    so nobody is refused, or waits, for how many there are.
    """
    return {
        part.name: -(-(start + more) // pools[part.name].page_size) * len(part.branches)
        + fanned.get(part.name, 0)
        for part, (start, more) in budget.items()
    }


def longest_branches(budget: Budget) -> dict[str, int]:
    """Tokens that a branch of each component may come to, in all."""
    return {part.name: start + more for part, (start, more) in budget.items()}


def _longest(
    model: Model, request: Request, prepared: Outcome, pools: Pools, fanned: Fanned, most: int
) -> Request | None:
    """The request with the largest length limit that fits, by halving; None if not even 1 does."""
    fits: Request | None = None
    least, most = 1, most - 1
    while least <= most:
        middle = (least + most) // 2
        options = dataclasses.replace(request.options, **{model.length_option: middle})
        tried = dataclasses.replace(request, options=options)
        if _excess(model.budget(tried, prepared), pools, fanned) is None:
            fits, least = tried, middle + 1
        else:
            most = middle - 1
    return fits


def _excess(budget: Budget, pools: Pools, fanned: Fanned) -> Component | None:
    """The first component whose cache could never hold what is asked of it."""
    for part, (start, more) in budget.items():
        if start + more > longest_request(part, pools[part.name], fanned):
            return part
    return None


def longest_request(part: Component, pool: PoolInfo, fanned: Fanned = NOTHING) -> int:
    """Tokens one request may have: the model's context, or the whole pool shared by the branches."""
    pages = pool.pages - fanned.get(part.name, 0)
    return min(pool.context, pages // len(part.branches) * pool.page_size)


def _too_long(
    model: Model, request: Request, budget: Budget, pools: Pools, fanned: Fanned
) -> ContextLengthExceeded:
    part = _excess(budget, pools, fanned)
    assert part is not None
    start, more = budget[part]
    limit, option = longest_request(part, pools[part.name], fanned), model.length_option
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
