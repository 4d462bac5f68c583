"""What lies unread of a stream that a client writes, as whoever does not read it counts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkserve.streams.client import ClientEnd


def test_it_has_room_for_as_many_items_as_may_lie_unread() -> None:
    end = ClientEnd(limit=2)
    end.write(1)
    assert end.has_room_for(1)
    end.write(1)
    assert not end.has_room_for(1)
    end.took(1)
    assert end.has_room_for(1) and (end.written, end.taken) == (2, 1)


def test_it_has_room_for_as_many_bytes_as_may_and_for_one_item_of_any_size() -> None:
    end = ClientEnd(limit=100, most_bytes=10)
    assert end.has_room_for(1000)
    end.write(1000)
    assert not end.has_room_for(1)
    end.took(1)
    end.write(6)
    assert end.has_room_for(4) and not end.has_room_for(5)


def test_when_nobody_reads_nothing_is_unread() -> None:
    end = ClientEnd(limit=2)
    end.write(5)
    end.write(5)
    end.discard()
    assert (end.written, end.taken, end.unread_bytes, end.is_open) == (2, 2, 0, False)


@pytest.mark.parametrize("taken", [-1, 3])
def test_more_than_was_written_cannot_be_taken(taken: int) -> None:
    end = ClientEnd(limit=4)
    end.write(1)
    end.write(1)
    with pytest.raises(ValueError, match="items were taken where 2 were written"):
        end.took(taken)


@given(st.lists(st.one_of(st.integers(0, 20), st.none()), max_size=60))
def test_whoever_writes_where_there_is_room_keeps_to_the_limits(steps: list[int | None]) -> None:
    end = ClientEnd(limit=3, most_bytes=30)
    sizes: list[int] = []
    for size in steps:
        if size is None:
            end.took(end.written)
        elif end.has_room_for(size):
            end.write(size)
            sizes.append(size)
        unread = sizes[end.taken :]
        assert (end.written, end.unread_bytes) == (len(sizes), sum(unread))
        assert len(unread) <= 3 and (sum(unread) <= 30 or len(unread) == 1)
