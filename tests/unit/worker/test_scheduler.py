"""Which calls form the next batch, as lists of calls against lists of batches."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkserve.worker.budget import TokenBudget
from walkserve.worker.scheduler import Key, Limits, Scheduler, Work

LM: Key = ("lm", "next")
CODEC: Key = ("codec", "decode")


@dataclass
class Live:
    has_sent: bool = False


@dataclass
class Host:
    forgotten: list[Any] = field(default_factory=list)

    def forget(self, call: Any) -> None:
        self.forgotten.append(call)


@dataclass
class Run:
    live: Live = field(default_factory=Live)
    is_closed: bool = False
    host: Host = field(default_factory=Host)


@dataclass
class Op:
    key: Key


@dataclass
class Frame:
    is_dropped: bool = False


@dataclass
class Table:
    length: int = 0


@dataclass
class Branch:
    table: Table = field(default_factory=Table)


@dataclass(eq=False)
class Call:
    """What the scheduler reads of a call, and a name to tell them apart."""

    name: str
    tokens: int = 1
    done: int = 0
    key: Key = LM
    sent: bool = False
    arrival: int = 0
    run: Run = field(default_factory=Run)
    frame: Frame = field(default_factory=Frame)
    branch: Branch = field(default_factory=Branch)

    def __post_init__(self) -> None:
        self.op = Op(self.key)
        self.run.live.has_sent = self.sent

    def __repr__(self) -> str:
        return self.name


def scheduler(
    *calls: Call,
    rows: int = 4,
    tokens: int = 8,
    splits: bool = False,
    tile: int = 0,
    beside: TokenBudget | None = None,
) -> Scheduler:
    made = Scheduler({LM: Limits(rows, tokens, splits, tile, beside), CODEC: Limits(rows)})
    for call in calls:
        made.add(call)  # type: ignore[arg-type]
    return made


def plain(work: Work | None) -> list[tuple[str, int]]:
    assert work is not None
    return [(call.name, piece) for call, piece in zip(work.calls, work.pieces, strict=True)]  # type: ignore[attr-defined]


def commit(made: Scheduler, work: Work) -> None:
    """What a worker does with pieces: the cache grows, and a row that has more comes back."""
    for call, piece in zip(work.calls, work.pieces, strict=True):
        call.branch.table.length += piece
        if call.done + piece < call.tokens:
            call.done += piece
            made.put_back(call)


def batches(made: Scheduler) -> list[list[tuple[str, int]]]:
    """All batches, one after the other, each committed before the next is chosen."""
    found = []
    while made.waiting:
        work = made.choose()
        if work is None:
            break
        found.append(plain(work))
        commit(made, work)
    return found


def test_nothing_is_chosen_where_nothing_waits() -> None:
    assert scheduler().choose() is None


def test_whoever_comes_first_is_served_first() -> None:
    made = scheduler(*(Call(name) for name in "abcdef"), rows=4)
    assert batches(made) == [[(name, 1) for name in "abcd"], [(name, 1) for name in "ef"]]
    assert made.waiting == 0 and made.choose() is None


def test_a_batch_holds_one_method_of_one_component_the_one_that_waits_longest() -> None:
    made = scheduler(Call("a", key=CODEC), Call("b"), Call("c", key=CODEC), Call("d"))
    assert batches(made) == [[("a", 1), ("c", 1)], [("b", 1), ("d", 1)]]


def test_rows_whose_client_has_nothing_yet_go_first() -> None:
    made = scheduler(Call("a", sent=True), Call("b"), Call("c", sent=True), Call("d"), rows=3)
    assert batches(made) == [[("b", 1), ("d", 1), ("a", 1)], [("c", 1)]]


def test_between_methods_the_oldest_call_decides_so_that_none_stands_still() -> None:
    made = scheduler(Call("a", sent=True), Call("b", key=CODEC))
    assert batches(made) == [[("a", 1)], [("b", 1)]]


def test_between_methods_whose_rows_are_many_and_few_they_take_turns_by_the_oldest() -> None:
    made = scheduler(*(Call(f"lm{n}") for n in range(6)), Call("codec", key=CODEC, sent=True), rows=4)
    for name in ("late", "later"):
        made.add(Call(name))  # type: ignore[arg-type]
    assert [[name for name, _ in batch] for batch in batches(made)] == [
        ["lm0", "lm1", "lm2", "lm3"], ["lm4", "lm5", "late", "later"], ["codec"],
    ]  # fmt: skip


def test_long_rows_are_limited_in_tokens_and_short_ones_in_number() -> None:
    made = scheduler(Call("a", 5), Call("b", 3), *(Call(name) for name in "cde"), rows=4, tokens=5)
    assert batches(made) == [[("c", 1), ("d", 1), ("e", 1), ("a", 5)], [("b", 3)]]
    made = scheduler(*(Call(name) for name in "abcd"), rows=4, tokens=2)
    assert batches(made) == [[(name, 1) for name in "abcd"]]


def test_short_rows_go_first_and_a_long_one_joins_them_piece_by_piece() -> None:
    made = scheduler(Call("long", 20), Call("a"), Call("b"), tokens=8, splits=True)
    assert batches(made) == [[("a", 1), ("b", 1), ("long", 8)], [("long", 8)], [("long", 4)]]


BESIDE = TokenBudget((0, 6), (4, 2))  # four tokens of a prompt, and two when six of it are in the cache


def test_beside_a_row_that_somebody_listens_to_a_long_one_gets_on_by_less_the_longer_it_is() -> None:
    made = scheduler(Call("long", 12), tokens=8, splits=True, beside=BESIDE)
    pieces = []
    while made.waiting:
        made.add(Call("a", sent=True))  # type: ignore[arg-type]
        work = made.choose()
        assert work is not None
        pieces += [piece for name, piece in plain(work) if name == "long"]
        commit(made, work)
    assert pieces[:4] == [4, 2, 2, 2]
    assert sum(pieces) == 12


def test_beside_rows_whose_clients_have_nothing_yet_a_long_one_takes_all_the_tokens() -> None:
    made = scheduler(Call("long", 12), Call("a"), tokens=8, splits=True, beside=BESIDE)
    assert batches(made) == [[("a", 1), ("long", 8)], [("long", 4)]]


def test_several_long_rows_share_what_there_is_beside_others() -> None:
    rows = [Call("x", 3), Call("y", 9), Call("a", sent=True)]
    made = scheduler(*rows, tokens=8, splits=True, beside=BESIDE)
    assert plain(made.choose()) == [("a", 1), ("x", 3), ("y", 1)]


def test_a_row_that_is_still_running_is_listened_to_as_well() -> None:
    """One batch deep: the next is chosen before the rows of the last have come back."""
    made = scheduler(Call("a", sent=True), splits=True, beside=BESIDE)
    assert plain(made.choose()) == [("a", 1)]
    made.add(Call("long", 12))  # type: ignore[arg-type]
    assert plain(made.choose()) == [("long", 4)]
    made.add(Call("other", 12))  # type: ignore[arg-type]
    assert plain(made.choose()) == [("other", 8)], "and who has left is listened to no more"


def test_who_waits_for_another_method_of_the_worker_is_listened_to_as_well() -> None:
    made = scheduler(Call("long", 12), Call("codec", key=CODEC, sent=True), splits=True, beside=BESIDE)
    assert plain(made.choose()) == [("long", 4)]


def test_a_row_that_cannot_be_split_runs_alone_also_when_it_has_waited_long_enough() -> None:
    long = Call("long", 20)
    made = scheduler(long, tokens=8)
    for _ in range(100):
        for name in "abc":
            made.add(Call(name))  # type: ignore[arg-type]
        work = made.choose()
        assert work is not None
        if long in work.calls:
            assert plain(work) == [("long", 20)]
            return
    raise AssertionError("the long row never ran")


class Watched(Call):
    """A call that knows whether it was looked at."""

    is_looked_at = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("run", "frame", "tokens", "done", "arrival"):
            object.__setattr__(self, "is_looked_at", True)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("waiting", [10, 1000])
def test_a_choice_looks_at_the_rows_it_takes_and_at_heads_of_lines_however_many_wait(waiting: int) -> None:
    calls: list[Call] = []
    for n in range(waiting):
        calls += [
            Watched(f"short{n}", sent=n % 2 == 0),
            Watched(f"long{n}", 20, sent=n % 3 == 0),
            Watched(f"codec{n}", key=CODEC, sent=n % 5 == 0),
        ]
    made = scheduler(*calls, rows=4, tokens=8, splits=True, beside=BESIDE)
    for call in calls:
        call.is_looked_at = False  # type: ignore[attr-defined]
    work = made.choose()
    assert work is not None and len(work.calls) == 4
    looked = [call for call in calls if call.is_looked_at]  # type: ignore[attr-defined]
    assert len(looked) <= 4 + 8  # the heads of eight lines: two methods, short and long, sooner and later


def test_a_piece_ends_at_a_multiple_of_the_tile_whatever_else_runs() -> None:
    made = scheduler(Call("long", 10, branch=Branch(Table(3))), tokens=8, splits=True, tile=4)
    assert [piece for ((_, piece),) in batches(made)] == [1, 4, 4, 1]
    made = scheduler(
        Call("long", 10, branch=Branch(Table(3))),
        *(Call(name) for name in "abc"),
        tokens=8,
        splits=True,
        tile=4,
    )
    assert [dict(batch)["long"] for batch in batches(made)] == [1, 4, 4, 1]


def test_a_tile_that_does_not_fit_now_waits() -> None:
    made = scheduler(Call("x", 4), Call("y", 4), Call("a"), tokens=6, splits=True, tile=4)
    assert batches(made) == [[("a", 1), ("x", 4)], [("y", 4)]]


def test_a_row_that_cannot_be_split_and_is_too_long_runs_alone_and_is_not_overtaken() -> None:
    made = scheduler(Call("a", 3), Call("long", 20), Call("b", 3), tokens=8)
    assert batches(made) == [[("a", 3)], [("long", 20)], [("b", 3)]]


def test_of_two_long_rows_the_first_is_brought_in_before_the_second() -> None:
    made = scheduler(Call("a", 20), Call("b", 20), tokens=8, splits=True)
    pieces = [batch for batch in batches(made)]
    assert pieces == [[("a", 8)], [("a", 8)], [("a", 4), ("b", 4)], [("b", 8)], [("b", 8)]]


def test_many_long_rows_do_not_keep_short_ones_out_of_a_batch() -> None:
    made = scheduler(*(Call(f"long{n}", 20) for n in range(9)), Call("a"), rows=4, tokens=8, splits=True)
    assert batches(made)[0] == [("a", 1), ("long0", 8)]


def test_what_did_not_fit_keeps_its_place() -> None:
    made = scheduler(Call("a", 5), Call("b", 5), Call("c", 5), tokens=8)
    assert [[name for name, _ in batch] for batch in batches(made)] == [["a"], ["b"], ["c"]]


def test_the_rest_of_a_split_row_is_short_when_one_token_is_left() -> None:
    made = scheduler(Call("long", 9), tokens=8, splits=True)
    work = made.choose()
    assert work is not None
    commit(made, work)
    made.add(Call("b", 7))  # type: ignore[arg-type]
    assert plain(made.choose()) == [("long", 1), ("b", 7)]


@pytest.mark.parametrize("how", ["dropped", "closed"])
def test_a_call_that_counts_no_more_is_forgotten_and_takes_no_row(how: str) -> None:
    host = Host()
    gone = [Call(f"gone{index}", run=Run(host=host)) for index in range(4)]
    made = scheduler(*gone, Call("a"), rows=4)
    for call in gone:
        if how == "dropped":
            call.frame.is_dropped = True
        else:
            call.run.is_closed = True
    assert batches(made) == [[("a", 1)]]
    assert host.forgotten == gone
    assert made.waiting == 0


def test_where_all_were_dropped_there_is_no_batch() -> None:
    call = Call("a")
    made = scheduler(call)
    call.frame.is_dropped = True
    assert made.choose() is None
    assert made.waiting == 0


def test_a_long_row_that_can_be_split_is_not_put_off_by_short_ones() -> None:
    long = Call("long", 40)
    made = scheduler(long, tokens=8, splits=True)
    for _ in range(40):
        for name in "abc":
            made.add(Call(name))  # type: ignore[arg-type]
        work = made.choose()
        assert work is not None
        commit(made, work)
        if long.done + 8 >= long.tokens:
            return
    raise AssertionError(f"only {long.done} of 40 tokens were run")


def test_a_long_row_that_cannot_be_split_is_not_put_off_for_ever() -> None:
    made = scheduler(Call("long", 20), tokens=8)
    for _ in range(100):
        for name in "ab":
            made.add(Call(name))  # type: ignore[arg-type]
        if ("long", 20) in plain(made.choose()):
            return
    raise AssertionError("the long row never ran")


def test_a_row_whose_client_has_something_is_not_put_off_for_ever() -> None:
    """A picture sends nothing until it is done; a text that is being read must not stand still meanwhile."""
    made = scheduler(Call("text", key=CODEC, sent=True))
    for _ in range(100):
        made.add(Call("picture"))  # type: ignore[arg-type]
        if plain(made.choose()) == [("text", 1)]:
            return
    raise AssertionError("the text never went on")


def test_a_call_of_no_tokens_does_not_keep_the_worker() -> None:
    class Impatient(Scheduler):
        asked = 0

        def _first_key(self) -> Key | None:
            self.asked += 1
            assert self.asked < 100, "it asks again and again"
            return super()._first_key()

    made = Impatient({LM: Limits(splits=True)})
    made.add(Call("empty", 0))  # type: ignore[arg-type]
    made.choose()


calls = st.builds(
    Call,
    name=st.just("call"),
    tokens=st.one_of(st.just(1), st.integers(1, 30)),
    key=st.sampled_from([LM, CODEC]),
    sent=st.booleans(),
)


@given(
    arrivals=st.lists(st.lists(calls, max_size=5), max_size=8),
    rows=st.integers(1, 5),
    tokens=st.integers(1, 12),
    splits=st.booleans(),
    tile=st.sampled_from([0, 0, 4]),
)
def test_every_call_is_chosen_to_its_last_token_and_none_overtakes_its_like(
    arrivals: list[list[Call]], rows: int, tokens: int, splits: bool, tile: int
) -> None:
    made = scheduler(rows=rows, tokens=tokens, splits=splits, tile=tile)
    ran: dict[Call, list[int]] = {}
    order: list[Call] = []

    def run(work: Work | None) -> None:
        assert work is not None
        assert 1 <= len(work.calls) <= rows
        assert len(set(work.calls)) == len(work.calls)
        long = [
            piece for call, piece in zip(work.calls, work.pieces, strict=True) if call.tokens - call.done > 1
        ]
        assert sum(long) <= tokens or len(work.calls) == 1
        for call, piece in zip(work.calls, work.pieces, strict=True):
            assert call.op.key == work.key and piece >= 1
            assert splits or piece == call.tokens
            ran.setdefault(call, []).append(piece)
            order.append(call)
        commit(made, work)

    added: list[Call] = []
    for batch in arrivals:
        for call in batch:
            if call.key == CODEC:
                call.tokens = 1  # it has no cache
            added.append(call)
            made.add(call)  # type: ignore[arg-type]
        if made.waiting:
            run(made.choose())
    for _ in range(1000):
        if not made.waiting:
            break
        run(made.choose())

    assert made.waiting == 0 and made.choose() is None
    assert {call: sum(pieces) for call, pieces in ran.items()} == {call: call.tokens for call in added}
    for call in added:
        like = [one for one in added if (one.key, one.sent, one.tokens) == (call.key, call.sent, call.tokens)]
        if call.tokens == 1 or not splits:
            assert [one for one in order if one in like] == like
