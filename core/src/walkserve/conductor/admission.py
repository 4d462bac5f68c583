"""Admission: what a request will need of every cache, decided before any model computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from walkserve.messages import PoolInfo
from walkserve_sdk import Budget, Component, ContextLengthExceeded, Model, Outcome, Request
from walkserve_sdk.components import OnBranch
from walkserve_sdk.errors import DeclarationError

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
        DeclarationError: The budget has a branch's size, and not its component's.
    """
    budget = model.budget(request, prepared)
    _check(model, budget)
    if _excess(budget, pools, fanned) is None:
        return request, budget
    option = model.length_option
    most = getattr(request.options, option, None)
    if isinstance(most, int) and option not in request.given:
        cut = _longest(model, request, prepared, pools, fanned, most)
        if cut is not None:
            return cut, model.budget(cut, prepared)
    raise _too_long(model, request, budget, pools, fanned)


def _check(model: Model, budget: Budget) -> None:
    for at in budget:
        if isinstance(at, OnBranch) and at.component not in budget:
            raise DeclarationError(
                f"{model.spec.name}.budget(): it has the size of {at.name}, but not of {at.component.name}; "
                "say what the branches hold that have none of their own, main at least"
            )


def pages_needed(budget: Budget, pools: Pools, fanned: Fanned = NOTHING) -> dict[str, int]:
    """Pages to reserve per component, for its worst length on every branch.

    Of a branch that has a size of its own (``Component.on``) no more than that, and one page, as it and the
    branch it is forked from both have the page that they part in.

    Of a branch that a Fan forks, the start and one row beyond it: as much as the branch itself at its worst,
    and one page more, as both have the one that the start ends in. More rows run where more pages are free,
    so nobody is refused, or waits, for how many there are.
    """
    needed: dict[str, int] = {}
    for part, (start, more) in whole(budget).items():
        size, own = pools[part.name].page_size, _own(part, budget)
        needed[part.name] = (
            -(-(start + more) // size) * (len(part.branches) - len(own))
            + _pages_of(own, size)
            + fanned.get(part.name, 0)
        )
    return needed


def whole(budget: Budget) -> dict[Component, tuple[int, int]]:
    """What it says of components, without what it says of single branches."""
    return {part: size for part, size in budget.items() if isinstance(part, Component)}


def longest_branches(budget: Budget) -> dict[str, int]:
    """Tokens that a branch of each component may come to, in all."""
    return {part.name: start + more for part, (start, more) in whole(budget).items()}


def _own(part: Component, budget: Budget) -> list[int]:
    """Tokens of each of its branches that has a size of its own."""
    return [
        start + more
        for at, (start, more) in budget.items()
        if isinstance(at, OnBranch) and at.component is part
    ]


def _pages_of(own: Sequence[int], size: int) -> int:
    return sum(-(-tokens // size) + 1 for tokens in own)


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
    for part, (start, more) in whole(budget).items():
        if start + more > longest_request(part, pools[part.name], fanned, _own(part, budget)):
            return part
    return None


def longest_request(
    part: Component, pool: PoolInfo, fanned: Fanned = NOTHING, own: Sequence[int] = ()
) -> int:
    """Tokens one request may have: the model's context, or the whole pool shared by the branches, except for
    those that have so many tokens of their ``own``."""
    pages = max(0, pool.pages - fanned.get(part.name, 0) - _pages_of(own, pool.page_size))
    return min(pool.context, pages // (len(part.branches) - len(own)) * pool.page_size)


def _too_long(
    model: Model, request: Request, budget: Budget, pools: Pools, fanned: Fanned
) -> ContextLengthExceeded:
    part = _excess(budget, pools, fanned)
    assert part is not None
    start, more = budget[part]
    limit = longest_request(part, pools[part.name], fanned, _own(part, budget))
    option = model.length_option
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
