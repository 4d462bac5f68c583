"""What a worker lends, and for how long; a stream that a client writes, from the side of who reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from walkserve import messages as m
from walkserve.engine.rows import RowResult
from walkserve.graph.lower import lower_model
from walkserve.worker.scheduler import Limits, Scheduler
from walkserve.worker.state import WorkerState
from walkserve_sdk import Component, Loop, Model, Node, Outcome, Output, Request, Stream, Text, Track, track
from walkserve_sdk.graph import WalkGraph

RANK0, CONDUCTOR = "pipe.rank0", "conductor"


def tensors(row: Any) -> RowResult:
    return RowResult({"n": {"a tensor"}})


def test_what_a_reader_has_read_is_freed_and_forgotten_while_the_request_lives(
    bench: Callable[..., Any],
) -> None:
    worker = bench(RANK0, codec="pipe.rank1")
    worker.answers["next"] = tensors
    worker.open(0)
    (live,) = worker.state._lives.values()
    for walk in range(50):
        worker.hear(m.StartWalk(0, "writing", walk, "write", {"n": 0, "most": 1}))
        said = worker.run()
        (sent,) = said["pipe.rank1.1"]
        (ended,) = said[CONDUCTOR]
        lent = [one.key for value in (*sent.items, *ended.values.values()) for one in m.references(value)]
        assert sorted(live.exports) == sorted(worker.carrier.lent) == sorted(lent) and len(lent) == 2
        worker.hear(m.FreeTensors(lent), m.StreamTaken(0, "items", walk + 1))
        assert (live.exports, worker.carrier.lent, worker.state.lending._lent) == (set(), {}, {})


def test_what_is_still_lent_goes_with_its_request(bench: Callable[..., Any]) -> None:
    worker = bench(RANK0, codec="pipe.rank1")
    worker.answers["next"] = tensors
    worker.open(0)
    worker.hear(m.StartWalk(0, "writing", 0, "write", {"n": 0, "most": 2}))
    worker.run()
    assert worker.carrier.held == 3  # two in the stream, one of the outcome
    worker.hear(m.CloseRequest(0))
    assert (worker.carrier.lent, worker.state.lending._lent) == ({}, {})
    worker.hear(m.FreeTensors([1, 2, 3]))  # it crossed the end


class Watcher(Model):
    """Reads what its client writes."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        pass

    eye = Component("some.where:Eye")
    ticks = Stream(by="client", limit=2)
    words = Output(Text())
    watch = WalkGraph(Loop(Node(eye, "look", takes=ticks, gives="seen", to=words)))

    @track
    def watching(self, request: Request, prepared: Outcome) -> Track:
        yield self.watch()
        return None


def test_the_conductor_is_told_what_was_read_of_a_clients_stream(bench: Callable[..., Any]) -> None:
    worker = WorkerState(
        address=f"{RANK0}.1",
        model=Watcher,
        plans=lower_model(Watcher),
        ranks={"eye": RANK0},
        scheduler=Scheduler({("eye", "look"): Limits(4, 8, True)}),
        carrier=bench(RANK0).carrier,
        read_options=lambda sent: Watcher.Options(),
        caches={},
    )
    worker.hear(m.OpenRequest(0, "http", 7, None, 3, ("words",)))
    worker.hear(m.StreamItems(0, "ticks", 0, [m.Blob(b"a picture")]))  # before any Walk of it
    worker.hear(m.StartWalk(0, "watching", 0, "watch", {}))
    assert worker.outbox == {}
    seen = []
    for more in ([], [m.StreamItems(0, "ticks", 1, [5])], [m.EndStream(0, "ticks", 2)]):
        for message in more:
            worker.hear(message)
        work = worker.choose()
        assert work is not None
        helping = worker.row(work.calls[0], 1).values["ticks"]
        seen.append((list(helping.new), helping.last))
        worker.finish(work, [RowResult({"seen": None})])
    assert seen == [([b"a picture"], False), ([5], False), ([], True)]
    said = worker.outbox[CONDUCTOR]
    assert said[:3] == [m.StreamTaken(0, "ticks", count) for count in (1, 2, 2)]
    assert isinstance(said[3], m.WalkEnded) and said[3].ended_by == "stream"
