"""The two ends of a stream: every item is handed over once, the last helping is marked, nothing is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkserve.streams.ends import ReadEnd, WriteEnd
from walkserve_sdk.streams import ChunkPolicy, Each, Fixed, Helping, LeftContext, SlidingWindow

POLICIES: list[ChunkPolicy] = [
    Each(),
    Fixed(3),
    Fixed(2, most=6),
    SlidingWindow(4, 1),
    SlidingWindow(4, 4),
    SlidingWindow(5, 2),
    LeftContext(2, 3),
    LeftContext(1, 1),
]


def read_all(end: ReadEnd) -> list[Helping]:
    helpings = []
    while end.has_next:
        helpings.append(end.next())
    return helpings


def fresh(helpings: list[Helping]) -> list[object]:
    return [item for helping in helpings for item in helping.new]


def test_a_write_end_numbers_what_is_written() -> None:
    end = WriteEnd(limit=10)
    assert [end.number() for _ in range(3)] == [0, 1, 2]
    assert end.written == 3


def test_a_writer_is_not_started_while_the_reader_holds_as_many_as_the_limit() -> None:
    end = WriteEnd(limit=2)
    assert end.is_open
    end.number()
    assert end.is_open
    end.number()
    assert not end.is_open
    end.took(1)
    assert end.is_open


def test_once_the_reader_has_ended_a_writer_is_always_started() -> None:
    end = WriteEnd(limit=1)
    end.number()
    assert not end.is_open
    end.discarded = True
    assert end.is_open
    end.number()
    assert end.is_open and end.written == 2


def test_items_must_come_in_order() -> None:
    end = ReadEnd(Each())
    end.push(0, ["a"])
    with pytest.raises(ValueError, match="stream items from 2 arrived where 1 was due"):
        end.push(2, ["c"])


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_an_empty_stream_has_one_helping_which_is_the_last(policy: ChunkPolicy) -> None:
    end = ReadEnd(policy)
    assert not end.has_next
    end.end(0)
    assert read_all(end) == [Helping([], 0, 0, last=True)]
    assert end.is_done and not end.has_next


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_an_end_that_overtakes_the_items_it_counts_waits_for_them(policy: ChunkPolicy) -> None:
    end = ReadEnd(policy)
    end.end(3)
    helpings = read_all(end)
    assert not any(helping.last for helping in helpings)
    for index in range(3):
        end.push(index, [index])
        helpings += read_all(end)
    assert fresh(helpings) == [0, 1, 2]
    assert [helping.last for helping in helpings] == [False] * (len(helpings) - 1) + [True]


def test_an_item_is_forgotten_once_no_helping_can_hold_it() -> None:
    end = ReadEnd(LeftContext(2, context=3))
    end.push(0, list(range(10)))
    assert [end.next().items for _ in range(3)] == [[0, 1], [0, 1, 2, 3], [1, 2, 3, 4, 5]]
    assert list(end.items) == [3, 4, 5, 6, 7, 8, 9]
    assert end.first == 3


def test_a_policy_without_context_leaves_nothing_behind() -> None:
    end = ReadEnd(Fixed(2, most=8))
    end.push(0, list(range(7)))
    assert end.next() == Helping([0, 1, 2, 3, 4, 5], 0, 6, last=False)
    assert list(end.items) == [6]
    end.end(7)
    assert end.next() == Helping([6], 6, 1, last=True)
    assert list(end.items) == []


@given(
    policy=st.sampled_from(POLICIES),
    total=st.integers(0, 40),
    steps=st.lists(st.sampled_from([0, 1, 2, 3, 7, "end", "read", "read all"]), max_size=40),
)
def test_whatever_arrives_when_every_item_is_fresh_once_in_order_and_one_helping_is_the_last(
    policy: ChunkPolicy, total: int, steps: list[int | str]
) -> None:
    """A number lets so many items arrive; what the steps leave over comes at the end."""
    end = ReadEnd(policy)
    helpings: list[Helping] = []
    for step in [*steps, total, "end", "read all"]:
        if isinstance(step, int):
            some = min(step, total - end.arrived)
            end.push(end.arrived, list(range(end.arrived, end.arrived + some)))
        elif step == "end":
            end.end(total)
        elif step == "read all":
            helpings += read_all(end)
        elif end.has_next:
            helpings.append(end.next())

    assert fresh(helpings) == list(range(total))
    assert [helping.last for helping in helpings] == [False] * (len(helpings) - 1) + [True]
    for helping in helpings:
        assert list(helping.items) == list(range(helping.start, helping.start + len(helping.items)))
    assert end.is_done and end.handed == total
    assert len(end.items) == total - policy.oldest(total)  # nothing is kept but what could be context


@given(
    policy=st.sampled_from(POLICIES),
    limit=st.integers(6, 20),
    total=st.integers(0, 60),
    turns=st.lists(st.booleans(), max_size=60),
)
def test_between_two_ends_no_more_than_the_limit_is_ever_held(
    policy: ChunkPolicy, limit: int, total: int, turns: list[bool]
) -> None:
    """True writes one item, False takes one helping and acknowledges it; at the end both come to theirs."""
    writer, reader = WriteEnd(limit), ReadEnd(policy)
    got: list[object] = []

    def write() -> None:
        if writer.written < total and writer.is_open:
            index = writer.number()
            reader.push(index, [index])
            if writer.written == total:
                reader.end(total)

    def read() -> None:
        if reader.has_next:
            got.extend(reader.next().new)
            writer.took(reader.handed)

    if total == 0:
        reader.end(0)
    for is_write in [*turns, *([True, False] * (2 * total + 2))]:
        write() if is_write else read()
        assert writer.written - writer.taken <= limit
    assert got == list(range(total)) and reader.is_done


def test_more_items_than_the_end_counts_are_refused_and_so_is_an_end_that_counts_too_few() -> None:
    end = ReadEnd(Each())
    end.push(0, ["a"])
    with pytest.raises(ValueError, match="said to end with 0 items, but 1 have arrived"):
        end.end(0)
    with pytest.raises(ValueError, match="said to end with -1 items"):
        end.end(-1)
    end.end(2)
    end.end(2)  # said twice
    with pytest.raises(ValueError, match="said to end with 3 items, but it has 2"):
        end.end(3)
    with pytest.raises(ValueError, match="3 stream items arrived where 2 were written"):
        end.push(1, ["b", "c"])
    end.push(1, ["b"])
    assert fresh(read_all(end)) == ["a", "b"] and end.is_done


def test_nothing_is_taken_that_was_not_written_and_what_is_old_changes_nothing() -> None:
    end = WriteEnd(limit=1)
    with pytest.raises(ValueError, match="1 stream items were taken where 0 were written"):
        end.took(1)
    with pytest.raises(ValueError, match="-1 stream items"):
        end.took(-1)
    end.number()
    end.took(1)
    end.took(0)
    assert end.taken == 1
