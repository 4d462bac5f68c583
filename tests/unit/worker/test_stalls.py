"""A worker that is asked about a request says when all that it runs of it waits for streams, and once."""

from collections.abc import Callable
from typing import Any

from walkserve import messages as m
from walkserve.engine.rows import RowResult
from walkserve_sdk.stalls import StreamWait

RANK0, RANK1 = "pipe.rank0", "pipe.rank1"
HERE = f"{RANK0}.1"
CONDUCTOR = "conductor"
Bench = Callable[..., Any]

WRITER = StreamWait("writing", "items", for_room=True)
READER = StreamWait("reading", "items", for_room=False)


def start(number: int, graph: str, *, track: str, walk: int = 0, **inputs: Any) -> m.StartWalk:
    return m.StartWalk(number, track, walk, graph, inputs)


def told(said: dict[str, list[m.Message]], kind: type = m.Stuck) -> list[Any]:
    return [message for message in said.get(CONDUCTOR, []) if isinstance(message, kind)]


def full(bench: Bench) -> Any:
    """Its writer waits for room, two items are on their way to the reader elsewhere."""
    worker = bench(RANK0, codec=RANK1)
    worker.open(0)
    worker.hear(start(0, "write", track="writing", n=0, most=9))
    assert told(worker.run(), m.Blocked) == [m.Blocked(0)]
    return worker


def test_the_first_call_that_waits_for_room_is_told_and_no_other(bench: Bench) -> None:
    worker = full(bench)
    worker.hear(m.StreamTaken(0, "items", 1))
    assert told(worker.run(), m.Blocked) == []


def test_a_call_that_waits_for_items_is_no_news(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    worker.open(0)
    assert worker.hear(start(0, "read", track="reading")) == {}


def test_who_is_stuck_says_so_at_once(bench: Bench) -> None:
    worker = full(bench)
    said = worker.hear(m.Watch(0, 4))
    assert said == {CONDUCTOR: [m.Stuck(0, 4, HERE, {"items": (2, 0)}, {}, (WRITER,))]}
    assert worker.hear(m.StreamTaken(0, "items", 0)) == {}  # it has been answered


def test_who_reads_says_what_has_arrived_and_what_was_handed_over(bench: Bench) -> None:
    worker = bench(RANK1, codec=RANK1)
    worker.open(0)
    worker.hear(start(0, "read", track="reading"), m.StreamItems(0, "items", 0, ["a"]))
    worker.run()
    said = worker.hear(m.Watch(0, 1))
    assert told(said) == [m.Stuck(0, 1, f"{RANK1}.1", {}, {"items": (1, 1)}, (READER,))]


def test_who_holds_a_request_of_which_nothing_runs_says_so(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.open(0)
    assert told(worker.hear(m.Watch(0, 1))) == [m.Stuck(0, 1, HERE, {}, {}, ())]


def test_who_has_something_in_a_queue_or_a_batch_says_so_when_it_is_done(bench: Bench) -> None:
    worker = full(bench)
    worker.hear(m.StreamTaken(0, "items", 1))  # a call is ready
    assert worker.hear(m.Watch(0, 1)) == {}
    work = worker.choose()
    assert worker.said() == {}
    worker.state.finish(work, worker.results(work))
    assert told(worker.said()) == [m.Stuck(0, 1, HERE, {"items": (3, 1)}, {}, (WRITER,))]


def test_who_has_a_call_of_another_track_in_a_queue_says_nothing(bench: Bench) -> None:
    worker = full(bench)
    worker.hear(start(0, "look", track="saying", x=1))
    assert worker.hear(m.Watch(0, 1)) == {}
    assert len(told(worker.run())) == 1


def test_a_walk_that_breaks_leaves_only_what_waits(bench: Bench) -> None:
    worker = full(bench)
    worker.hear(start(0, "look", track="saying", x=1), m.Watch(0, 1))
    for call in worker.choose().calls:
        worker.state.broke(call, ValueError("unspeakable"))
    said = worker.said()[CONDUCTOR]
    assert [type(message) for message in said] == [m.WalkBroke, m.Stuck]


def test_a_stream_that_nobody_reads_any_more_is_not_counted(bench: Bench) -> None:
    worker = full(bench)
    worker.hear(m.DiscardStream(0, "items"))
    worker.run()
    assert told(worker.hear(m.Watch(0, 2))) == [m.Stuck(0, 2, HERE, {}, {}, ())]


def test_another_request_changes_nothing(bench: Bench) -> None:
    worker = full(bench)
    worker.open(1)
    worker.hear(start(1, "look", track="saying", x=1))
    assert len(told(worker.hear(m.Watch(0, 1)))) == 1


def test_a_request_that_closes_is_watched_no_more(bench: Bench) -> None:
    worker = full(bench)
    worker.hear(m.StreamTaken(0, "items", 1), m.Watch(0, 1))
    said = worker.hear(m.CloseRequest(0))
    assert said == {CONDUCTOR: [m.RequestClosed(0, RANK0, HERE)]}
    assert not worker.state._watched.rounds
    assert worker.hear(m.Watch(0, 2)) == {}


# --- what a call was handed is gone, whatever became of it: its writer may go on ------------------------


def handed(bench: Bench) -> Any:
    worker = bench(RANK1, codec=RANK1)
    worker.open(0)
    worker.hear(start(0, "read", track="reading"), m.StreamItems(0, "items", 0, ["a", "b"]))
    return worker


def test_the_items_of_a_call_that_broke_are_taken(bench: Bench) -> None:
    worker = handed(bench)
    worker.state.broke(worker.choose().calls[0], ValueError("unreadable"))
    assert worker.said()[HERE] == [m.StreamTaken(0, "items", 1)]
    worker.hear(start(0, "read", track="reading", walk=1))
    assert worker.step()[HERE] == [m.StreamTaken(0, "items", 2)]


def test_the_items_of_a_call_that_was_never_run_are_taken(bench: Bench) -> None:
    worker = handed(bench)
    (run,) = worker.state._lives[0].runs.values()
    run.is_closed = True
    assert worker.choose() is None
    assert worker.said()[HERE] == [m.StreamTaken(0, "items", 1)]


def test_a_writer_in_the_same_worker_goes_on_when_its_reader_broke(bench: Bench) -> None:
    worker = bench(RANK0)
    worker.answers["decode"] = lambda row: RowResult({"pcm": "sound"})
    worker.open(0)
    worker.hear(start(0, "write", track="writing", n=0, most=9), start(0, "read", track="reading"))
    while True:
        work = worker.choose()
        if work.key == ("codec", "decode"):
            break
        worker.state.finish(work, worker.results(work))
    written = worker.state.streams.write_end(worker.state._lives[0], "items")
    worker.state.broke(work.calls[0], ValueError("unreadable"))
    assert written.taken == 1
    worker.run()
    assert (written.written, written.is_open) == (3, False)
