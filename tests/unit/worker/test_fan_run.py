"""A Fan in a Walk: which row runs when, what it takes and gives, and how it ends.

The host is a fake that starts as many rows as it is told to, and finishes offered calls in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkserve.graph.lower import lower_model
from walkserve.worker.fan_run import FanRow, FanRun
from walkserve.worker.walk_run import Call, WalkRun
from walkserve_sdk import (
    Component,
    Fan,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
    Request,
    Sequential,
    Stop,
    Text,
    Track,
    WalkFailed,
    WalkGraph,
    track,
)

Answer = Callable[..., Any]


class One(Model):
    lm = Component("some.where:LM", kv=PagedKV())
    tool = Component("some.where:Tool")
    words = Output(Text())
    notes = Output(Text())
    go = WalkGraph(Node(tool, "look", gives="seen", to={"seen": (words, notes)}))

    @track
    def going(self, request: Request, prepared: Outcome) -> Track:
        yield self.go()
        return None


lm, tool, words, notes = One.lm, One.tool, One.words, One.notes


class Host:
    """Runs what is offered, one call at a time, and writes down what happens."""

    def __init__(self, answers: dict[str, Answer], order: Callable[[int], int], most: int) -> None:
        self.answers = answers
        self.order = order
        self.most = most  # rows at once
        self.offered: list[Call] = []
        self.did: list[str] = []
        self.said: list[tuple[int | None, Any]] = []
        self.ended_rows: list[int] = []
        self.ended_fans = 0
        self.open = 0
        self.is_over = False

    def offer(self, call: Call) -> None:
        if not call.run.is_closed and not call.frame.is_dropped:
            self.offered.append(call)

    def emit(self, run: WalkRun, output: str, value: Any, index: int | None) -> None:
        self.said.append((index, value))

    def begin_fan(self, fan: FanRun) -> None:
        self.did.append(f"fan of {fan.total}")

    def start_rows(self, fan: FanRun) -> list[FanRow]:
        rows = []
        while fan.next < fan.total and self.open < self.most:
            rows.append(fan.start_row({}))
            self.open += 1
        return rows

    def end_row(self, row: FanRow) -> None:
        assert row.is_over and row.frame.is_dropped
        self.ended_rows.append(row.index)
        self.open -= 1

    def end_fan(self, fan: FanRun) -> None:
        self.ended_fans += 1

    def stack(self, values: list[Any]) -> Any:
        return values

    def ended(self, run: WalkRun) -> None:
        self.is_over = True

    def step(self) -> None:
        call = self.offered.pop(self.order(len(self.offered)))
        row = call.frame.row
        self.did.append(call.op.method if row is None else f"{call.op.method}[{row.index}]")
        if call.frame.is_dropped:
            self.did.append("in vain")
        gave, stop = self.answers[call.op.method](**call.values), None
        if isinstance(gave, tuple):
            gave, stop = gave
        elif isinstance(gave, Stop):
            gave, stop = {}, gave
        call.run.finish(call, gave, stop)


def begin(
    *parts: Any, answers: dict[str, Answer], order: Callable[[int], int], most: int = 2, **inputs: Any
) -> tuple[WalkRun, Host]:
    host = Host(answers, order, most)
    plan = lower_model(type("Toy", (One,), {"go": WalkGraph(*parts)}))["go"]
    run = WalkRun(host, None, plan, "going", 0, inputs)  # type: ignore[arg-type]  # the run only hands it on
    run.start()
    return run, host


def walk(
    *parts: Any,
    order: Callable[[int], int] = lambda n: 0,
    most: int = 2,
    answers: dict[str, Answer],
    **inputs: Any,
) -> tuple[WalkRun, Host]:
    run, host = begin(*parts, answers=answers, order=order, most=most, **inputs)
    for _ in range(1000):
        if run.is_closed:
            break
        host.step()
    assert host.is_over and not run.fans and not run.loops
    return run, host


def double(x: int) -> dict[str, int]:
    return {"y": 2 * x}


LOOK = Node(tool, "look", takes="x", gives="y", to=words)


def test_a_row_starts_when_one_before_it_has_ended() -> None:
    run, host = walk(Fan(LOOK, over={"x": "xs"}), answers={"look": double}, xs=[1, 2, 3])
    assert host.did == ["fan of 3", "look[0]", "look[1]", "look[2]"]
    assert host.said == [(0, 2), (1, 4), (2, 6)]
    assert (run.results(), run.ended_by, host.ended_fans) == ({"y": [2, 4, 6]}, "end", 1)


@given(picks=st.lists(st.integers(0, 99)), most=st.integers(1, 4))
def test_what_rows_give_is_in_the_order_of_their_slices_whoever_ends_first(
    picks: list[int], most: int
) -> None:
    drawn = iter(picks)
    run, host = walk(
        Fan(
            Loop(
                Node(tool, "add", takes=("x", "by"), gives="x", to=words),
                carry="x",
                each={"by": "steps"},
                collect={"all": "x"},
            ),
            over={"x": "xs", "steps": "plans"},
        ),
        answers={"add": lambda x, by: {"x": x + by}},
        order=lambda n: next(drawn, 0) % n,
        most=most,
        xs=[0, 10, 20],
        plans=[[1, 2], [], [3, 4, 5]],
    )
    assert run.results() == {"x": [3, 10, 32], "all": [[1, 3], [], [23, 27, 32]]}
    assert (run.ended_by, run.turns) == ("each", 5)
    assert [said for index, said in host.said if index == 2] == [23, 27, 32]


def test_a_fan_over_nothing_gives_empty_lists() -> None:
    after = Node(tool, "after", takes="y", gives="z")
    run, host = walk(
        Fan(LOOK, over={"x": "xs"}), after, answers={"look": double, "after": lambda y: {"z": len(y)}}, xs=[]
    )
    assert host.did == ["fan of 0", "after"]
    assert run.results() == {"y": [], "z": 0}


def test_a_stop_outside_a_loop_ends_its_row_and_no_other() -> None:
    part = Sequential(LOOK, Node(tool, "more", takes="y", gives="z"))
    run, host = walk(
        Fan(part, over={"x": "xs"}),
        answers={
            "look": lambda x: Stop("enough") if x == 2 else {"y": x},
            "more": lambda y: {"z": -y},
        },
        xs=[1, 2, 3],
    )
    assert run.results() == {"y": [1, None, 3], "z": [-1, None, -3]}
    assert (run.ended_by, host.ended_rows) == ("enough", [1, 0, 2])


def test_a_stop_that_keeps_lets_the_row_come_to_its_end() -> None:
    part = Sequential(LOOK, Node(tool, "more", takes="y", gives="z"))
    run, _ = walk(
        Fan(part, over={"x": "xs"}),
        answers={"look": lambda x: ({"y": x}, Stop("enough", keep=True)), "more": lambda y: {"z": -y}},
        xs=[1],
    )
    assert (run.results(), run.ended_by) == ({"y": [1], "z": [-1]}, "enough")


def test_what_still_runs_of_a_row_that_stopped_counts_no_more() -> None:
    part = Parallel(LOOK, Node(tool, "other", takes="x", gives="z", to=notes))
    run, host = begin(
        Fan(part, over={"x": "xs"}),
        answers={"look": lambda x: Stop("enough"), "other": lambda x: {"z": x}},
        order=lambda n: 0,
        xs=[1],
    )
    host.step()
    assert host.is_over and run.results() == {"y": [None], "z": [None]}
    host.step()
    assert host.did[-2:] == ["other[0]", "in vain"] and host.said == []


def test_a_fan_in_a_loop_is_a_new_one_every_turn() -> None:
    run, host = walk(
        Loop(
            Fan(LOOK, over={"x": "xs"}),
            Node(tool, "sum", takes="y", gives="xs"),
            carry="xs",
            times=2,
        ),
        answers={"look": double, "sum": lambda y: {"xs": [*y, sum(y)]}},
        xs=[1, 2],
    )
    assert run.results() == {"xs": [4, 8, 12, 24]}
    assert host.did.count("fan of 2") == host.did.count("fan of 3") == 1


def test_a_node_that_is_skipped_in_one_row_gives_nothing_there() -> None:
    run, _ = walk(
        Fan(Node(tool, "look", takes="x", gives="y", when="wanted"), over={"x": "xs", "wanted": "which"}),
        answers={"look": double},
        xs=[1, 2, 3],
        which=[True, False, True],
    )
    assert run.results() == {"y": [2, None, 6]}


def test_rows_of_a_turn_that_ran_ahead_of_one_that_stops_are_forgotten() -> None:
    """The node that trails says in turn 0 that it was the last, when the rows of turn 1 are on their way."""
    run, host = begin(
        Loop(
            Fan(Node(lm, "next", takes="x", gives="y", to=words), over={"x": "xs"}),
            Node(tool, "trail", takes="y", gives="z", to=notes),
            times=3,
        ),
        answers={"next": lambda x: {"y": x}, "trail": lambda y: ({"z": "all"}, Stop("done", keep=True))},
        order=lambda n: 0,
        xs=[5, 6],
    )
    host.step()
    host.step()  # turn 0's rows; now its trailing node and turn 1's rows are ready
    assert [call.op.method for call in host.offered] == ["next", "next", "trail"] or [
        call.op.method for call in host.offered
    ] == ["trail", "next", "next"]
    host.order = lambda n: next(i for i, call in enumerate(host.offered) if call.op.method == "trail")
    host.step()
    assert host.is_over and run.turns == 1 and run.ended_by == "done"
    assert sorted(host.ended_rows) == [0, 0, 1, 1] and host.ended_fans == 2
    assert not run.fans


def test_a_walk_that_stops_elsewhere_ends_its_rows() -> None:
    run, host = begin(
        Parallel(
            Fan(LOOK, over={"x": "xs"}),
            Node(tool, "other", gives="z"),
        ),
        answers={"look": double, "other": lambda: Stop("over")},
        order=lambda n: n - 1,
        xs=[1, 2, 3],
    )
    host.order = lambda n: next(i for i, call in enumerate(host.offered) if call.op.method == "other")
    host.step()
    assert (run.is_closed, run.ended_by, host.ended_rows, host.ended_fans) == (True, "over", [0, 1], 1)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"xs": [1, 2], "ys": [1]}, "Toy.go: a Fan over inputs of different lengths: 'xs' has 2, 'ys' has 1"),
        ({"xs": 3, "ys": [1]}, "Toy.go: a Fan goes over 'xs', which has no slices but is one int"),
        ({"xs": [1], "ys": None}, "Toy.go: a Fan goes over 'ys', which has no slices but is one NoneType"),
    ],
)
def test_what_has_not_as_many_slices_fails_its_walk(inputs: dict[str, Any], told: str) -> None:
    part = Fan(Node(tool, "look", takes=("x", "y"), gives="z"), over={"x": "xs", "y": "ys"})
    with pytest.raises(WalkFailed) as failed:
        begin(part, answers={}, order=lambda n: 0, **inputs)
    assert str(failed.value) == told
