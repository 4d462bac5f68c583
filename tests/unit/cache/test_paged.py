"""The storage: where a token lies, and copies of whole pages."""

import pytest
import torch

from walkserve.cache.paged import KVShape, PagedCache


@pytest.fixture
def cache():
    cache = PagedCache(KVShape(2, 3, 4, context=64), pages=5, page_size=2, device="cpu", dtype=torch.float32)
    cache.k.copy_(torch.randn_like(cache.k))
    cache.v.copy_(torch.randn_like(cache.v))
    return cache


def test_a_slot_is_the_same_in_every_layer(cache):
    assert cache.k.shape == cache.v.shape == (2, 5 * 2, 3, 4)


def test_page_copies_reach_every_layer_of_k_and_v_and_nothing_else(cache):
    k, v = cache.k.clone(), cache.v.clone()
    cache.copy_pages([(0, 3), (0, 4)])
    for now, before in ((cache.k, k), (cache.v, v)):
        assert torch.equal(now[:, 6:8], before[:, 0:2])
        assert torch.equal(now[:, 8:10], before[:, 0:2])
        assert torch.equal(now[:, :6], before[:, :6])


def test_all_sources_are_read_before_any_target_is_written(cache):
    k = cache.k.clone()
    cache.copy_pages([(0, 1), (1, 2)])
    assert torch.equal(cache.k[:, 2:4], k[:, 0:2])
    assert torch.equal(cache.k[:, 4:6], k[:, 2:4])


def test_no_copies_are_no_work(cache):
    k = cache.k.clone()
    cache.copy_pages([])
    assert torch.equal(cache.k, k)


def test_slots_as_a_tensor_are_those_of_the_table(cache):
    table = cache.new_table()
    table.reserve(7)
    for stop in range(8):
        assert cache.slots(table, stop).tolist() == table.slots(0, stop)


def test_a_gather_follows_the_slots(cache):
    slots = torch.tensor([9, 0, 3])
    k, v = cache.gather(1, slots)
    assert torch.equal(k, cache.k[1, slots])
    assert torch.equal(v, cache.v[1, slots])


def test_pages_are_gathered_whole_with_room_for_more(cache):
    k, v = cache.gather(1, torch.tensor([4, 0]), each=2, room=3)
    assert len(k) == len(v) == 2 * 2 + 3
    slots = torch.tensor([8, 9, 0, 1])
    assert torch.equal(k[:4], cache.k[1, slots])
    assert torch.equal(v[:4], cache.v[1, slots])


def test_pages_of_a_table_are_those_that_its_first_tokens_lie_in(cache):
    table = cache.new_table()
    table.reserve(7)
    for stop, count in ((0, 0), (1, 1), (2, 1), (3, 2), (7, 4)):
        assert cache.pages(table, stop).tolist() == table.pages[:count]


def test_a_longer_gather_after_a_shorter_one(cache):
    for tokens in (1, 4, 2, 9):
        slots = torch.arange(tokens)
        assert torch.equal(cache.gather(0, slots)[1], cache.v[0, :tokens])


def as_bits(tensor):
    """A NaN is equal to itself here, and -0.0 is not 0.0."""
    return tensor.contiguous().view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_that_was_moved_to_host_memory_comes_back_to_the_bit_with_what_its_forks_share(dtype):
    cache = PagedCache(KVShape(2, 3, 4, context=64), pages=12, page_size=4, device="cpu", dtype=dtype)
    for storage in (cache.k, cache.v):
        noise = torch.randint(-(2**15), 2**15, storage.shape, dtype=torch.int16)
        storage.copy_(noise.view(torch.bfloat16).to(dtype))  # any bits: NaN, infinities, denormals
    bystander, main = cache.new_table(), cache.new_table()
    for table, tokens in ((bystander, 5), (main, 10)):
        table.reserve(tokens)
        table.commit(tokens)
    fork, empty = main.fork(), cache.new_table()
    cache.copy_pages(fork.reserve(3))  # a tail of its own, and one page more that was never committed
    fork.commit(1)
    tables = [main, fork, empty]
    seen = [
        [as_bits(one[:, cache.slots(table, table.length)]) for one in (cache.k, cache.v)] for table in tables
    ]

    assert cache.save(tables) == 4, "three pages of main, of which fork shares two and has one more"
    assert (cache.pool.held, main.is_away, fork.is_away, empty.is_away) == (2, True, True, False)
    stranger = cache.new_table()
    stranger.reserve(4 * cache.pool.free)
    for storage in (cache.k, cache.v):
        storage[:, stranger.slots(0, 4 * 10)] = 1
    stranger.drop()
    again = main.fork()
    again.rewind(9)
    late = [cache.new_table(), again]
    late[0].reserve(1)  # others than before are free
    assert cache.load([*tables, again]) == 4

    assert main.pages[:2] == fork.pages[:2] == again.pages[:2] and main.pages[2] != fork.pages[2]
    for table, bits in zip(tables, seen, strict=True):
        now = [as_bits(one[:, cache.slots(table, table.length)]) for one in (cache.k, cache.v)]
        assert all(torch.equal(one, other) for one, other in zip(now, bits, strict=True))
    cache.pool.check([bystander, *tables, *late])


def test_a_part_of_what_was_moved_comes_back_alone(cache):
    table = cache.new_table()
    table.reserve(5)
    table.commit(5)
    before = cache.v[:, table.slots(2, 3)].clone()
    cache.save([table])
    cache.v.zero_()
    table.rewind(3)
    fork = table.fork()
    table.rewind(1)
    assert cache.load([table]) == 1
    assert cache.load([fork]) == 2
    assert torch.equal(cache.v[:, fork.slots(2, 3)], before)
    cache.pool.check([table, fork])
