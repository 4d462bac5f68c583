"""Sampling: transformers' kept sets, one draw per row, whatever the batch."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor
from transformers.generation import logits_process as authors

from walkserve.engine.sampler import BadLogits, SampleRow, kept, sample

VOCABULARY = 3000
GOLDEN = Path(__file__).parents[2] / "data" / "orpheus_step10.safetensors"


def as_transformers(logits: Tensor, row: SampleRow) -> Tensor:
    """The scores (vocabulary,) that transformers' own processors leave, -inf where removed."""
    steps = []
    if row.repetition_penalty != 1:
        steps.append(authors.RepetitionPenaltyLogitsProcessor(row.repetition_penalty))
    if row.temperature != 1:
        steps.append(authors.TemperatureLogitsWarper(row.temperature))
    if row.top_k:
        steps.append(authors.TopKLogitsWarper(row.top_k))
    if row.top_p < 1:
        steps.append(authors.TopPLogitsWarper(row.top_p))
    if row.min_p:
        steps.append(authors.MinPLogitsWarper(row.min_p))
    seen = torch.zeros(0, dtype=torch.int64) if row.seen is None else row.seen
    return authors.LogitsProcessorList(steps)(seen[None], logits[None].float())[0]


def logits_of(seed: int, *, rows: int = 1, vocabulary: int = VOCABULARY, spread: float = 3.0) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread


ROWS = {
    "greedy": SampleRow(temperature=0),
    "greedy, penalised": SampleRow(temperature=0, repetition_penalty=1.3, seen=torch.arange(0, 3000, 2)),
    "plain": SampleRow(),
    "hot": SampleRow(temperature=1.7),
    "top_k": SampleRow(temperature=0.9, top_k=50),
    "large top_k": SampleRow(top_k=1500),
    "top_p": SampleRow(temperature=0.6, top_p=0.8),
    "wide top_p": SampleRow(temperature=5.0, top_p=0.99),
    "min_p": SampleRow(min_p=0.05),
    "wide min_p": SampleRow(temperature=50.0, min_p=0.5),
    "all": SampleRow(
        temperature=0.8,
        top_k=200,
        top_p=0.9,
        min_p=0.01,
        repetition_penalty=1.2,
        seen=torch.tensor([5, 5, 9]),
    ),
}


def with_uniform(row: SampleRow, uniform: float) -> SampleRow:
    return replace(row, uniform=uniform)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [name for name in ROWS if not name.startswith("greedy")])
def test_the_kept_set_is_that_of_transformers(name, seed):
    [logits] = logits_of(seed)
    expected = as_transformers(logits, ROWS[name]).isfinite().nonzero()[:, 0].tolist()
    assert kept(logits, ROWS[name]) == expected


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 9999),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 2.0, 10.0]),
    top_k=st.sampled_from([0, 1, 7, 50, 1023, 1024, 1025, 9999]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.001, 0.1, 0.9]),
    penalty=st.sampled_from([1.0, 0.8, 1.3]),
    vocabulary=st.sampled_from([3, 500, 1024, 1025, 3000]),
)
def test_any_mixture_of_filters_is_that_of_transformers(
    seed, temperature, top_k, top_p, min_p, penalty, vocabulary
):
    [logits] = logits_of(seed, vocabulary=vocabulary)
    row = SampleRow(
        temperature, top_k, top_p, min_p, penalty, seen=torch.randint(vocabulary, (20,)), uniform=0.5
    )
    scores = as_transformers(logits, row)
    ours, theirs = set(kept(logits, row)), set(scores.isfinite().nonzero()[:, 0].tolist())
    # float32 against float64: the token at the edge of top-p or min-p may fall either way.
    assert len(ours ^ theirs) <= 1
    if penalty == 1 and top_p == 1 and not min_p:
        assert ours == theirs


@pytest.mark.parametrize("top_k", [3, 1024])
def test_equals_of_the_last_of_top_k_all_stay_as_with_transformers(top_k):
    logits = torch.zeros(VOCABULARY)
    logits[::2] = 1
    logits[[10, 20]] = 2
    row = SampleRow(top_k=top_k)
    assert kept(logits, row) == list(range(0, VOCABULARY, 2))
    assert kept(logits, row) == as_transformers(logits, row).isfinite().nonzero()[:, 0].tolist()


def test_equals_at_the_edge_of_top_p_are_kept_by_id():
    assert kept(torch.zeros(VOCABULARY), SampleRow(top_p=0.25)) == list(range(750))
    assert kept(torch.zeros(VOCABULARY), SampleRow(top_p=0.5)) == list(range(1500))


def test_equals_beyond_the_best_1024_belong_to_the_mass_of_top_k():
    logits = torch.full((VOCABULARY,), -9.0)
    logits[1000:2600] = 1
    logits[:100] = 3 + torch.arange(100) / 1000
    row = SampleRow(top_k=1000, top_p=0.3)
    assert kept(logits, row) == as_transformers(logits, row).isfinite().nonzero()[:, 0].tolist()


@pytest.mark.parametrize("seed", range(5))
def test_equals_are_drawn_by_id(seed):
    logits = logits_of(seed, spread=2.0)[0].round()  # dozens of equals at every step
    order = logits.sort(descending=True, stable=True)
    mass = order.values.double().softmax(0).cumsum(0)
    for top_p in (0.1, 0.35, 0.6, 0.8):
        expected = order.indices[: int((mass < top_p).sum()) + 1]
        assert kept(logits, SampleRow(top_p=top_p)) == expected.sort().values.tolist()
        uniforms = [0.05 + i / 10 for i in range(10)]
        drawn = sample(logits.expand(10, -1), [SampleRow(top_p=top_p, uniform=u) for u in uniforms])
        sums = mass[: len(expected)] / mass[len(expected) - 1]
        assert drawn == [int(expected[int((sums <= u).sum())]) for u in uniforms]


def test_the_golden_step_keeps_what_the_authors_keep():
    golden = load_file(GOLDEN)
    row = SampleRow(
        temperature=0.6,
        top_p=0.8,
        repetition_penalty=1.3,
        seen=torch.cat([golden["prompt"], golden["greedy_tokens"][:10]]),
    )
    assert kept(golden["logits"], row) == sorted(golden["keep"].tolist())
    greedy = SampleRow(temperature=0, repetition_penalty=row.repetition_penalty, seen=row.seen)
    assert sample(golden["logits"][None], [greedy]) == [int(golden["greedy_tokens"][10])]


def test_greedy_takes_the_lowest_id_of_equals():
    for vocabulary in (5, 1000, 156_940):
        logits = torch.zeros(3, vocabulary)
        logits[1, vocabulary - 2 :] = 1
        logits[2, [vocabulary // 2, vocabulary - 1]] = 1
        chosen = sample(logits, [SampleRow(temperature=0)] * 3)
        assert chosen == [0, vocabulary - 2, vocabulary // 2]


def test_a_penalty_divides_what_is_positive_and_multiplies_what_is_negative_once():
    logits = torch.tensor([[4.0, 3.9, -1.0]])
    seen = torch.tensor([0, 0, 0])
    assert sample(logits, [SampleRow(0, repetition_penalty=1.1, seen=seen)]) == [1]
    assert sample(logits, [SampleRow(0, repetition_penalty=1.02, seen=seen)]) == [0], (
        "counted once, not thrice"
    )
    negative = torch.tensor([[-1.0, -1.5, -9.0]])
    assert sample(negative, [SampleRow(0, repetition_penalty=2.0, seen=seen)]) == [1]
    assert logits.tolist() == [[4.0, torch.tensor(3.9).item(), -1.0]], "the caller's logits are not changed"


def test_the_draw_walks_the_kept_tokens_from_the_best_down():
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    rows = [SampleRow(top_k=4, uniform=u) for u in (0.0, 0.39, 0.41, 0.69, 0.71, 0.89, 0.91, 1 - 2**-53)]
    assert sample(logits.expand(8, -1), rows) == [1, 1, 3, 3, 2, 2, 0, 0]


def test_without_a_filter_the_draw_walks_the_ids():
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    rows = [SampleRow(uniform=u) for u in (0.0, 0.09, 0.11, 0.49, 0.51, 0.69, 0.71, 1 - 2**-53)]
    assert sample(logits.expand(8, -1), rows) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("name", ["plain", "top_k", "top_p", "all"])
def test_draws_follow_the_distribution_of_transformers(name):
    [logits] = logits_of(11, vocabulary=30, spread=1.0)
    row = ROWS[name]
    if row.seen is not None:
        row = SampleRow(0.8, 20, 0.9, 0.01, 1.2, seen=torch.tensor([5, 5, 9]))
    count = 4000
    rows = [
        SampleRow(
            row.temperature,
            row.top_k,
            row.top_p,
            row.min_p,
            row.repetition_penalty,
            (i + 0.5) / count,
            row.seen,
        )
        for i in range(count)
    ]
    drawn = torch.bincount(torch.tensor(sample(logits.expand(count, -1), rows)), minlength=30) / count
    torch.testing.assert_close(drawn, as_transformers(logits, row).softmax(-1), atol=3e-4, rtol=0)


def test_what_is_not_allowed_is_never_chosen():
    logits = logits_of(3, rows=len(ROWS))
    ids = torch.arange(7, VOCABULARY, 500)
    rows = [replace(row, allowed=ids) for row in ROWS.values()]
    for uniform in (0.0, 0.5, 1 - 2**-53):
        assert set(sample(logits, [with_uniform(row, uniform) for row in rows])) <= set(ids.tolist())
    for row in rows:
        assert set(kept(logits[0], row)) <= set(ids.tolist())


def test_allowing_some_is_as_forbidding_the_others():
    logits = logits_of(3, rows=len(ROWS))
    ids = torch.arange(3, VOCABULARY, 2)
    masked = logits.clone()
    masked[:, ::2] = -torch.inf
    masked[:, 1] = -torch.inf
    for uniform in (0.0, 0.3, 0.9):
        rows = [with_uniform(row, uniform) for row in ROWS.values()]
        assert sample(logits, [replace(row, allowed=ids) for row in rows]) == sample(masked, rows)


def test_a_row_that_may_choose_freely_does_not_notice_one_that_may_not():
    logits = logits_of(4, rows=3)
    rows = [with_uniform(SampleRow(top_p=0.8), 0.4)] * 3
    tied = replace(rows[1], allowed=torch.tensor([5, 9]))
    free = sample(logits, rows)
    mixed = sample(logits, [rows[0], tied, rows[2]])
    assert (mixed[0], mixed[2]) == (free[0], free[2])
    assert mixed[1] in (5, 9)


def test_the_logits_of_what_is_allowed_are_enough():
    logits = logits_of(3, rows=2 * len(ROWS))
    ids = torch.arange(3, VOCABULARY, 2)
    for uniform in (0.0, 0.3, 0.9):
        rows = [with_uniform(row, uniform) for row in ROWS.values()]
        rows = rows + [replace(row, allowed=ids) for row in rows]
        own = [some if row.allowed is None else some[ids] for some, row in zip(logits, rows, strict=True)]
        assert sample(own, rows) == sample(logits, rows)
        assert all(
            kept(some, row) == kept(logits[i], row)
            for i, (some, row) in enumerate(zip(own, rows, strict=True))
        )


def test_a_bad_row_is_named_by_its_place_among_all():
    logits = list(logits_of(8, rows=4))
    logits[3] = logits[3][:10] * torch.nan
    row = SampleRow(top_p=0.5)
    with pytest.raises(BadLogits) as raised:
        sample(logits, [row, row, row, replace(row, allowed=torch.arange(10))])
    assert raised.value.rows == [3]


def test_a_flat_row_is_settled_by_more_candidates_or_by_all():
    for vocabulary in (5_000, 40_007):
        flat = torch.linspace(0, 1e-3, vocabulary)[None]
        row = SampleRow(top_p=0.9)
        expected = torch.softmax(flat[0].double(), 0).flip(0).cumsum(0)
        count = int((expected < 0.9).sum()) + 1
        assert kept(flat[0], row) == list(range(vocabulary - count, vocabulary))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [VOCABULARY, 40_007])
def test_a_row_draws_the_same_alone_and_in_any_batch(vocabulary, dtype):
    logits = logits_of(5, rows=9, vocabulary=vocabulary).to(dtype)
    for turn in range(2):
        draws = torch.rand(9, generator=torch.Generator().manual_seed(turn), dtype=torch.float64).tolist()
        names = [list(ROWS)[(i + turn) % len(ROWS)] for i in range(9)]
        rows = [with_uniform(ROWS[name], draw) for name, draw in zip(names, draws, strict=True)]
        alone = [sample(logits[i : i + 1].clone(), [rows[i]])[0] for i in range(9)]
        for count in range(2, 10):
            assert sample(logits[:count], rows[:count]) == alone[:count]
            assert sample(logits[-count:], rows[-count:]) == alone[-count:]


def test_a_row_draws_the_same_for_every_uniform():
    logits = logits_of(6, rows=9, vocabulary=20_001)
    for name in ("plain", "top_p", "wide top_p", "all"):
        rows = [with_uniform(ROWS[name], u / 400) for u in range(400)]
        alone = sample(logits[4:5].expand(400, -1), rows)
        for u in range(0, 400, 21):
            batch = [ROWS["top_p"]] * 4 + [rows[u]] + [ROWS["plain"]] * 4
            assert sample(logits, batch)[4] == alone[u] == sample(logits[4:5], [rows[u]])[0]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", list(ROWS))
def test_bad_logits_name_their_rows(name, value):
    logits = logits_of(7, rows=4)
    logits[1, 17] = logits[3, 2999] = value
    with pytest.raises(BadLogits, match=r"logits of rows \[1, 3\]") as raised:
        sample(logits, [ROWS[name]] * 4)
    assert raised.value.rows == [1, 3]


def test_a_row_that_may_choose_nothing_is_named():
    logits = logits_of(8, rows=3)
    row = SampleRow(top_p=0.5)
    with pytest.raises(BadLogits) as raised:
        sample(logits, [row, row, replace(row, allowed=torch.tensor([], dtype=torch.int64))])
    assert raised.value.rows == [2]


def test_a_tiny_temperature_is_as_good_as_greedy():
    logits = logits_of(9, rows=2)
    best = logits.argmax(1).tolist()
    for row in (SampleRow(1e-30, uniform=0.99), SampleRow(1e-30, top_p=0.9, uniform=0.99)):
        assert sample(logits, [row] * 2) == best


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"uniform": 1.0},
        {"temperature": float("nan")},
    ],
)
def test_a_row_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} cannot be"):
        SampleRow(**wrong)


def test_as_many_rows_as_logits():
    with pytest.raises(ValueError, match="for 1 rows"):
        sample(logits_of(1, rows=2), [SampleRow()])
