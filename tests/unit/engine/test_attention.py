"""Attention over pages equals attention over everything a branch has seen."""

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from walkserve.cache.paged import KVShape, PagedCache
from walkserve.cache.pages import OutOfPages, PageTable
from walkserve.engine.attention import AttentionRow, PagedAttention, torch_sdpa

LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 8


def naive(
    q: Tensor, k: Tensor, v: Tensor, *, committed: int, causal: bool, scale: float | None = None
) -> Tensor:
    """Dense attention in float64: q (tokens, heads, dim) over k and v (committed + tokens, kv_heads, dim)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        sees = torch.arange(len(k)) <= committed + torch.arange(len(q))[:, None]
        scores = scores.masked_fill(~sees, -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).to(q.dtype)


@dataclass
class Branch:
    """A table beside all the keys and values it should hold, (layers, length, kv_heads, dim)."""

    table: PageTable
    k: Tensor = field(default_factory=lambda: torch.zeros(LAYERS, 0, KV_HEADS, HEAD_DIM))
    v: Tensor = field(default_factory=lambda: torch.zeros(LAYERS, 0, KV_HEADS, HEAD_DIM))

    def fork(self) -> "Branch":
        return Branch(self.table.fork(), self.k, self.v)


def new_cache(pages: int = 64, page_size: int = 4) -> PagedCache:
    shape = KVShape(LAYERS, KV_HEADS, HEAD_DIM, context=256)
    cache = PagedCache(shape, pages=pages, page_size=page_size, device="cpu", dtype=torch.float32)
    cache.k.fill_(torch.nan)  # what was never written must never be read
    cache.v.fill_(torch.nan)
    return cache


def new_qkv(tokens: int, group: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    heads = KV_HEADS * group
    return (
        torch.randn(LAYERS, tokens, heads, HEAD_DIM),
        torch.randn(LAYERS, tokens, KV_HEADS, HEAD_DIM),
        torch.randn(LAYERS, tokens, KV_HEADS, HEAD_DIM),
    )


def turn(
    cache: PagedCache,
    rows: list[tuple[Branch, int, bool]],
    *,
    group: int = 1,
    causal: bool = True,
    deterministic: bool = False,
    pad: int = 0,
    commit: bool = True,
) -> None:
    """Run one batch of (branch, tokens, keeps), compare every row in every layer, and commit."""
    total = sum(tokens for _, tokens, _ in rows)
    q, k, v = new_qkv(total + pad, group)
    batch = PagedAttention(
        cache,
        [AttentionRow(branch.table, tokens, keeps) for branch, tokens, keeps in rows],
        deterministic=deterministic,
        padded_tokens=total + pad,
    )
    for layer in range(LAYERS):
        out = batch.attend(layer, q[layer], k[layer], v[layer], causal=causal)
        assert torch.equal(out[total:], torch.zeros_like(out[total:]))
        for i, (branch, _, _) in enumerate(rows):
            new = slice(batch.cu_seqlens[i], batch.cu_seqlens[i + 1])
            expected = naive(
                q[layer, new],
                torch.cat([branch.k[layer], k[layer, new]]),
                torch.cat([branch.v[layer], v[layer, new]]),
                committed=branch.k.shape[1],
                causal=causal,
            )
            torch.testing.assert_close(out[new], expected, atol=1e-5, rtol=1e-5)
    for i, (branch, tokens, keeps) in enumerate(rows):
        new = slice(batch.cu_seqlens[i], batch.cu_seqlens[i + 1])
        if keeps and commit:
            branch.table.commit(tokens)
            branch.k = torch.cat([branch.k, k[:, new]], 1)
            branch.v = torch.cat([branch.v, v[:, new]], 1)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_prefill_then_decode_across_page_edges(group, deterministic):
    torch.manual_seed(0)
    cache = new_cache()
    branches = [Branch(cache.new_table()) for _ in range(4)]
    turn(cache, [(b, n, True) for b, n in zip(branches, (3, 4, 5, 9), strict=True)], group=group)
    for _ in range(6):
        turn(cache, [(b, 1, True) for b in branches], group=group, deterministic=deterministic, pad=3)


def test_prefill_beside_decode():
    torch.manual_seed(1)
    cache = new_cache()
    old, older, new = (Branch(cache.new_table()) for _ in range(3))
    turn(cache, [(old, 6, True), (older, 7, True)])
    turn(cache, [(old, 1, True), (new, 5, True), (older, 1, True)], group=2)
    turn(cache, [(new, 4, True), (old, 1, True), (older, 1, True)], group=2, pad=2)


def test_forks_diverge_and_the_first_writer_copies():
    torch.manual_seed(2)
    cache = new_cache()
    main = Branch(cache.new_table())
    turn(cache, [(main, 6, True)])
    left, right = main.fork(), main.fork()
    turn(cache, [(left, 1, True), (main, 1, True), (right, 3, True)])
    turn(cache, [(right, 1, True), (left, 1, True), (main, 1, True)])


def test_a_row_that_keeps_nothing_writes_nothing():
    torch.manual_seed(3)
    cache = new_cache()
    branch, reader = Branch(cache.new_table()), Branch(cache.new_table())
    turn(cache, [(branch, 6, True)])
    held, k = cache.pool.held, cache.k.clone()
    turn(cache, [(branch, 5, False), (branch, 1, False), (reader, 3, False)], group=2, causal=False)
    assert cache.pool.held == held
    assert torch.equal(cache.k.nan_to_num(), k.nan_to_num())


def test_a_branch_may_be_read_beside_its_writer():
    torch.manual_seed(4)
    cache = new_cache()
    branch = Branch(cache.new_table())
    turn(cache, [(branch, 6, True)])
    fork = branch.fork()
    turn(cache, [(branch, 2, False), (branch, 1, True), (fork, 1, True)])
    turn(cache, [(branch, 1, True), (fork, 1, True)])


def test_without_causality_every_new_token_sees_all_of_its_row():
    torch.manual_seed(5)
    cache = new_cache()
    branch = Branch(cache.new_table())
    turn(cache, [(branch, 5, True)], causal=False, group=4)
    turn(cache, [(branch, 7, True)], causal=False, group=4)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("before", [0, 5])
def test_rows_of_equal_lengths_attend_together(causal, group, before, monkeypatch):
    """As forks of one branch do that step together, beside rows that are not like them."""
    torch.manual_seed(12)
    cache = new_cache()
    root, other = Branch(cache.new_table()), Branch(cache.new_table())
    if before:
        turn(cache, [(root, before, True)])
    forks = [root.fork() for _ in range(5)]
    seen: list[list[int]] = []
    planned = PagedAttention._plan_alike

    def heard(self, rows, group):
        seen.append(group)
        return planned(self, rows, group)

    monkeypatch.setattr(PagedAttention, "_plan_alike", heard)
    most = 3 * (before + 6) * KV_HEADS * HEAD_DIM * 4  # three rows at a time
    monkeypatch.setattr(torch_sdpa, "_MOST_GATHERED_BYTES", most)
    rows = [(forks[0], 6, True), (other, 7, True), *((fork, 6, True) for fork in forks[1:])]
    turn(cache, [*rows, (root, 6, False)], group=group, causal=causal, pad=3)
    assert seen == [[0, 2, 3], [4, 5]]
    monkeypatch.setattr(torch_sdpa, "_MOST_GATHERED_BYTES", 1 << 20)
    turn(cache, [(fork, 6, True) for fork in forks], group=group, causal=causal)
    assert seen[2:] == [[0, 1, 2, 3, 4]]


def test_a_turn_that_is_not_committed_leaves_no_trace():
    torch.manual_seed(6)
    cache = new_cache()
    branches = [Branch(cache.new_table()) for _ in range(2)]
    turn(cache, [(b, 5, True) for b in branches])
    turn(cache, [(b, 1, True) for b in branches], commit=False)
    turn(cache, [(b, 1, True) for b in branches])


@pytest.mark.parametrize("most", [1, 100, 1000, 1 << 20])
def test_decode_rows_are_grouped_by_length_and_size(most, monkeypatch):
    torch.manual_seed(7)
    monkeypatch.setattr(torch_sdpa, "_MOST_GATHERED_BYTES", most * KV_HEADS * HEAD_DIM * 4)
    cache = new_cache()
    branches = [Branch(cache.new_table()) for _ in range(6)]
    turn(cache, [(b, n, True) for b, n in zip(branches, (1, 60, 2, 50, 1, 2), strict=True)])
    lengths = [[batch_lengths[i] for i in group] for batch_lengths, group in groups_of(cache, branches)]
    if most == 1:
        assert lengths == [[60], [50], [2], [2], [1], [1]]
    elif most == 100:
        assert lengths == [[60], [50], [2, 2, 1, 1]]
    else:
        assert lengths == [[60, 50], [2, 2, 1, 1]], "a long row does not pad its short neighbours"
    turn(cache, [(b, 1, True) for b in branches])


def groups_of(cache: PagedCache, branches: list[Branch]) -> list[tuple[tuple[int, ...], list[int]]]:
    batch = PagedAttention(cache, [AttentionRow(branch.table, 1) for branch in branches])
    return [(batch.lengths, group) for group in batch._groups(list(range(len(branches))))]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("sick_length", "well_length"), [(9, 6), (6, 9)])
def test_a_nan_stays_in_its_row(sick_length, well_length, deterministic):
    torch.manual_seed(8)
    cache = new_cache()
    sick, well = Branch(cache.new_table()), Branch(cache.new_table())
    turn(cache, [(sick, sick_length, True), (well, well_length, True)])
    cache.k[:, sick.table.slots(0, sick_length)] = torch.nan
    cache.v[:, sick.table.slots(0, sick_length)] = torch.nan
    rows = [AttentionRow(well.table, 1), AttentionRow(sick.table, 1)]
    q, k, v = new_qkv(2)
    out = PagedAttention(cache, rows, deterministic=deterministic).attend(0, q[0], k[0], v[0])
    assert out[0].isfinite().all()
    assert out[1].isnan().all()


def test_positions_are_places_in_the_branch_and_zero_where_padded():
    cache = new_cache()
    first, second = Branch(cache.new_table()), Branch(cache.new_table())
    turn(cache, [(first, 5, True)])
    rows = [
        AttentionRow(first.table, 1),
        AttentionRow(second.table, 3),
        AttentionRow(first.table, 2, keeps=False),
    ]
    batch = PagedAttention(cache, rows, padded_tokens=8)
    assert batch.cu_seqlens == (0, 1, 4, 6)
    assert batch.lengths == (5, 0, 5)
    assert batch.positions.tolist() == [5, 0, 1, 2, 5, 6, 0, 0]
    assert batch.positions.dtype == torch.int64


def test_a_scale_of_ones_own():
    cache = new_cache()
    q, k, v = new_qkv(5)
    batch = PagedAttention(cache, [AttentionRow(cache.new_table(), 5)])
    out = batch.attend(1, q[1], k[1], v[1], scale=0.7)
    torch.testing.assert_close(
        out, naive(q[1], k[1], v[1], committed=0, causal=True, scale=0.7), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("tokens", [1, 4])
def test_q_k_and_v_may_be_slices_of_one_tensor(tokens, deterministic):
    torch.manual_seed(12)
    cache = new_cache()
    fused = torch.randn(2 * tokens, 4 * KV_HEADS, HEAD_DIM)
    q, k, v = fused.split([2 * KV_HEADS, KV_HEADS, KV_HEADS], dim=1)
    rows = [AttentionRow(cache.new_table(), tokens) for _ in range(2)]
    out = PagedAttention(cache, rows, deterministic=deterministic).attend(0, q, k, v)
    for new in (slice(tokens), slice(tokens, 2 * tokens)):
        expected = naive(q[new], k[new], v[new], committed=0, causal=True)
        torch.testing.assert_close(out[new], expected, atol=1e-5, rtol=1e-5)
    assert out.is_contiguous()


def test_two_rows_may_not_write_one_branch():
    cache = new_cache()
    table = cache.new_table()
    with pytest.raises(ValueError, match="two rows of one batch would write the same branch"):
        PagedAttention(cache, [AttentionRow(table, 1), AttentionRow(table, 1)])


def test_tokens_that_do_not_fit_the_padding_are_refused():
    cache = new_cache()
    with pytest.raises(ValueError, match="5 tokens do not fit into 4"):
        PagedAttention(cache, [AttentionRow(cache.new_table(), 5)], padded_tokens=4)
    with pytest.raises(ValueError, match="q has 4 tokens, this batch has 8"):
        PagedAttention(cache, [], padded_tokens=8).attend(0, *(each[0] for each in new_qkv(4)))


def test_pages_that_run_out_half_way_leave_every_branch_readable():
    torch.manual_seed(9)
    cache = new_cache(pages=4)
    main = Branch(cache.new_table())
    turn(cache, [(main, 6, True)])
    fork = main.fork()
    with pytest.raises(OutOfPages):
        PagedAttention(cache, [AttentionRow(fork.table, 1), AttentionRow(cache.new_table(), 9)])
    turn(cache, [(fork, 1, True), (main, 1, True)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 2, 64), (1, 1, 17), (3, 3, 65)])
def test_deterministic_rows_have_the_same_bits_alone_and_together(heads, kv_heads, head_dim, dtype):
    torch.manual_seed(10)
    shape = KVShape(1, kv_heads, head_dim, context=256)
    turns = [(5, 2, 37, 61, 7), (1, 2, 6, 1, 3), (1, 1, 1, 1, 1)]
    sizes = [(heads, head_dim), (kv_heads, head_dim), (kv_heads, head_dim)]
    made = [[[torch.randn(n, *size).to(dtype) for size in sizes] for n in turn] for turn in turns]

    def run(chosen: list[int], pad: int) -> dict[int, Tensor]:
        cache = PagedCache(shape, pages=64, page_size=4, device="cpu", dtype=dtype)
        tables = {i: cache.new_table() for i in chosen}
        outs: dict[int, list[Tensor]] = {i: [] for i in chosen}
        for counts, parts in zip(turns, made, strict=True):
            pads = [torch.randn(pad, *size).to(dtype) for size in sizes]
            q, k, v = (torch.cat([parts[i][j] for i in chosen] + [pads[j]]) for j in range(3))
            rows = [AttentionRow(tables[i], counts[i]) for i in chosen]
            batch = PagedAttention(cache, rows, deterministic=True, padded_tokens=len(q))
            out = batch.attend(0, q, k, v)
            for at, i in enumerate(chosen):
                tables[i].commit(counts[i])
                outs[i].append(out[batch.cu_seqlens[at] : batch.cu_seqlens[at + 1]])
        return {i: torch.cat(outs[i]) for i in chosen}

    together = run([0, 1, 2, 3, 4], pad=4)
    backwards = run([4, 3, 2, 1, 0], pad=0)
    for i in range(5):
        alone = run([i], pad=3)[i]
        assert torch.equal(together[i], alone)
        assert torch.equal(backwards[i], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kv_heads", "head_dim"), [(2, 64), (1, 17)])
def test_where_its_pages_lie_does_not_change_a_row_s_bits(kv_heads, head_dim, dtype):
    torch.manual_seed(13)
    shape = KVShape(1, kv_heads, head_dim, context=256)
    made = [[torch.randn(n, kv_heads, head_dim).to(dtype) for _ in range(3)] for n in (37, 1, 6, 1)]

    def run(places: list[int]) -> Tensor:
        """A row whose branch grows into these pages."""
        cache = PagedCache(shape, pages=64, page_size=4, device="cpu", dtype=dtype)
        table = cache.new_table()
        cache.pool.take(64)
        table.pages = places
        outs = []
        for q, k, v in made:
            batch = PagedAttention(cache, [AttentionRow(table, len(q))], deterministic=True)
            outs.append(batch.attend(0, q, k, v))
            table.commit(len(q))
        return torch.cat(outs)

    in_a_run = run(list(range(7, 20)))
    assert torch.equal(run([(5 * page) % 64 for page in range(13)]), in_a_run)


@settings(max_examples=120, deadline=None)
@given(
    data=st.data(), group=st.sampled_from([1, 2, 4]), page_size=st.integers(1, 5), seed=st.integers(0, 999)
)
def test_any_history_of_batches_equals_dense_attention(data, group, page_size, seed):
    torch.manual_seed(seed)
    cache = new_cache(pages=160, page_size=page_size)
    branches = [Branch(cache.new_table()) for _ in range(3)]
    for _ in range(data.draw(st.integers(1, 4), label="batches")):
        if len(branches) < 6 and data.draw(st.booleans(), label="fork"):
            branches.append(data.draw(st.sampled_from(branches), label="from").fork())
        chosen = data.draw(st.lists(st.sampled_from(branches), min_size=1, unique_by=id), label="rows")
        tokens = st.sampled_from([1, 1, 1, 2, 3, 5, 8])
        rows = [
            (b, data.draw(tokens, label="tokens"), data.draw(st.booleans(), label="keeps")) for b in chosen
        ]
        turn(
            cache,
            rows,
            group=group,
            causal=data.draw(st.booleans(), label="causal"),
            deterministic=data.draw(st.booleans(), label="deterministic"),
            pad=data.draw(st.integers(0, 3), label="pad"),
            commit=data.draw(st.integers(0, 3), label="commit") > 0,
        )
        cache.pool.check([b.table for b in branches])
    for branch in branches:
        branch.table.drop()
    assert cache.pool.held == 0
