"""walkserve.Engine: a caller that writes streams while its request runs, over two workers."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.families import trial
from tests.unit.test_engine_api import SOON_S, apart, eventually, halted, is_idle, threads_left

from walkserve import Engine
from walkserve import messages as m
from walkserve.conductor.replay import replay
from walkserve.journal import entries as e
from walkserve.journal.reading import read_journal
from walkserve_sdk.errors import BadRequest, Cancelled, ClientIdle, ComponentError, Unavailable
from walkserve_sdk.testing import ToyCall, ToyRuntime

TICKS = [1, "two", b"three", 4.5, np.arange(3), ["five", b"six", np.ones(7, np.uint8)]]
MOVES = ["0: 1", "1: two", "2: 5 bytes", "3: 4.5", "4: sum 3", "5: five 3 bytes sum 7"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The family is installed."""
    folder = tmp_path_factory.mktemp("robot")
    with pytest.MonkeyPatch.context() as patch:
        for path in reversed(trial.install(folder, "robot").split(":")[:2]):
            patch.syspath_prepend(path)
        yield
        for name in ("robot_family", "robot_family.parts"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def _engine(installed: None) -> Iterator[Engine]:
    with Engine("robot", device="cpu") as engine:
        assert [worker.name for worker in engine.workers] == ["robot.host", "robot.rank0"]
        yield engine
    assert threads_left() == []


@pytest.fixture
def engine(_engine: Engine) -> Iterator[Engine]:
    """One for all that leave it as it was."""
    yield _engine
    assert eventually(lambda: is_idle(_engine))


def moves(generation: Iterator[object]) -> list[object]:
    return [event.data for event in generation]  # type: ignore[attr-defined]


def test_each_tick_is_answered_while_the_request_runs(engine: Engine) -> None:
    with engine.stream() as generation:
        for tick, move in zip(TICKS, MOVES, strict=True):
            generation.send("ticks", tick)
            assert next(generation).data == move
        generation.end("ticks")
        assert list(generation) == []
    assert generation.ended is not None and generation.ended.finish_reason == "6 ticks"


def test_all_items_may_be_given_at_once(engine: Engine) -> None:
    result = engine.generate(streams={"ticks": iter(TICKS)})
    assert (result.moves, result.finish_reason) == ("".join(MOVES), "6 ticks")


def test_a_stream_that_is_not_written_is_empty(engine: Engine) -> None:
    assert engine.generate().finish_reason == "0 ticks"
    assert engine.generate(streams={"ticks": []}).finish_reason == "0 ticks"


def test_a_task_that_reads_no_stream_waits_for_none(engine: Engine) -> None:
    with engine.stream(task="sleep") as generation:
        assert list(generation) == []
        for _ in range(20):
            generation.send("ticks", 1)  # goes nowhere, and waits for nobody
        generation.end("ticks")
    assert generation.ended is not None and generation.ended.finish_reason == "slept"


def test_the_toy_runtime_says_the_same(engine: Engine) -> None:
    class Reader:
        def tick(self, call: ToyCall) -> dict[str, object]:
            assert call.helping is not None
            return {"seen": str(call.helping.new[0]) if call.helping.new else None}

    class Pilot:
        def steer(self, call: ToyCall) -> dict[str, object]:
            assert call.helping is not None
            before = call["weight"]
            move = f"{before}: {call.helping.new[0]}" if call.helping.new else None
            after = before + len(call.helping.new)
            return {"move": move, "weight": after, "ticks": after}

    toy = ToyRuntime(engine.model, {"reader": Reader(), "pilot": Pilot()})
    ticks = list(range(9))
    wanted = toy.run(engine.model.request(options={"seed": 1}), client={"ticks": ticks})
    result = engine.generate(streams={"ticks": ticks})
    assert result.moves == "".join(wanted.outputs["moves"])
    assert result.finish_reason == wanted.finish_reason == "9 ticks"


def test_whoever_writes_waits_while_nobody_reads(engine: Engine) -> None:
    """Four items may lie unread, as the family says; the fifth waits for the worker."""
    with engine.stream() as generation, halted(engine, "reader", "host") as reached:
        sent: list[int] = []

        def write() -> None:
            for tick in range(8):
                generation.send("ticks", tick)
                sent.append(tick)
            generation.end("ticks")

        writer = apart(write)
        assert reached()
        assert eventually(lambda: len(sent) == 4)
        (life,) = engine._threads._state.lives  # type: ignore[union-attr]
        assert eventually(lambda: life.client_ends["ticks"].written == 4)
        assert len(sent) == 4
    # leaving the block has cancelled it
    with pytest.raises(Cancelled):
        writer.result(SOON_S)


def test_a_writer_that_waits_goes_on_when_there_is_room(engine: Engine) -> None:
    with engine.stream() as generation:
        with halted(engine, "reader", "host") as reached:
            writer = apart(lambda: [generation.send("ticks", tick) for tick in range(100)])
            assert reached()
        writer.result(SOON_S)
        generation.end("ticks")
        assert len(moves(generation)) == 100


def test_threads_may_write_to_one_stream(engine: Engine) -> None:
    with engine.stream() as generation:
        writers = [
            apart(lambda first=first: [generation.send("ticks", first + n) for n in range(25)])
            for first in (0, 100, 200, 300)
        ]
        for writer in writers:
            writer.result(SOON_S)
        generation.end("ticks")
        told = [int(str(move).partition(": ")[2]) for move in moves(generation)]
    assert sorted(told) == sorted(first + n for first in (0, 100, 200, 300) for n in range(25))
    for first in (0, 100, 200, 300):  # of each thread in its order
        assert [one for one in told if first <= one < first + 100] == list(range(first, first + 25))


def test_when_the_request_has_seen_enough_what_is_written_goes_nowhere(engine: Engine) -> None:
    with engine.stream(moves=2) as generation:
        writer = apart(lambda: [generation.send("ticks", tick) for tick in range(500)])
        assert [next(generation).data for _ in range(2)] == ["0: 0", "1: 1"]
        # ``watching`` goes on until its stream ends, and writes what nobody reads any more
        writer.result(SOON_S)
        generation.end("ticks")
        assert moves(generation) == []
    assert generation.ended is not None and generation.ended.finish_reason == "enough"


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda one: one.send("tick", 1), "'tick' is no stream that this request's client writes; did you"),
        (lambda one: one.end("observations"), "'observations' is no stream that this request's client"),
        (lambda one: one.send("ticks", {1, 2}), "ticks: no stream can hold a value of type set"),
    ],
)
def test_what_cannot_be_written_is_refused_and_the_request_goes_on(engine: Engine, write, told) -> None:
    with engine.stream() as generation:
        with pytest.raises(BadRequest, match=told):
            write(generation)
        generation.send("ticks", "still here")
        generation.end("ticks")
        with pytest.raises(BadRequest, match="ticks: the stream was ended, and takes no more"):
            generation.send("ticks", 2)
        generation.end("ticks")
        assert moves(generation) == ["0: still here"]


def test_a_stream_that_the_model_does_not_take_is_refused_before_anything_starts(engine: Engine) -> None:
    with pytest.raises(BadRequest, match="robot takes no stream 'frames' from its client; known: ticks"):
        engine.generate(streams={"frames": [1]})
    assert engine._calls == {}


def test_a_component_that_breaks_over_an_item_fails_its_request_and_whoever_writes(engine: Engine) -> None:
    with engine.stream() as generation, engine.stream() as other:
        generation.send("ticks", 1)
        generation.send("ticks", "fall over")
        with pytest.raises(ComponentError):
            list(generation)
        with pytest.raises(ComponentError):
            generation.send("ticks", 2)
        with pytest.raises(ComponentError):
            generation.end("ticks")
        other.send("ticks", 1)
        assert next(other).data == "0: 1"


def test_a_client_that_does_not_wait_fails_its_own_request(engine: Engine) -> None:
    with engine.stream() as generation, halted(engine, "reader", "host"):
        for first in range(9):
            engine._say("conductor", m.WriteStream("engine", generation.tag, "ticks", first, [1]))
        with pytest.raises(BadRequest, match="ticks: 4 items .* are unread, and 4 items") as failed:
            apart(lambda: list(generation)).result(SOON_S)
    assert failed.value.code == "stream_full"


def test_a_client_that_falls_silent_is_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(engine.model).spec.streams["ticks"], "idle_s", 0.3)
    with engine.stream() as generation:
        generation.send("ticks", 1)
        assert next(generation).data == "0: 1"
        told = "nothing was written to 'ticks' for 0.3 s, and all of the request waits for it"
        with pytest.raises(ClientIdle, match=told) as failed:
            apart(lambda: next(generation)).result(SOON_S)
        assert (failed.value.status, failed.value.code) == (408, "client_idle")
        with pytest.raises(ClientIdle):
            generation.send("ticks", 2)


def test_a_client_whose_item_is_worked_at_is_not_silent(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(engine.model).spec.streams["ticks"], "idle_s", 0.3)
    with engine.stream() as generation:
        with halted(engine, "pilot") as reached:
            generation.send("ticks", 1)
            assert reached()
            threading.Event().wait(1.0)
            assert generation.tag in engine._calls
        assert next(generation).data == "0: 1"


def test_an_engine_that_closes_or_breaks_tells_who_waits_to_write(installed: None) -> None:
    with Engine("robot", device="cpu") as engine:
        generation = engine.stream()
        with halted(engine, "reader", "host") as reached:
            writer = apart(lambda: [generation.send("ticks", tick) for tick in range(9)])
            assert reached()
            closer = apart(engine.close)
            with pytest.raises(Unavailable, match="the engine is closed"):
                writer.result(SOON_S)
        closer.result(SOON_S)
    with Engine("robot", device="cpu") as engine:
        generation = engine.stream()
        worker = engine.workers[0]
        assert worker.loop is not None
        generation.send("ticks", 1)
        assert next(generation).data == "0: 1"

        def die(*_: object) -> None:
            raise SystemExit(3)

        worker.loop.turn = die  # type: ignore[method-assign]
        writer = apart(lambda: [generation.send("ticks", tick) for tick in range(99)])
        with pytest.raises(Unavailable, match="the engine broke"):
            writer.result(SOON_S)


# --- hours --------------------------------------------------------------------------------------------


def test_nothing_grows_however_long_a_request_lives(engine: Engine) -> None:
    """Every Walk hands a tensor to the next that is large enough to be lent."""
    state = engine._threads._state  # type: ignore[union-attr]

    def drive(generation, ticks: range) -> None:
        for tick in ticks:
            generation.send("ticks", tick)
            assert next(generation).data == f"{tick}: {tick}"

    def lent() -> int:
        return sum(worker.carrier.held for worker in engine.workers)

    with engine.stream() as generation:
        drive(generation, range(300))
        tracemalloc.start(1)
        try:
            drive(generation, range(300, 600))
            before, _ = tracemalloc.get_traced_memory()
            drive(generation, range(600, 3000))
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert lent() <= 3
        lives = [one for worker in engine.workers if worker.loop for one in worker.loop.state._lives.values()]
        assert sum(len(live.exports) for live in lives) == lent()
        assert sum(len(live.runs) for live in lives) <= 2
        assert after - before < 2400 * 20, f"{after - before:,} bytes are left of 2,400 ticks"
        (life,) = state.lives
        assert life.client_ends["ticks"].written == 3000
        generation.end("ticks")
        assert moves(generation) == []


# --- its journal --------------------------------------------------------------------------------------


def test_what_the_client_wrote_is_in_the_journal_and_its_plan_agrees(installed: None, tmp_path: Path) -> None:
    with Engine("robot", device="cpu", journal=tmp_path) as engine:
        with engine.stream() as generation:
            for tick in [*TICKS, b"large" * 1000]:
                generation.send("ticks", tick)
                next(generation)
            generation.end("ticks")
            list(generation)
        model = engine.model
    (path,) = tmp_path.iterdir()
    recorded = read_journal(path)
    assert recorded.opened.writes == ("ticks",)
    wrote = [entry for entry in recorded.entries if isinstance(entry, e.ClientWrote)]
    assert [entry.first for entry in wrote] == list(range(7))
    assert [entry.items[0] for entry in wrote[:2]] == [1, "two"]
    assert b"largelarge" not in path.read_bytes()
    assert any(isinstance(entry, e.ClientFinished) and entry.total == 7 for entry in recorded.entries)
    result = replay(recorded, model)
    assert (result.parting, result.agreed, recorded.cut) == (None, len(recorded.entries), "")
