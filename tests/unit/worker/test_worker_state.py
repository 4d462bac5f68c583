"""What a worker says to what it hears: lists of messages in, lists of messages out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.engine.rows import RowResult
from walkserve.transport.base import Unsendable
from walkserve_sdk import BadRequest, Stop

RANK0, RANK1 = "pipe.rank0", "pipe.rank1"
HERE, THERE = f"{RANK0}.1", f"{RANK1}.1"
CONDUCTOR, CLIENT = "conductor", "http"
Bench = Callable[..., Any]


def start(number: int, graph: str, *, track: str = "saying", walk: int = 0, **inputs: Any) -> m.StartWalk:
    return m.StartWalk(number, track, walk, graph, inputs)


def ended(said: dict[str, list[m.Message]]) -> list[m.WalkEnded]:
    return [message for message in said.get(CONDUCTOR, []) if isinstance(message, m.WalkEnded)]


def broke(said: dict[str, list[m.Message]]) -> list[m.WalkBroke]:
    return [message for message in said.get(CONDUCTOR, []) if isinstance(message, m.WalkBroke)]


def emitted(said: dict[str, list[m.Message]]) -> list[tuple[int, str, Any]]:
    """Tag, output and item, one after the other."""
    return [
        (tag, one.output, item)
        for one in said.get(CLIENT, [])
        if isinstance(one, m.Emitted)
        for tag, item in zip(one.tags, one.items, strict=True)
    ]


def fails(row: Any) -> RowResult:
    raise AssertionError("a test breaks rows by WorkerState.broke")


# --- a Walk --------------------------------------------------------------------------------------------


def test_a_walk_is_run_to_its_end_and_its_outputs_go_straight_to_the_client(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    assert worker.hear(start(0, "say", n=[5, 6, 7], most=2)) == {}
    assert worker.step() == {CLIENT: [m.Emitted("words", [100], [8])]}
    assert worker.step() == {
        CLIENT: [m.Emitted("words", [100], [9])],
        CONDUCTOR: [m.WalkEnded(0, "saying", 0, "times", 2, 0, {"n": 9}, {}, {"words": 2}, {})],
    }
    assert worker.choose() is None


def test_a_row_is_what_an_engine_needs_to_know(bench: Bench) -> None:
    worker = bench(RANK0, tokens=2)
    worker.open(0)
    worker.hear(start(0, "say", walk=4, n=[5, 6, 7], most=2))
    rows = []
    for _ in range(3):
        work = worker.choose()
        rows.append(worker.state.row(work.calls[0], work.pieces[0]))
        worker.state.finish(work, worker.results(work))
    first, second, third = rows
    assert (first.tokens, first.done, first.is_last, first.turn) == (2, 0, False, 0)
    assert (second.tokens, second.done, second.is_last, second.turn) == (1, 2, True, 0)
    assert (third.tokens, third.done, third.is_last, third.turn) == (1, 0, True, 1)
    assert first.values == second.values == {"n": [5, 6, 7]}
    assert first.key == (3, 0, "saying", 4)
    assert first.options.most == 8 and first.keeps


def test_options_that_were_cut_at_admission_are_those_of_its_rows(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.open(1)
    cut = replace(worker.state._lives[0].options, most=2)
    worker.hear(m.SetOptions(0, cut))
    worker.hear(start(0, "say", n=5, most=2), start(1, "say", n=5, most=2))
    work = worker.choose()
    rows = [worker.state.row(call, piece) for call, piece in zip(work.calls, work.pieces, strict=True)]
    assert [row.options.most for row in rows] == [2, 8]


def test_of_a_split_row_only_the_last_piece_is_heard(bench: Bench) -> None:
    worker = bench(RANK0, tokens=2)
    worker.open(0)
    worker.hear(start(0, "say", n=[5, 6, 7, 8, 9], most=1))
    assert worker.step() == {}
    assert worker.step() == {}
    assert emitted(said := worker.step()) == [(100, "words", 10)]
    assert ended(said)[0].turns == 1
    assert worker.state._lives[0].branches["lm", "main"].table.length == 5


def test_rows_of_all_requests_share_a_batch(bench: Bench) -> None:
    worker = bench(RANK0)
    for number in range(3):
        worker.open(number)
        worker.hear(start(number, "say", n=number, most=1))
    assert len(worker.choose().calls) == 3


def test_what_a_batch_gives_to_an_output_is_one_message(bench: Bench) -> None:
    worker = bench(RANK0)
    for number in range(3):
        worker.open(number)
        worker.hear(start(number, "say", n=10 * number, most=2))
    assert worker.step() == {CLIENT: [m.Emitted("words", [100, 101, 102], [1, 11, 21])]}


def test_an_item_that_cannot_be_sent_fails_its_own_request_and_the_others_of_its_message_are_sent_again(
    bench: Bench,
) -> None:
    worker = bench(RANK0)
    for number in range(3):
        worker.open(number)
        worker.hear(start(number, "say", n=10 * number, most=2))
    (together,) = worker.step()[CLIENT]
    worker.state.unsendable(Unsendable(CLIENT, [together], "a test says so"))
    alone = worker.said()[CLIENT]
    assert [(one.tags, one.items) for one in alone] == [([100], [1]), ([101], [11]), ([102], [21])]
    worker.state.unsendable(Unsendable(CLIENT, [alone[1]], "a test says so"))
    assert [(one.number, one.track) for one in broke(worker.said())] == [(1, "")]


def test_an_output_that_nobody_asked_for_goes_nowhere_and_is_not_counted(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0, "sound")
    worker.open(1, "words", client="")  # a warm-up
    worker.hear(start(0, "say", n=0, most=1), start(1, "say", n=0, most=1))
    said = worker.run()
    assert emitted(said) == []
    assert [one.emitted for one in ended(said)] == [{}, {}]


def test_counts_add_up_over_the_turns_of_a_walk(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.answers["next"] = lambda row: RowResult({"n": 1}, counts={"dropped": row.turn})
    worker.open(0)
    worker.hear(start(0, "say", n=0, most=4))
    assert ended(worker.run())[0].counts == {"dropped": 6}


def test_a_state_is_handed_from_call_to_call_and_kept_when_none_is_given(bench: Bench) -> None:
    worker = bench(RANK0)
    seen = []

    def spell(row: Any) -> RowResult:
        seen.append(row.branch.state)
        return RowResult({"text": "x"}, **({"state": row.turn} if row.turn != 1 else {}))

    worker.answers["spell"] = spell
    worker.open(0)
    worker.hear(start(0, "spell", xs=[1, 2, 3]))
    worker.run()
    worker.hear(start(0, "spell", walk=1, xs=[4]))
    worker.run()
    assert seen == [None, 0, 0, 2]


def test_what_cannot_ride_in_a_message_is_lent_until_the_request_ends(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.answers["peek"] = lambda row: RowResult({"y": frozenset("tensor"), "z": b"bytes"})
    worker.open(0)
    worker.hear(start(0, "look", x=1))
    values = ended(worker.run())[0].values
    assert values == {"y": m.TensorRef(HERE, 1, "here", 0, 0, "any", ()), "z": m.Blob(b"bytes")}
    assert worker.carrier.lent == {1: frozenset("tensor")}
    worker.hear(m.CloseRequest(0))
    assert worker.carrier.lent == {}


def test_what_a_record_and_a_list_hold_is_lent_and_given_back_as_if_it_stood_alone(bench: Bench) -> None:
    worker = bench(RANK0)
    one, other = frozenset("one"), frozenset("other")
    worker.answers["peek"] = lambda row: RowResult(
        {"y": {"plan": one, "each": [other, 1], "cost": 0.5, "note": None}, "z": [b"png", "goal"]}
    )
    worker.open(0)
    worker.hear(start(0, "look", x=[b"a file", 7]))
    values = ended(worker.run())[0].values
    assert values["z"] == [m.Blob(b"png"), "goal"]
    lent = m.references(values["y"])
    assert [worker.carrier.lent[each.key] for each in lent] == [one, other]
    assert values["y"] == m.Named({"plan": lent[0], "each": [lent[1], 1], "cost": 0.5, "note": None})
    assert worker.state.lending.receive(m.Named({"n": 1, "each": [m.Blob(b"a")]})) == {"n": 1, "each": [b"a"]}
    worker.hear(m.CloseRequest(0))
    assert worker.carrier.lent == {}


def test_a_walk_that_cannot_start_breaks_and_nothing_else_does(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    said = worker.hear(start(0, "say", n=0), start(0, "sing", walk=1), start(0, "say", walk=2, n=0, most=1))
    assert [(one.walk, one.fault.status, one.fault.code) for one in broke(said)] == [
        (0, 500, "component_failed"),
        (1, 500, "component_failed"),
    ]
    assert (
        broke(said)[0].fault.message
        == "hearing StartWalk failed (KeyError); the server's log has the details"
    )
    assert [one.walk for one in ended(worker.run())] == [2]


# --- numbers -------------------------------------------------------------------------------------------


def test_what_comes_before_its_request_is_opened_is_held(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    early = m.StreamItems(4, "items", 0, ["a"])
    assert worker.hear(early, m.EndStream(4, "items", 1)) == {}
    worker.open(4)
    worker.hear(start(4, "read", track="reading"))
    said = worker.run()
    assert emitted(said) == [(104, "sound", "Helping(items=['a'], start=0, fresh=1, last=True)")]
    assert said[HERE] == [m.StreamTaken(4, "items", 1)]
    assert ended(said)[0].ended_by == "stream"


def test_what_comes_for_a_closed_request_is_discarded_and_lent_items_are_given_back(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    worker.open(4)
    assert worker.hear(m.CloseRequest(4)) == {CONDUCTOR: [m.RequestClosed(4, RANK1, THERE)]}
    lent = m.TensorRef(HERE, 9, "here", 0, 0, "any", ())
    said = worker.hear(
        m.StreamItems(4, "items", 0, ["a", lent]), start(4, "read"), m.EndStream(4, "items", 2)
    )
    assert said == {HERE: [m.FreeTensors([9])]}
    assert worker.choose() is None and worker.state.open_requests == 0


def test_what_came_early_for_a_number_that_is_never_opened_here_is_given_back(bench: Bench) -> None:
    """A worker that was started again hears of requests that its predecessor had."""
    worker = bench(RANK1, codec=RANK1)
    worker.hear(m.StreamItems(3, "items", 0, [m.TensorRef(HERE, 9, "here", 0, 0, "any", ())]))
    assert worker.open(5) == {HERE: [m.FreeTensors([9])]}


def test_closing_what_was_never_opened_is_answered(bench: Bench) -> None:
    assert bench(RANK0).hear(m.CloseRequest(7)) == {CONDUCTOR: [m.RequestClosed(7, RANK0, HERE)]}


# --- closing -------------------------------------------------------------------------------------------


def test_closing_gives_all_pages_back(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=[1, 2, 3, 4, 5], most=9))
    worker.step()
    assert worker.pool.held == 2
    assert worker.hear(m.CloseRequest(0)) == {CONDUCTOR: [m.RequestClosed(0, RANK0, HERE)]}
    assert worker.pool.held == 0
    assert worker.choose() is None


def test_a_request_closed_while_its_rows_are_in_flight_is_released_when_they_are_back(bench: Bench) -> None:
    worker = bench(RANK0)
    for number in (0, 1):
        worker.open(number)
        worker.hear(start(number, "say", n=[1, 2], most=1))
    work = worker.choose()
    assert worker.hear(m.CloseRequest(0)) == {}
    assert worker.pool.held == 2
    worker.state.finish(work, worker.results(work))
    said = worker.said()
    assert said[CONDUCTOR][0] == m.RequestClosed(0, RANK0, HERE)
    assert emitted(said) == [(101, "words", 3)]  # of the other one, and nothing of the closed one
    assert [one.number for one in ended(said)] == [1]
    assert worker.pool.held == 1
    worker.hear(m.CloseRequest(1))
    assert worker.pool.held == 0 and worker.state.open_requests == 0
    worker.pool.check([])


def test_a_request_is_released_once_all_its_batches_are_back(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=1, most=9), start(0, "spell", walk=1, xs=[1, 2]))
    first, second = worker.choose(), worker.choose()
    worker.hear(m.CloseRequest(0))
    worker.state.finish(first, worker.results(first))
    assert worker.said() == {}
    worker.state.broke(second.calls[0], ValueError("too late to matter"))
    assert worker.said() == {CONDUCTOR: [m.RequestClosed(0, RANK0, HERE)]}
    assert worker.choose() is None and worker.pool.held == 0


def test_closing_twice_is_answered_once_it_is_done(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=1, most=9))
    work = worker.choose()
    assert worker.hear(m.CloseRequest(0), m.CloseRequest(0)) == {}
    worker.state.finish(work, worker.results(work))
    assert worker.said() == {CONDUCTOR: [m.RequestClosed(0, RANK0, HERE)]}


# --- streams -------------------------------------------------------------------------------------------


def test_items_of_a_stream_go_to_the_worker_that_reads_it(bench: Bench) -> None:
    worker = bench(RANK0, codec=RANK1)
    worker.open(0)
    worker.hear(start(0, "write", track="writing", n=0, most=2))
    assert worker.step() == {THERE: [m.StreamItems(0, "items", 0, [1])]}
    said = worker.step()
    assert said[THERE] == [m.StreamItems(0, "items", 1, [2])]
    assert ended(said)[0].wrote == {"items": 2}


def test_a_writer_is_not_started_until_its_reader_has_taken_enough(bench: Bench) -> None:
    worker = bench(RANK0, codec=RANK1)
    worker.open(0)
    worker.hear(start(0, "write", track="writing", n=0, most=4))
    worker.run()
    assert worker.state.streams.write_end(worker.state._lives[0], "items").written == 2
    assert worker.choose() is None
    worker.hear(m.StreamTaken(0, "items", 1))
    assert worker.step()[THERE] == [m.StreamItems(0, "items", 2, [3])]
    assert worker.choose() is None
    worker.hear(m.StreamTaken(0, "items", 3), m.StreamTaken(0, "items", 1))  # an old one changes nothing
    assert [one.turns for one in ended(worker.run())] == [4]


def test_a_writer_whose_client_has_something_from_another_worker_stands_behind_who_has_nothing(
    bench: Bench,
) -> None:
    worker = bench(RANK0, codec=RANK1, rows=1)
    for number in (0, 1):
        worker.open(number)
    worker.hear(m.StreamTaken(0, "items", 0, has_sent=True), m.StreamTaken(0, "items", 0))
    for number in (0, 1):
        worker.hear(start(number, "write", n=0, most=1))
    assert [one.number for one in ended(worker.run())] == [1, 0]


def test_a_reader_says_what_it_has_taken_when_its_batch_is_back_and_not_before(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    worker.open(0)
    worker.hear(start(0, "read", track="reading"))
    assert worker.choose() is None
    worker.hear(m.StreamItems(0, "items", 0, ["a", "b"]))
    work = worker.choose()
    assert worker.said() == {}
    worker.state.finish(work, worker.results(work))
    assert worker.said()[HERE] == [m.StreamTaken(0, "items", 1)]
    assert worker.step()[HERE] == [m.StreamTaken(0, "items", 2, has_sent=True)]
    assert worker.choose() is None
    worker.hear(m.EndStream(0, "items", 2))
    said = worker.run()
    assert emitted(said) == [(100, "sound", "Helping(items=[], start=2, fresh=0, last=True)")]
    assert ended(said)[0].ended_by == "stream"


def test_an_end_that_overtakes_the_items_it_counts_waits_for_them(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    worker.open(0)
    worker.hear(start(0, "read", track="reading"), m.EndStream(0, "items", 2))
    assert worker.choose() is None
    worker.hear(m.StreamItems(0, "items", 0, ["a", "b"]))
    assert ended(worker.run())[0].turns == 2


def test_lent_items_are_copied_and_given_back_when_they_arrive(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    worker.open(0)
    lent = [m.TensorRef(HERE, key, "here", 0, 0, "any", ()) for key in (5, 6)]
    assert worker.hear(m.StreamItems(0, "items", 0, [*lent])) == {HERE: [m.FreeTensors([5, 6])]}
    worker.hear(start(0, "read", track="reading"))
    assert "copy of pipe.rank0.1 5" in emitted(worker.step())[0][2]


def test_within_one_worker_a_stream_needs_no_message(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "write", track="writing", n=0, most=5), start(0, "read", track="reading"))
    said = worker.run()
    assert set(said) == {CLIENT, CONDUCTOR}
    assert ended(said)[0].wrote == {"items": 5}
    worker.hear(m.EndStream(0, "items", 5))
    assert ended(worker.run())[0].turns == 6  # the end came after all items, with a helping of its own


def test_once_nobody_reads_what_is_written_goes_nowhere_and_holds_nobody_up(bench: Bench) -> None:
    worker = bench(RANK0, codec=RANK1)
    worker.open(0)
    worker.hear(start(0, "write", track="writing", n=0, most=5))
    worker.run()
    said = worker.hear(m.DiscardStream(0, "items"))
    assert said == {}
    said = worker.run()
    assert THERE not in said
    assert (ended(said)[0].turns, ended(said)[0].wrote) == (5, {"items": 5})


def test_a_stop_upstream_is_refused_by_name(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.answers["decode"] = lambda row: RowResult(stop=Stop("heard", upstream=True))
    worker.open(0)
    worker.hear(start(0, "write", track="writing", n=0, most=1), start(0, "read", track="reading"))
    (one,) = broke(worker.run())
    assert one.track == "reading"


def test_a_walk_that_reads_a_stream_which_is_at_its_end_ends_at_once(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    worker.open(0)
    worker.hear(m.EndStream(0, "items", 0), start(0, "read", track="reading"))
    assert ended(worker.run())[0].turns == 1
    (one,) = ended(worker.hear(start(0, "read", track="reading", walk=1)))
    assert (one.walk, one.ended_by, one.turns) == (1, "stream", 0)


# --- branches ------------------------------------------------------------------------------------------


def test_a_fork_shares_pages_until_one_of_both_writes(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=[1, 2, 3, 4, 5, 6], most=1))
    worker.run()
    assert worker.pool.held == 2
    said = worker.hear(m.ForkBranch(0, "saying", 1, "lm", "main", "other"))
    assert said == {CONDUCTOR: [m.BranchForked(0, "saying", 1)]}
    branches = worker.state._lives[0].branches
    assert worker.pool.held == 2
    assert branches["lm", "other"].table.pages == branches["lm", "main"].table.pages
    worker.hear(start(0, "say", walk=1, n=7, most=1))
    worker.run()
    assert worker.pool.held == 3  # the tail was copied for whoever wrote it
    assert (branches["lm", "main"].table.length, branches["lm", "other"].table.length) == (7, 6)
    worker.pool.check(branch.table for branch in branches.values() if branch.table)
    worker.hear(m.CloseRequest(0))
    assert worker.pool.held == 0
    worker.pool.check([])


def test_a_fork_onto_a_branch_replaces_it(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=[1, 2, 3, 4, 5], most=1))
    worker.run()
    for walk in (1, 2):
        worker.hear(m.ForkBranch(0, "saying", walk, "lm", "main", "other"))
    assert worker.pool.held == 2
    worker.pool.check(branch.table for branch in worker.state._lives[0].branches.values() if branch.table)


def test_a_branch_that_was_never_written_is_empty(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "look", x=1))
    work = worker.choose()
    assert [worker.state.row(call, 1).branch.table.length for call in work.calls] == [0, 0]
    worker.state.finish(work, worker.results(work))
    assert ended(worker.said())[0].values == {"y": 2, "z": 2}
    assert worker.pool.held == 0  # they only looked


def test_a_fork_onto_itself_changes_nothing(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=[1, 2, 3], most=1))
    worker.run()
    worker.hear(m.ForkBranch(0, "saying", 1, "lm", "main", "main"))
    assert worker.state._lives[0].branches["lm", "main"].table.length == 3


def test_a_fork_of_nothing_begins_a_branch_anew_and_gives_its_pages_back(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=[1, 2, 3, 4, 5], most=1))
    worker.run()
    worker.hear(m.ForkBranch(0, "saying", 1, "lm", "main", "other"))
    said = worker.hear(m.ForkBranch(0, "saying", 2, "lm", None, "main"))
    assert said == {CONDUCTOR: [m.BranchForked(0, "saying", 2)]}
    branches = worker.state._lives[0].branches
    assert (branches["lm", "main"].table.length, branches["lm", "other"].table.length) == (0, 5)
    assert worker.pool.held == 2  # of the other, which goes on from what there was
    worker.hear(m.ForkBranch(0, "saying", 3, "lm", None, "other"))
    assert worker.pool.held == 0
    worker.hear(start(0, "say", walk=4, n=[1, 2, 3], most=1))
    worker.run()
    assert branches["lm", "main"].table.length == 3
    worker.pool.check(branch.table for branch in branches.values() if branch.table)


def test_two_walks_that_write_one_branch_take_turns(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=1, most=1), start(0, "say", track="writing", n=5, most=1))
    assert len(worker.choose().calls) == 1
    assert worker.choose() is None


def test_a_walk_that_broke_while_it_waited_for_a_branch_does_not_hold_up_the_next(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(
        start(0, "spell", track="a", xs=[1]),
        start(0, "spell", track="b", xs=[1]),
        start(0, "spell", track="c", xs=[1]),
    )
    worker.state._lives[0].runs["b", 0].is_closed = True  # another row of it broke
    assert [one.track for one in ended(worker.run())] == ["a", "c"]


def test_a_walk_whose_input_has_no_length_leaves_its_branch_free(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    assert len(broke(worker.hear(start(0, "say", n=[], most=1)))) == 1
    worker.hear(start(0, "say", walk=1, n=1, most=1))
    assert [one.walk for one in ended(worker.run())] == [1]


# --- what breaks ---------------------------------------------------------------------------------------


def test_a_row_that_breaks_fails_its_walk_and_no_other(bench: Bench) -> None:
    worker = bench(RANK0)
    for number in (0, 1):
        worker.open(number)
        worker.hear(start(number, "say", n=number, most=1))
    work = worker.choose()
    guilty, other = work.calls
    worker.state.broke(guilty, ValueError("in /secret/path.py"))
    worker.state.finish(type(work)(work.key, [other], [1]), [RowResult({"n": 7})])
    said = worker.said()
    (one,) = broke(said)
    assert (one.number, one.track, one.walk) == (0, "saying", 0)
    assert one.fault == m.Fault(
        "Pipe.say: lm.next failed (ValueError); the server's log has the details", code="component_failed"
    )
    assert [one.number for one in ended(said)] == [1]
    for number in (0, 1):
        worker.hear(m.CloseRequest(number))
    assert worker.pool.held == 0


def test_a_fault_of_the_client_reaches_it_in_full(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=0, most=1))
    worker.state.broke(worker.choose().calls[0], BadRequest("this is no picture", param="image"))
    (one,) = broke(worker.said())
    assert one.fault == m.Fault("this is no picture", 400, "invalid_request_error", None, "image")


def test_the_branch_of_a_broken_walk_is_free_for_the_next(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=0, most=1))
    worker.state.broke(worker.choose().calls[0], ValueError("no"))
    worker.said()
    worker.hear(start(0, "say", walk=1, n=0, most=1))
    assert [one.walk for one in ended(worker.run())] == [1]


def test_a_walk_of_which_several_rows_break_is_said_to_have_broken_once(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "look", x=1))
    for call in worker.choose().calls:
        worker.state.broke(call, ValueError("all of them"))
    assert len(broke(worker.said())) == 1


def test_a_row_that_breaks_after_its_walk_has_ended_is_thrown_away(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "look", x=1))
    work = worker.choose()
    stopping, breaking = work.calls
    worker.state.finish(type(work)(work.key, [stopping], [1]), [RowResult(stop=Stop("nothing there"))])
    assert [one.ended_by for one in ended(worker.said())] == ["nothing there"]
    worker.state.broke(breaking, ValueError("too late to matter"))
    assert broke(worker.said()) == []


def test_items_that_cannot_be_read_fail_their_request_and_not_the_worker(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)

    def gone(value: Any) -> Any:
        raise LookupError("its owner is gone")

    worker.carrier.take = gone
    worker.open(0)
    worker.hear(start(0, "read", track="reading"))
    said = worker.hear(m.StreamItems(0, "items", 0, [m.TensorRef(HERE, 5, "here", 0, 0, "any", ())]))
    assert [(one.number, one.track) for one in broke(said)] == [(0, "")]  # no Walk of it can make up for that


@pytest.mark.parametrize(
    "message",
    [
        m.StreamItems(0, "items", 1, ["c"]),
        m.StreamItems(0, "items", 3, ["c"]),
        m.StreamItems(0, "items", -1, ["c"]),
        m.StreamItems(0, "codes", 0, ["c"]),
        m.StreamItems(0, "items", 2, ["c", "d"]),  # beyond the end
        m.EndStream(0, "items", 1),
        m.EndStream(0, "items", -1),
        m.EndStream(0, "items", 4),
        m.EndStream(0, "codes", 1),
        m.StreamTaken(0, "codes", 1),
        m.StreamTaken(0, "items", 9),
        m.DiscardStream(0, "codes"),
    ],
    ids=repr,
)
def test_a_message_that_does_not_fit_its_stream_fails_its_request_and_no_other(
    bench: Bench, message: m.Message
) -> None:
    worker = bench(RANK1, codec=RANK1)
    for number in (0, 1):
        worker.open(number)
        worker.hear(start(number, "read", track="reading"), m.StreamItems(number, "items", 0, ["a", "b"]))
        worker.hear(m.EndStream(number, "items", 3))
    assert [(one.number, one.track) for one in broke(worker.hear(message))] == [(0, "")]
    worker.hear(m.CloseRequest(0))
    worker.hear(m.StreamItems(1, "items", 2, ["c"]))
    said = worker.run()
    assert [tag for tag, _, _ in emitted(said)] == [101] * 3
    assert [(one.number, one.ended_by) for one in ended(said)] == [(1, "stream")]


def test_items_that_are_lent_are_given_back_also_where_they_do_not_fit(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    worker.open(0)
    said = worker.hear(m.StreamItems(0, "items", 5, [m.TensorRef(HERE, 5, "here", 0, 0, "any", ())]))
    assert said[HERE] == [m.FreeTensors([5])]
    assert len(broke(said)) == 1


def test_a_request_whose_options_cannot_be_read_does_not_end_the_worker(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.hear(m.OpenRequest(0, CLIENT, 1, {"most": "many"}, 3, ("words",)))


def test_a_fork_that_cannot_be_made_breaks_its_walk_and_not_the_worker(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    worker.hear(start(0, "say", n=[1, 2], most=1))
    worker.run()
    worker.pool.share = fails
    said = worker.hear(m.ForkBranch(0, "saying", 1, "lm", "main", "other"))
    assert [(one.track, one.walk) for one in broke(said)] == [("saying", 1)]
