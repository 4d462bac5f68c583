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
