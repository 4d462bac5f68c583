"""Choosing the next token of each row from its logits.

The order is transformers': repetition penalty, temperature, top-k, top-p, min-p.
The draw is the inverse of the cumulative distribution at a number the caller
brings (``random.uniform``), so there is no generator.

The vocabulary is not sorted. A row that filters looks at its best 1,024 tokens
first, then at 16,384; only if these do not settle what is kept is the whole row
sorted. A row that does not filter walks the distribution in the order of ids.
A row that may choose among some ids only has these for its vocabulary: the others
cost nothing, and their logits need not even be there.

Whatever rounds (exponentials and sums) is computed row by row, so a row's token is
the same in any batch; only what selects (top-k, argmax) is done for all rows at once.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from walkserve_sdk import ComponentError

_CANDIDATES = (1024, 16_384)
"""How many of the best tokens are looked at, before all are sorted."""


class BadLogits(ComponentError):
    """Logits that nothing can be sampled from: NaN, infinity, or no token that is allowed."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(f"logits of rows {list(rows)} have NaN, infinity or no allowed token")
        self.rows = list(rows)


@dataclass(frozen=True)
class SampleRow:
    """How one row samples, and the number in [0, 1) that decides its draw."""

    temperature: float = 1.0  # 0: the best token
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # relative to the best token's probability; 0: off
    repetition_penalty: float = 1.0  # 1: off
    uniform: float = 0.0
    seen: Tensor | None = None  # (n,) int64 ids of prompt and output, duplicates allowed: what is penalised
    allowed: Tensor | None = None  # (n,) int64 ids, rising: the only ones that may be chosen; None: all

    def __post_init__(self) -> None:
        bounds = {
            "temperature": 0 <= self.temperature < math.inf,
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "repetition_penalty": 0 < self.repetition_penalty < math.inf,
            "uniform": 0 <= self.uniform < 1,
        }
        for name, holds in bounds.items():
            if not holds:
                raise ValueError(f"{name} cannot be {getattr(self, name)}")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    @property
    def is_filtered(self) -> bool:
        return not self.is_greedy and (self.top_k > 0 or self.top_p < 1 or self.min_p > 0)


@dataclass(frozen=True)
class _Kept:
    """What may be drawn, with its weights: not normalised, the best token's is 1.

    In the order of the draw: from the best down, equals by id; without a filter by id.
    """

    ids: Tensor | None  # (kept,) int64; None: every id
    weights: Tensor  # (kept,) or (vocabulary,)


def sample(logits: Tensor | Sequence[Tensor], rows: Sequence[SampleRow]) -> list[int]:
    """Choose one token per row.

    Args:
        logits: (rows, vocabulary), any floating dtype; not changed. Or each row's own, (vocabulary,) or, of
            a row with ``allowed``, the logits of these alone.
        rows: How each row samples.

    Raises:
        BadLogits: Names the rows with NaN, infinity or nothing allowed.
    """
    chosen: dict[int, int] = {}
    for members, some in _alike(logits, rows):
        among = [rows[i] for i in members]
        try:
            places = _choose(_scores(some, among), among)
        except BadLogits as bad:
            raise BadLogits([members[i] for i in bad.rows]) from None
        for i, row, place in zip(members, among, places, strict=True):
            chosen[i] = place if row.allowed is None else int(row.allowed[place])
    return [chosen[i] for i in range(len(rows))]


def kept(logits: Tensor, row: SampleRow) -> list[int]:
    """List the ids that ``sample`` would draw from, sorted.

    Args:
        logits: (vocabulary,), or those of ``row.allowed`` alone.

    Raises:
        BadLogits: As ``sample``.
    """
    scores = _scores(_of_allowed(logits, row)[None], [row])
    if row.is_greedy:
        ids = scores[0].argmax()[None]
    else:
        found = _kept_of(scores, [row])[0]
        ids = scores[0].isfinite().nonzero()[:, 0] if found.ids is None else found.ids.sort().values
    return [int(i) for i in (ids if row.allowed is None else row.allowed[ids]).tolist()]


def _alike(
    logits: Tensor | Sequence[Tensor], rows: Sequence[SampleRow]
) -> Iterator[tuple[list[int], Tensor]]:
    """Rows that choose among equally many tokens: which they are, and their logits, (members, tokens)."""
    if len(logits) != len(rows) or (isinstance(logits, Tensor) and logits.dim() != 2):
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else len(logits)
        raise ValueError(f"logits of shape {shape} for {len(rows)} rows")
    if isinstance(logits, Tensor) and all(row.allowed is None for row in rows):
        yield list(range(len(rows))), logits
        return
    own = [_of_allowed(some, row) for some, row in zip(logits, rows, strict=True)]
    empty = [i for i, some in enumerate(own) if not len(some)]
    if empty:
        raise BadLogits(empty)
    by_size: dict[int, list[int]] = {}
    for i, some in enumerate(own):
        by_size.setdefault(len(some), []).append(i)
    for members in by_size.values():
        yield members, torch.stack([own[i] for i in members])


def _of_allowed(logits: Tensor, row: SampleRow) -> Tensor:
    """One row's logits of what it may choose."""
    if row.allowed is None or len(row.allowed) == len(logits):
        return logits
    return logits[row.allowed]


def _choose(scores: Tensor, rows: Sequence[SampleRow]) -> list[int]:
    """One index per row into its scores."""
    greedy = [i for i, row in enumerate(rows) if row.is_greedy]
    chosen = dict(zip(greedy, _pick(scores, greedy).argmax(dim=1).tolist(), strict=True)) if greedy else {}
    for i, found in _kept_of(scores, rows).items():
        chosen[i] = _draw(found, rows[i].uniform)
    return [chosen[i] for i in range(len(rows))]


def _scores(logits: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    """Penalise, in float32."""
    best = logits.amax(dim=1)
    _refuse(~(best < torch.inf))  # a NaN is not less, and amax passes it on
    _refuse(best.isinf())
    scores = logits.float()
    penalised = [
        (i, _places(row.seen, row.allowed), row.repetition_penalty)
        for i, row in enumerate(rows)
        if row.repetition_penalty != 1 and row.seen is not None
    ]
    if scores is logits and penalised:
        scores = scores.clone()
    for i, seen, penalty in penalised:
        score = scores[i, seen]
        # A duplicate writes the same number twice: ids are penalised once, however often seen.
        scores[i, seen] = torch.where(score < 0, score * penalty, score / penalty)
    if penalised:
        _refuse(scores.amax(dim=1).isinf())
    return scores


def _places(ids: Tensor, allowed: Tensor | None) -> Tensor:
    """Where ids stand among the allowed ones; those that do not are left out."""
    if allowed is None:
        return ids
    places = torch.searchsorted(allowed, ids).clamp_(max=len(allowed) - 1)
    return places[allowed[places] == ids]


def _refuse(bad: Tensor) -> None:
    if bad.any():
        raise BadLogits(bad.nonzero()[:, 0].tolist())


def _pick(scores: Tensor, rows: list[int]) -> Tensor:
    return scores if len(rows) == len(scores) else scores[rows]


def _kept_of(scores: Tensor, rows: Sequence[SampleRow]) -> dict[int, _Kept]:
    """What each row that is not greedy draws from."""
    found: dict[int, _Kept] = {}
    filtered: list[int] = []
    for i, row in enumerate(rows):
        if row.is_filtered:
            filtered.append(i)
        elif not row.is_greedy:
            found[i] = _Kept(None, _weights(scores[i], row))
    if filtered:
        best = _pick(scores, filtered).topk(min(_CANDIDATES[0], scores.shape[1]))
        has_equals = (best.values[:, 1:] == best.values[:, :-1]).any(dim=1).tolist()
        for i, values, ids, equals in zip(filtered, best.values, best.indices, has_equals, strict=True):
            if equals:
                values, ids = _in_order(values, ids)
            found[i] = _filtered(scores[i], rows[i], values, ids)
    return found


def _weights(scores: Tensor, row: SampleRow) -> Tensor:
    # The difference first: a small temperature cannot overflow.
    return ((scores - scores.max()) / row.temperature).exp()


def _filtered(scores: Tensor, row: SampleRow, values: Tensor, ids: Tensor) -> _Kept:
    """Keep what top-k, top-p and min-p leave of a row, from its best tokens alone if they settle it.

    Args:
        scores: (vocabulary,)
        values: (candidates,) the best of ``scores``, in descending order.
        ids: (candidates,) theirs, equals by id.
    """
    mass = None  # of the whole row; top-k has its own, that of what it leaves
    if row.top_p < 1 and not row.top_k:
        mass = float(_weights(scores, row).sum(dtype=torch.float64))
    for more in (*_CANDIDATES[1:], len(scores)):
        found = _settled(scores, row, values, ids, mass)
        if found is not None:
            return found
        values, ids = _best(scores, more)
    found = _settled(scores, row, values, ids, mass)
    assert found is not None, "all tokens settle what is kept of them"
    return found


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best scores in descending order, equals by id, and their ids."""
    if count >= len(scores):
        values, ids = scores.sort(descending=True, stable=True)
        return values, ids
    values, ids = scores.topk(count)
    return _in_order(values, ids)


def _in_order(values: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Descending values, equals by id."""
    by_id = ids.argsort()
    values, by_value = values[by_id].sort(descending=True, stable=True)
    return values, ids[by_id][by_value]


def _settled(scores: Tensor, row: SampleRow, values: Tensor, ids: Tensor, mass: float | None) -> _Kept | None:
    """What is kept, if these best tokens settle it."""
    weights = _weights(values.double(), row)
    count = _count(values, weights, row, mass, is_whole=len(values) == len(scores))
    return None if count is None else _Kept(ids[:count], weights[:count])


def _count(
    values: Tensor, weights: Tensor, row: SampleRow, mass: float | None, *, is_whole: bool
) -> int | None:
    """How many of the best tokens are kept; None if that depends on tokens beyond these.

    It does when the last one kept equals the last candidate: its equals may lie beyond.
    """
    last = float(values[-1])

    def is_settled(count: int) -> bool:
        return is_whole or last == -math.inf or float(values[count - 1]) > last

    count = int((values > -math.inf).sum())
    if row.top_k:
        if row.top_k > len(values) and not is_whole:
            return None
        worst = values[min(row.top_k, len(values)) - 1]
        count = min(count, int((values >= worst).sum()))  # as transformers: equals of the k-th stay
        if not is_settled(count):
            return None
    if row.top_p < 1:
        sums = weights[:count].cumsum(0)
        goal = row.top_p * (float(sums[-1]) if mass is None else mass)
        count = min(count, int((sums < goal).sum()) + 1)  # the one that reaches the goal stays
    if row.min_p > 0:
        count = int((weights[:count] >= row.min_p).sum())
    return count if is_settled(count) else None


def _draw(kept: _Kept, uniform: float) -> int:
    sums = kept.weights.cumsum(0, dtype=torch.float64)
    total = float(sums[-1])
    # Just below the total at most, so that what rounds up to it still falls on a token with weight.
    goal = min(uniform * total, math.nextafter(total, 0))
    at = int(torch.searchsorted(sums, goal, right=True))
    return at if kept.ids is None else int(kept.ids[at])
