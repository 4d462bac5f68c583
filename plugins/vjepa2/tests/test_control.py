"""A control loop through an engine: every plan is what a request alone would get, and nothing grows."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import dot_world as world
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

from walk_plugin_vjepa2 import VJepa2AC
from walkserve import Engine
from walkserve_sdk import BadRequest, Part
from walkserve_sdk.errors import ClientIdle, ContextLengthExceeded

CLOSE = {"atol": 1e-5, "rtol": 0}
SEARCH: dict[str, Any] = {"horizon": 1, "samples": 16, "iterations": 3, "topk": 4, "maxnorm": 0.075}
SMALL: dict[str, Any] = {"samples": 2, "iterations": 1, "topk": 2}
Tick = dict[str, Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("vjepa2-ac:toy", device="cpu", dtype="float32") as engine:
        yield engine


@pytest.fixture(scope="module")
def way() -> tuple[list[world.State], list[world.Action]]:
    """Where a robot was, and what it did in between."""
    random = np.random.default_rng(5)
    states, actions = [world.some_state(random)], list[world.Action]()
    for _ in range(7):
        actions.append(world.some_action(random))
        states.append(world.step(states[-1], actions[-1]))
    return states, actions


def goal(state: world.State) -> Part:
    return Part("tensor", save({"goal_frame": world.render(state)}))


def tick(state: world.State, **more: Any) -> Tick:
    return {"frame": world.render(state), "state": state.astype(np.float32), **more}


@contextmanager
def looping(engine: Engine, wanted: world.State, **options: Any) -> Iterator[Any]:
    """A control loop whose client ends it; what it does then is nothing."""
    asked = {"outputs": ["plans", "refused"], "seed": 40} | SEARCH | options
    with engine.stream(parts=[goal(wanted)], task="control", **asked) as loop:
        yield loop
        loop.end("ticks")
        assert list(loop) == []
        assert loop.ended.finish_reason == "stop"


def told(loop: Any, tick: Tick) -> Any:
    loop.send("ticks", tick)
    return next(loop).data


def alone(
    engine: Engine, states: list[world.State], actions: list[np.ndarray], wanted: world.State, seed: int
):
    """The plan of a request that has seen these frames."""
    tensors = {
        "frames": np.stack([world.render(state) for state in states]),
        "states": np.stack(states).astype(np.float32),
        "past_actions": np.array(actions, np.float32).reshape(-1, 7),
    }
    parts = [Part("tensor", save(tensors)), goal(wanted)]
    return engine.generate(parts=parts, task="plan", seed=seed, outputs=["plan"], **SEARCH).plan


@pytest.mark.parametrize("most", [1, 3])
def test_plans_are_those_of_single_requests_with_the_same_frames_and_the_seed_of_the_tick(engine, way, most):
    states, _ = way
    with looping(engine, states[-1], context_frames=most) as loop:
        for number, state in enumerate(states[:6]):
            plan = told(loop, tick(state))
            first = max(0, number + 1 - most)
            seen = states[first : number + 1]
            single = alone(engine, seen, list(np.diff(seen, axis=0)), states[-1], 40 + number)
            np.testing.assert_allclose(plan.actions, single.actions, **CLOSE)
            assert plan.energy == pytest.approx(single.energy, abs=1e-5)
            np.testing.assert_allclose(plan.best_energies, single.best_energies, **CLOSE)
            assert (plan.tick, plan.seed, plan.context_frames) == (number, 40 + number, len(seen))
            assert plan.restarted is (most == 3 and number >= 3)


def test_what_a_client_says_was_executed_counts_before_the_difference_of_the_states(engine, way):
    states, _ = way
    done = np.array([0.07, 0, -0.07, 0, 0, 0, 0.5], np.float32)
    with looping(engine, states[-1], context_frames=2) as loop:
        told(
            loop, tick(states[0], executed=done)
        )  # before the first frame there is nothing that it could mean
        plan = told(loop, tick(states[1], executed=done))
    single = alone(engine, states[:2], [done], states[-1], 41)
    other = alone(engine, states[:2], [states[1] - states[0]], states[-1], 41)
    np.testing.assert_allclose(plan.actions, single.actions, **CLOSE)
    assert plan.energy == pytest.approx(single.energy, abs=1e-5) != pytest.approx(other.energy, abs=1e-5)


def test_a_new_goal_is_followed_from_its_tick_on_and_frames_may_be_files_or_latents(engine, way):
    states, _ = way
    picture = BytesIO()
    Image.fromarray(world.render(states[1])).save(picture, "PNG")
    parts = [Part("tensor", save({"frames": world.render(states[2])[None]}))]
    latents = engine.generate(parts=parts, task="encode", outputs=["latents"]).latents[0]
    with looping(engine, states[-1]) as loop:
        first = told(loop, tick(states[0]))
        file = np.frombuffer(picture.getvalue(), np.uint8)
        second = told(loop, {"frame": file, "state": list(states[1]), "goal": world.render(states[3])})
        third = told(loop, {"latents": latents, "state": states[2]})
    for number, (plan, wanted) in enumerate([(first, states[-1]), (second, states[3]), (third, states[3])]):
        single = alone(engine, [states[number]], [], wanted, 40 + number)
        np.testing.assert_allclose(plan.actions, single.actions, **CLOSE)


WRONG = [
    ("left", None, "a tick is a record"),
    ({"state": [0.0] * 7}, "frame", "needs what is seen now"),
    ({"frame": np.zeros((4, 4), np.uint8), "state": [0.0] * 7}, "frame", "[height, width, 3]"),
    ({"frame": np.zeros((4, 4, 3), np.float32), "state": [0.0] * 7}, "frame", "not float32"),
    ({"frame": np.frombuffer(b"\x89PNG\r\n\x1a\n broken", np.uint8), "state": [0.0] * 7}, "frame", "broken"),
    ({"frame": np.zeros((8, 8, 3), np.uint8)}, "state", "needs 'state'"),
    ({"frame": np.zeros((8, 8, 3), np.uint8), "state": [0.0] * 6}, "state", "of shape [6]"),
    ({"frame": np.zeros((8, 8, 3), np.uint8), "state": [float("nan")] * 7}, "state", "not finite"),
    ({"frame": np.zeros((8, 8, 3), np.uint8), "state": "here"}, "state", "not 'here'"),
    (
        {"frame": np.zeros((8, 8, 3), np.uint8), "state": [0.0] * 7, "stat": 1},
        "stat",
        "did you mean 'state'?",
    ),
    (
        {"frame": np.zeros((8, 8, 3), np.uint8), "state": [0.0] * 7, "executed": [1.0]},
        "executed",
        "of shape [1]",
    ),
]


@pytest.mark.parametrize(("wrong", "param", "said"), WRONG)
def test_a_tick_that_cannot_be_read_is_refused_and_the_loop_goes_on(engine, way, wrong, param, said):
    states, _ = way
    done = np.full(7, 0.01, np.float32)
    with looping(engine, states[-1], context_frames=2) as loop:
        assert told(loop, tick(states[0])).tick == 0
        loop.send("ticks", wrong)
        event = next(loop)
        assert (event.output, event.data.tick, event.data.param) == ("refused", 1, param or "")
        assert said in event.data.message
        plan = told(loop, tick(states[1], executed=done))  # since a tick that nobody has seen
    single = alone(engine, states[:2], [states[1] - states[0]], states[-1], 42)
    assert (plan.tick, plan.context_frames) == (2, 2)
    np.testing.assert_allclose(plan.actions, single.actions, **CLOSE)


def test_each_iteration_is_told_with_its_tick(engine, way):
    states, _ = way
    with looping(engine, states[-1], outputs=["plans", "progress"]) as loop:
        for number in range(2):
            loop.send("ticks", tick(states[number]))
            reports = [next(loop) for _ in range(3)]
            assert [(one.output, one.data.tick, one.data.iteration) for one in reports] == [
                ("progress", number, iteration) for iteration in range(3)
            ]
            assert next(loop).data.best_energies.tolist() == [
                pytest.approx(one.data.best_energy) for one in reports
            ]


def test_ticks_that_come_at_once_are_planned_for_one_after_the_other(engine, way):
    states, _ = way
    ticks = [tick(state) for state in states[:5]]
    found = engine.generate(
        parts=[goal(states[-1])], streams={"ticks": ticks}, task="control", outputs=["plans"], **SEARCH
    )
    assert [plan.tick for plan in found.plans] == [0, 1, 2, 3, 4]
    nothing = engine.generate(parts=[goal(states[-1])], task="control", **SEARCH)
    assert (nothing.plans, nothing.refused) == ([], [])


def test_loops_and_single_requests_at_once_do_not_disturb_each_other(engine, way):
    states, _ = way
    with looping(engine, states[-1], context_frames=3) as one, looping(engine, states[-2], seed=7) as other:
        for number in range(4):
            one.send("ticks", tick(states[number]))
            other.send("ticks", tick(states[number + 1]))
            plan, beside = next(one).data, next(other).data
            seen = states[max(0, number - 2) : number + 1]
            single = alone(engine, seen, list(np.diff(seen, axis=0)), states[-1], 40 + number)
            np.testing.assert_allclose(plan.actions, single.actions, **CLOSE)
            single = alone(engine, states[number + 1 : number + 2], [], states[-2], 7 + number)
            np.testing.assert_allclose(beside.actions, single.actions, **CLOSE)


def test_what_can_never_be_is_refused_before_anything_is_computed(engine, way):
    states, _ = way

    def ask(parts: list[Part], **options: Any) -> None:
        engine.generate(parts=parts, task="control", **(SEARCH | options))

    with pytest.raises(
        ContextLengthExceeded, match="4 observed frames and a horizon of 1 are 5 frames"
    ) as told:
        ask([goal(states[0])], context_frames=4)
    assert told.value.param == "context_frames"
    with pytest.raises(BadRequest, match="a control needs a goal"):
        ask([])
    with pytest.raises(BadRequest, match="there is no tensor 'frames'"):
        ask([goal(states[0]), Part("tensor", save({"frames": world.render(states[0])[None]}))])
    with pytest.raises(BadRequest, match="context_frames is an option of the task control"):
        engine.generate(parts=[goal(states[0])], task="plan", context_frames=2)


def test_a_client_that_falls_silent_is_told(engine, way, monkeypatch):
    states, _ = way
    monkeypatch.setattr(VJepa2AC.ticks, "idle_s", 0.3)
    with engine.stream(parts=[goal(states[-1])], task="control", outputs=["plans"], **SEARCH) as loop:
        loop.send("ticks", tick(states[0]))
        assert next(loop).data.tick == 0
        with pytest.raises(ClientIdle, match="ticks"):
            next(loop)


def test_nothing_grows_however_long_a_loop_lives(engine, way):
    """Pages, lent tensors and memory after hundreds of ticks are what they were after a few."""
    states, _ = way
    states_of = [worker.loop.state for worker in engine.workers if worker.loop is not None]
    pools = [cache.pool for state in states_of for cache in state.caches.values()]
    assert not any(pool.held for pool in pools)

    def drive(loop: Any, ticks: range) -> tuple[int, int]:
        """The most pages and lent tensors that there were between the ticks."""
        pages = lent = 0
        for number in ticks:
            assert told(loop, tick(states[number % 7])).tick == number
            pages = max(pages, sum(pool.held for pool in pools))
            lent = max(lent, sum(worker.carrier.held for worker in engine.workers))
        return pages, lent

    with looping(engine, states[-1], context_frames=3, **SMALL) as loop:
        few = drive(loop, range(20))
        tracemalloc.start(1)
        try:
            drive(loop, range(20, 60))
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            many = drive(loop, range(60, 360))
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert many[0] == few[0]
        assert many[1] <= few[1] + 2  # a tick's tensors may be given back while the next one's are lent
        assert after - before < 300 * 400, f"{after - before:,} bytes are left of 300 ticks"
    deadline = time.monotonic() + 10  # its end reaches the workers a moment after it was told
    while any(pool.held for pool in pools):
        assert time.monotonic() < deadline
        time.sleep(0.01)
