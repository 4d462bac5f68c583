"""walkserve.Engine: whatever ends a request or the engine, whoever waits is told and nothing is left."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from walkserve import Engine
from walkserve import messages as m
from walkserve.api import OutputEvent
from walkserve.api import engine as engine_module
from walkserve.api.generation import Generation, raised
from walkserve.conductor.state import ConductorState
from walkserve.worker.assemble import Worker
from walkserve_sdk import LoadError, Part, WalkserveError
from walkserve_sdk.errors import BadRequest, Cancelled, DeadlineExceeded, Unavailable

SOON_S = 20
CALL = {"text": "call 5 5 1", "temperature": 0.0, "seed": 3}


def new_engine() -> Engine:
    return Engine("orpheus:toy", device="cpu", dtype="float32", deterministic=True)


def lend_everything(engine: Engine) -> None:
    """Small tensors too, so that one nobody gives back is seen."""
    for worker in engine.workers:
        worker.carrier._inline_limit = 0  # type: ignore[attr-defined]


def eventually(question: Callable[[], bool]) -> bool:
    until = time.monotonic() + SOON_S
    while not question() and time.monotonic() < until:
        time.sleep(0.01)
    return question()


def held(engine: Engine) -> list[int]:
    return [worker.carrier.held for worker in engine.workers]


def is_idle(engine: Engine) -> bool:
    loops = [worker.loop for worker in engine.workers if worker.loop is not None]
    return not engine._calls and not any(held(engine)) and not any(one.state.open_requests for one in loops)


def threads_left() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("walkserve-")]


def apart(ask: Callable[[], object]) -> Future[object]:
    """In a thread of its own; if it hangs, its result is what times out, not the test run."""
    answer: Future[object] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer


@contextmanager
def halted(engine: Engine, component: str = "llama", rank: str = "rank0") -> Iterator[Callable[[], bool]]:
    """Within, a component computes nothing, the language model; yields what waits until it was asked to."""
    worker = next(one for one in engine.workers if one.name.endswith(rank))
    assert worker.loop is not None
    runner, submit = worker.loop.engine, worker.loop.engine.submit
    reached, gate = threading.Event(), threading.Event()

    def gated(key, rows):
        if key[0] == component:
            reached.set()
            gate.wait(SOON_S)
        return submit(key, rows)

    runner.submit = gated  # type: ignore[method-assign]
    try:
        yield lambda: reached.wait(SOON_S)
    finally:
        gate.set()
        runner.submit = submit  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def _shared() -> Iterator[Engine]:
    with new_engine() as engine:
        lend_everything(engine)
        yield engine
    assert threads_left() == []


@pytest.fixture
def shared(_shared: Engine) -> Iterator[Engine]:
    """One for all that leave it as it was, which is asked after each."""
    yield _shared
    assert eventually(lambda: is_idle(_shared))


@pytest.fixture
def own() -> Iterator[Engine]:
    """One that is not opened, and may be broken."""
    before = threads_left()
    engine = new_engine()
    yield engine
    engine.close()
    assert (engine._calls, engine.workers) == ({}, [])
    assert threads_left() == before


# --- requests -----------------------------------------------------------------------------------------


def test_the_pieces_of_a_stream_are_the_answer(shared):
    whole = shared.generate(**CALL)
    generation = shared.stream(**CALL, outputs=("speech",))
    events = list(generation)
    assert {type(event) for event in events} == {OutputEvent}
    assert {event.output for event in events} == {"speech"}
    assert np.array_equal(np.concatenate([event.data.samples for event in events]), whole.speech.samples)
    assert whole.speech.rate == 24_000
    assert generation.ended.finish_reason == whole.finish_reason == "stop"
    assert generation.ended.usage == whole.usage


def test_a_result_can_be_copied_and_names_what_it_lacks(shared):
    result = shared.generate(**CALL)
    for again in (copy.copy(result), pickle.loads(pickle.dumps(result))):
        assert np.array_equal(again.speech.samples, result.speech.samples)
    with pytest.raises(AttributeError, match="the request had no output 'image'; it had \\['speech'\\]"):
        _ = result.image


def test_threads_may_share_an_engine(shared):
    texts = ["call 5 5 1", "dial 7 2", "please call nine", "call 0 0 4"]
    alone = [shared.generate(**CALL | {"text": text}).speech.samples for text in texts]
    with ThreadPoolExecutor(len(texts)) as pool:
        answers = [pool.submit(shared.generate, **CALL | {"text": text}) for text in texts * 3]
        for answer, expected in zip(answers, alone * 3, strict=True):
            assert np.array_equal(answer.result(SOON_S).speech.samples, expected)


def test_an_end_stays_an_end_however_often_it_is_asked_for(shared):
    generation = shared.stream(**CALL)
    assert list(generation)
    assert list(generation) == []
    failing = shared.stream(text="x" * 40_000)
    for _ in range(2):
        with pytest.raises(BadRequest):
            next(failing)


def test_a_request_that_fails_leaves_nothing(shared):
    for _ in range(3):
        with pytest.raises(BadRequest, match="shorten the input"):
            shared.generate(text="x" * 40_000)
    assert shared._calls == {}


def test_a_request_that_is_closed_early_leaves_nothing(shared):
    with shared.stream(**CALL) as generation:
        next(generation)
        with halted(shared) as reached:
            assert reached()
            generation.close()
            assert shared._calls == {}
            with pytest.raises(Cancelled):
                list(generation)


def test_who_reads_is_told_when_another_thread_closes_the_generation(shared):
    with halted(shared) as reached:
        generation = shared.stream(**CALL)
        readers = [apart(lambda: list(generation)) for _ in range(2)]
        assert reached()
        generation.close()
        for reader in readers:
            with pytest.raises(Cancelled, match="the request was cancelled"):
                reader.result(SOON_S)


def test_a_generation_that_nobody_holds_any_more_is_cancelled(shared):
    generation = shared.stream(**CALL)
    next(generation)
    with halted(shared) as reached:
        assert reached()
        gc.disable()  # it takes no cycle to be found
        try:
            del generation
            assert shared._calls == {}
        finally:
            gc.enable()


def drop(generation: Generation) -> None:
    generation.close()


def expire(generation: Generation) -> None:
    with pytest.raises(DeadlineExceeded, match="the request did not end within 0.2 s"):
        apart(lambda: list(generation)).result(SOON_S)


@pytest.mark.parametrize("end", [drop, expire])
def test_a_request_may_be_dropped_or_expire_while_it_is_prepared(shared, end):
    with halted(shared, "tokenizer", "host") as reached:
        generation = shared.stream(**CALL, timeout_s=0.2)
        assert reached()
        end(generation)
        assert shared._calls == {}


@pytest.mark.parametrize("end", [drop, expire])
def test_a_request_may_be_dropped_or_expire_while_it_runs(shared, end):
    with halted(shared) as reached:
        generation = shared.stream(**CALL, timeout_s=0.2)
        assert reached()
        end(generation)
        assert shared._calls == {}


@pytest.mark.parametrize("end", [drop, expire])
def test_a_request_may_be_dropped_or_expire_while_it_waits_for_room(end):
    with Engine("orpheus:toy", device="cpu", dtype="float32", cache_tokens=128) as engine:
        with halted(engine) as reached:
            first = engine.stream(**CALL)
            assert reached()
            end(engine.stream(**CALL, timeout_s=0.2))
            third = engine.stream(**CALL, timeout_s=SOON_S)
        spoken = [sum(len(event.data.samples) for event in generation) for generation in (first, third)]
        assert spoken[0] == spoken[1] > 0
        assert eventually(lambda: is_idle(engine))


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "5", True])
def test_a_deadline_that_is_no_time_is_refused_before_anything_starts(shared, timeout_s):
    with pytest.raises(BadRequest, match="timeout_s: it is a number of seconds above 0") as refused:
        shared.stream(**CALL, timeout_s=timeout_s)
    assert refused.value.param == "timeout_s"


def test_what_comes_after_the_end_is_given_back(shared):
    worker = shared.workers[0]
    late = worker.carrier.put(torch.ones(5))
    assert isinstance(late, m.TensorRef) and worker.carrier.held == 1
    shared._hear(m.Emitted("speech", [-1], [late]))
    assert eventually(lambda: worker.carrier.held == 0)


def test_what_nobody_reads_is_not_held(shared):
    generation = shared.stream(**CALL)
    assert eventually(lambda: not shared._calls)  # it has ended, and not a piece was read
    assert eventually(lambda: not any(held(shared)))
    assert sum(len(event.data.samples) for event in generation) == 20_480


def test_an_item_that_cannot_be_read_is_its_requests_fault(shared, monkeypatch):
    def unreadable(*_: object) -> None:
        raise TypeError("no such dtype")

    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "read_item", unreadable)
        with pytest.raises(WalkserveError, match="an item of 'speech' cannot be read"):
            shared.generate(**CALL)
    assert shared.generate(**CALL).finish_reason == "stop"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, BadRequest), (404, BadRequest), (499, Cancelled), (500, WalkserveError), (503, Unavailable)],
)
def test_a_fault_is_raised_as_the_error_it_was(status, kind):
    error = raised(m.Fault("no", status, "a type", "a code", "a param"))
    assert type(error) is kind
    said = (str(error), error.status, error.type, error.code, error.param)
    assert said == ("no", status, "a type", "a code", "a param")


# --- the engine's life --------------------------------------------------------------------------------


def test_an_engine_that_is_not_open_says_so(own):
    with pytest.raises(Unavailable, match="the engine is closed; use it within `with engine:`"):
        own.generate(**CALL)
    own.close()
    with own:
        assert own.generate(**CALL).finish_reason == "stop"
    own.close()
    with pytest.raises(Unavailable, match="the engine is closed"):
        own.stream(**CALL)


def test_an_engine_may_be_opened_again_but_not_twice_at_once(own):
    before = threads_left()
    with own:
        first = own.generate(**CALL)
        with pytest.raises(Unavailable, match="open already"):
            own.__enter__()
        assert own.generate(**CALL).usage == first.usage
    assert threads_left() == before
    with own:
        assert np.array_equal(own.generate(**CALL).speech.samples, first.speech.samples)


def test_who_reads_is_told_when_the_engine_closes(own):
    with own, halted(own) as reached:
        generation = own.stream(**CALL)
        reader = apart(lambda: list(generation))
        whole = apart(lambda: own.generate(**CALL))
        assert reached()
        assert eventually(lambda: len(own._calls) == 2)
        closers = [apart(own.close) for _ in range(2)]
        for waits in (reader, whole):
            with pytest.raises(Unavailable, match="the engine is closed"):
                waits.result(SOON_S)
        with pytest.raises(Unavailable, match="the engine is closed"):
            next(generation)
    for closer in closers:
        closer.result(SOON_S)


def test_what_is_closed_holds_nothing(own):
    with own:
        lend_everything(own)
        workers = own.workers
        unread = own.stream(**CALL)
    assert [worker.carrier.held for worker in workers] == [0] * len(workers)
    del unread


def test_a_forked_process_is_refused_and_does_no_harm(shared):
    running = shared.stream(**CALL)
    child = os.fork()
    if child == 0:
        signal.alarm(SOON_S)
        told = 0
        for ask in (lambda: shared.generate(**CALL), lambda: next(running), shared.__enter__):
            try:
                ask()
            except Unavailable as error:
                told += "belongs to the process that opened it" in str(error)
        running.close()
        shared.close()
        os._exit(told)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert list(running)
    assert shared.generate(**CALL).finish_reason == "stop"


# --- what breaks --------------------------------------------------------------------------------------


def leave(*_: object) -> None:
    raise SystemExit(3)


def break_worker(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    worker = engine.workers[-1]
    assert worker.loop is not None
    monkeypatch.setattr(worker.loop, "turn", leave)
    return worker.name


def break_conductor(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ConductorState, "hear", leave)
    return "conductor"


def break_listener(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    assert engine._threads is not None
    monkeypatch.setattr(engine._threads, "_hear", leave)
    return "listener"


@pytest.mark.parametrize("break_one", [break_worker, break_conductor, break_listener])
def test_when_a_thread_dies_everybody_is_told(own, monkeypatch, break_one):
    with own:
        with halted(own) as reached:
            waits = apart(lambda: own.generate(**CALL))
            assert reached()
            name = break_one(own, monkeypatch)
            others = apart(lambda: own.generate(**CALL))
        for each in (waits, others):
            with pytest.raises(Unavailable, match=f"the engine broke: its {name} died of SystemExit: 3"):
                each.result(SOON_S)
        with pytest.raises(Unavailable, match="the engine broke"):
            own.generate(**CALL)
        monkeypatch.undo()
    with own:
        assert own.generate(**CALL).finish_reason == "stop"


def test_a_component_that_leaves_does_not_leave_its_caller_waiting(own, monkeypatch):
    with own:
        worker = next(one for one in own.workers if one.name.endswith("rank0"))
        assert worker.loop is not None
        monkeypatch.setattr(worker.loop.engine, "submit", leave)
        with pytest.raises(WalkserveError):
            apart(lambda: own.generate(**CALL)).result(SOON_S)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LoadError("no such weights"), "cannot start: no such weights"),
        (KeyError("oops"), "cannot start: KeyError: 'oops'"),
        (SystemExit(3), "cannot start: SystemExit: 3"),
    ],
)
def test_an_engine_that_cannot_load_says_why_and_leaves_no_thread(own, monkeypatch, error, told):
    def broken(self: Worker) -> None:
        raise error

    before = threads_left()
    monkeypatch.setattr(Worker, "load", broken)
    with pytest.raises(LoadError, match=told):
        apart(own.__enter__).result(SOON_S)
    assert threads_left() == before
    with pytest.raises(Unavailable, match="the engine is closed"):
        own.generate(**CALL)
    monkeypatch.undo()
    with own:
        assert own.generate(**CALL).finish_reason == "stop"


def test_a_warm_up_that_raises_ends_the_opening(own, monkeypatch):
    def broken(self: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(type(own.model), "warm_up", broken)
    with pytest.raises(LoadError):
        apart(own.__enter__).result(SOON_S)


def test_an_interrupted_opening_leaves_no_thread(own, monkeypatch):
    before, load = threads_left(), Worker.load

    def interrupted(self: Worker) -> object:
        if self.name.endswith("rank0"):
            os.kill(os.getpid(), signal.SIGINT)
        return load(self)

    monkeypatch.setattr(Worker, "load", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own.__enter__()
    assert threads_left() == before
    assert own.workers == []


def test_an_interrupted_request_is_cancelled(shared):
    def interrupt(reached: Callable[[], bool]) -> None:
        reached()
        os.kill(os.getpid(), signal.SIGINT)

    with halted(shared) as reached:
        interrupting = apart(lambda: interrupt(reached))
        with pytest.raises(KeyboardInterrupt):
            shared.generate(**CALL)
        interrupting.result(SOON_S)
        assert shared._calls == {}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nonsense": 1}, "there is no setting 'nonsense'"),
        ({"offlin": True}, "did you mean 'offline'"),
        ({"cache_tokens": "x"}, "'cache_tokens' is a int, not 'x'"),
        ({"overcommit": "x"}, "'overcommit' is a int or float, not 'x'"),
        ({"overcommit": 0.5}, "an overcommit of 0.5 is nothing to admit by; give a number, at least 1"),
        ({"overcommit": float("nan")}, "an overcommit of nan is nothing to admit by"),
        ({"deterministic": "yes"}, "'deterministic' is a bool, not 'yes'"),
        ({"placement": 5}, "'placement' is a str or Path, not 5"),
    ],
)
def test_a_setting_that_nobody_knows_is_not_swallowed(settings, said):
    with pytest.raises(WalkserveError, match=said):
        Engine("orpheus:toy", **settings)


def test_the_models_gate_refuses_what_no_part_can_be_and_takes_one_output_by_name():
    model = new_engine().model
    with pytest.raises(BadRequest, match="text is a str, not 5"):
        model.request(parts=(Part("text", 5),))  # type: ignore[arg-type]
    assert model.request(outputs="speech", parts=(Part("text", "hi"),)).outputs == ("speech",)
