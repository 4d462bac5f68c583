"""A world model's candidates in the toy runtime: a Fan with a Loop inside."""

from collections.abc import Sequence
from typing import Any

import pytest

from walkserve_sdk import (
    Component,
    Fan,
    Image,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Request,
    Tensor,
    Track,
    WalkFailed,
    WalkGraph,
    track,
)
from walkserve_sdk.testing import FanItem, ToyCall, ToyRuntime


class VJepa(Model):
    predictor = Component("some.where:Predictor", kv=PagedKV())
    scorer = Component("some.where:Scorer")
    latents = Output(Tensor())
    energies = Output(Tensor())
    watch = WalkGraph(Node(predictor, "watch", takes="frames"))
    imagine = WalkGraph(
        Fan(
            Loop(
                Node(
                    predictor,
                    "step",
                    takes=("action", "pose"),
                    gives=("latent", "pose"),
                    to={"latent": latents},
                ),
                each={"action": "plan"},
                carry="pose",
                collect={"rollout": "latent"},
            ),
            over={"plan": "actions", "pose": "poses"},
        ),
        Node(scorer, "energy", takes=("rollout", "pose", "goal"), gives="energy", to=energies),
    )
    actions: Sequence[Sequence[int]] = ([1, 1], [2, 2, 2], [])
    poses: Sequence[int] = (0, 10, 20)

    @track
    def planning(self, request: Request, prepared: Outcome) -> Track:
        yield self.watch(frames=[1, 2, 3, 4])
        seen = yield self.imagine(actions=self.actions, poses=self.poses, goal=0)
        assert seen.turns == 5 - seen.ended_by.count("crash")
        yield self.watch(frames=[5])
        return None


class Predictor:
    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.keys: list[int] = []

    def watch(self, call: ToyCall) -> None:
        self.lengths.append(call.length)

    def step(self, call: ToyCall) -> dict[str, Any]:
        self.lengths.append(call.length)
        self.keys.append(call.key("noise"))
        pose = call["pose"] + call["action"]
        return {"latent": f"z{pose}", "pose": pose}


def test_every_row_takes_its_slice_and_gives_its_row() -> None:
    model = VJepa()
    result = ToyRuntime(model, {"predictor": Predictor()}).run(model.request())
    assert result.calls("scorer.energy") == [
        {"rollout": [["z1", "z2"], ["z12", "z14", "z16"], []], "pose": [2, 16, 20], "goal": 0}
    ]


def test_what_a_row_sends_out_carries_its_index() -> None:
    model = VJepa()
    result = ToyRuntime(model, {"predictor": Predictor()}).run(model.request())
    assert result.outputs["latents"] == [
        FanItem(0, "z1"),
        FanItem(0, "z2"),
        FanItem(1, "z12"),
        FanItem(1, "z14"),
        FanItem(1, "z16"),
    ]
    assert result.outputs["energies"] == ["scorer.energy(rollout, pose, goal)"]


def test_every_row_runs_on_a_fork_of_its_own_that_is_gone_afterwards() -> None:
    model, predictor = VJepa(), Predictor()
    result = ToyRuntime(model, {"predictor": predictor}).run(model.request())
    assert predictor.lengths == [0, 4, 5, 4, 5, 6, 4]
    assert result.branches["predictor", "main"].length == 5


def test_random_draws_differ_by_row_but_not_by_turn() -> None:
    model, predictor = VJepa(), Predictor()
    request = model.request(options={"seed": 1})
    ToyRuntime(model, {"predictor": predictor}).run(request)
    first = list(predictor.keys)
    assert first[0] == first[1] != first[2] == first[3] == first[4]
    predictor.keys.clear()
    ToyRuntime(model, {"predictor": predictor}).run(request)
    assert predictor.keys == first


def test_rows_may_stop_apart() -> None:
    class Crashing(Predictor):
        def step(self, call: ToyCall) -> dict[str, Any]:
            if call.row == 1 and call.turn == 2:
                call.stop("crash")
            return super().step(call)

    class Two(VJepa):
        actions = VJepa.actions[:2]
        poses = VJepa.poses[:2]

    model = Two()
    result = ToyRuntime(model, {"predictor": Crashing()}).run(model.request())
    assert result.calls("scorer.energy")[0]["rollout"] == [["z1", "z2"], ["z12", "z14"]]


def test_inputs_of_a_fan_go_in_step() -> None:
    class Uneven(VJepa):
        poses = VJepa.poses[:2]

    model = Uneven()
    with pytest.raises(WalkFailed, match="different lengths: 'actions' has 3, 'poses' has 2"):
        ToyRuntime(model, {"predictor": Predictor()}).run(model.request())


def test_a_fan_over_nothing_gives_empty_lists() -> None:
    class Idle(Model):
        part = Component("some.where:Part")
        seen = Output(Image())
        look = WalkGraph(
            Fan(Node(part, "look", takes="x", gives="y"), over={"x": "xs"}),
            Node(part, "sum", takes="y", gives="z", to=seen),
        )

        @track
        def looking(self, request: Request, prepared: Outcome) -> Track:
            yield self.look(xs=[])
            return None

    model = Idle()
    assert ToyRuntime(model).run(model.request()).calls("part.sum") == [{"y": []}]


def test_of_a_plan_that_is_only_a_word_there_are_as_many_slices_as_turns() -> None:
    class Symbolic(VJepa):
        @track
        def planning(self, request: Request, prepared: Outcome) -> Track:
            yield self.imagine(actions="actions", poses="poses", goal="goal")
            return None

    model = Symbolic()
    result = ToyRuntime(model, turns=2).run(model.request())
    assert result.did("planning") == [
        "imagine",
        "predictor.step[0]",
        "predictor.step[0]",
        "predictor.step[1]",
        "predictor.step[1]",
        "scorer.energy",
    ]
    assert result.calls("predictor.step[1]")[0] == {"action": "actions[1][0]", "pose": "poses[1]"}
