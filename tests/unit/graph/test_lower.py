"""Lowering: names become slots, order becomes counters, and who trails is found once."""

from typing import Any

import pytest

from walkserve.graph.lower import lower_model
from walkserve.graph.plan import Block, FanOp, LoopOp, Op, Plan
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
    Stream,
    Text,
    Track,
    WalkGraph,
    track,
)


class One(Model):
    lm = Component("some.where:LM", kv=PagedKV(branches=("other",)))
    tool = Component("some.where:Tool")
    detok = Component("some.where:Detok", state=True)
    words = Output(Text())
    go = WalkGraph(Node(tool, "look", gives="seen", to=words))

    @track
    def going(self, request: Request, prepared: Outcome) -> Track:
        yield self.go()
        return None


lm, tool, detok, words = One.lm, One.tool, One.detok, One.words


def plan_of(*parts: Any) -> Plan:
    return lower_model(type("Toy", (One,), {"go": WalkGraph(*parts)}))["go"]


def the_loop(plan: Plan) -> LoopOp:
    (loop,) = (child for child in plan.top.children if isinstance(child, LoopOp))
    return loop


def method_of(block: Block, index: int) -> str:
    child = block.children[index]
    return child.method if isinstance(child, Op) else "loop"


def trailing(block: Block) -> list[str]:
    return [method_of(block, child.index) for child in block.children if not child.critical]


def before(block: Block, method: str) -> set[str]:
    """Methods whose completion ``method`` waits for."""
    (index,) = (i for i in range(len(block.children)) if method_of(block, i) == method)
    return {method_of(block, child.index) for child in block.children if index in child.after}


def test_every_meaning_of_a_name_has_a_slot_of_its_own() -> None:
    plan = plan_of(Node(tool, "once", takes="x", gives="x"), Node(tool, "twice", takes="x", gives="x"))
    once, twice = plan.ops
    assert plan.inputs == (("x", 0),)
    assert (once.takes, once.gives) == ((("x", 0),), (("x", 1),))
    assert (twice.takes, twice.gives) == ((("x", 1),), (("x", 2),))
    assert plan.results == (("x", 2),)


def test_what_goes_in_and_is_given_by_nobody_is_no_result() -> None:
    plan = plan_of(Node(tool, "look", takes=("a", "b"), gives="c"))
    assert plan.inputs == (("a", 0), ("b", 1))
    assert plan.results == (("c", 2),)


def test_a_graph_that_says_what_it_gives_has_no_other_results() -> None:
    both = Node(tool, "look", takes="a", gives=("b", "c"))
    plan = lower_model(type("Toy", (One,), {"go": WalkGraph(both, gives=("c",))}))["go"]
    assert plan.results == (("c", 2),)


def test_a_carry_goes_from_one_turn_to_the_next_and_leaves_the_loop() -> None:
    plan = plan_of(
        Loop(Node(lm, "next", takes="ids", gives="ids", to=words), carry="ids", times="most"),
        Node(tool, "after", takes="ids", gives="end"),
    )
    loop = the_loop(plan)
    (next_ids,) = (child for child in loop.body.children if isinstance(child, Op))
    assert plan.inputs == (("ids", 0), ("most", 1))
    assert loop.carry_in == ((0, 0),)
    assert next_ids.takes == (("ids", 0),) and next_ids.gives == (("ids", 1),)
    assert loop.carry_next == ((1, 0),)
    assert loop.carry_out == ((0, 2),)  # a new meaning of the name, outside
    assert (loop.times, loop.times_slot) == (None, 1)
    assert plan.ops[1].takes == (("ids", 2),)
    assert next_ids.outputs == (("ids", "words"),)


def test_a_number_of_turns_may_stand_in_the_graph() -> None:
    loop = the_loop(plan_of(Loop(Node(tool, "look"), times=3)))
    assert (loop.times, loop.times_slot) == (3, None)


def test_a_name_of_outside_is_brought_in_once_when_the_loop_begins() -> None:
    plan = plan_of(
        Loop(
            Node(tool, "a", takes=("x", "y"), gives="x"),
            Node(tool, "b", takes=("x", "y")),
            carry="x",
            times=2,
        )
    )
    loop = the_loop(plan)
    inputs = dict(plan.inputs)
    assert [source for source, _ in loop.imports] == [inputs["y"]]
    a, b = plan.ops
    assert dict(a.takes)["y"] == dict(b.takes)["y"] == loop.imports[0][1]


def test_each_gives_every_turn_a_slot_to_fill() -> None:
    plan = plan_of(Loop(Node(tool, "step", takes=("t", "x"), gives="x"), each={"t": "times"}, carry="x"))
    loop = the_loop(plan)
    (step,) = plan.ops
    assert loop.each == ((dict(plan.inputs)["times"], dict(step.takes)["t"]),)


def test_collect_pairs_the_value_of_a_turn_with_a_list_outside() -> None:
    plan = plan_of(
        Loop(Node(lm, "next", takes="n", gives="n"), carry="n", times=2, collect={"all": "n"}),
        Node(tool, "read", takes="all"),
    )
    loop = the_loop(plan)
    next_n, read = plan.ops
    assert loop.collect == ((dict(next_n.gives)["n"], dict(read.takes)["all"]),)
    assert dict(plan.results).keys() == {"n", "all"}


def test_when_is_a_slot_the_node_looks_at() -> None:
    plan = plan_of(Loop(Node(tool, "look", gives="x", when="goes"), each={"goes": "going"}))
    loop = the_loop(plan)
    assert plan.ops[0].when == loop.each[0][1]


def test_parts_in_sequence_run_one_after_the_other_also_when_they_share_no_value() -> None:
    plan = plan_of(Node(tool, "a"), Sequential(Node(tool, "b"), Node(tool, "c")), Node(tool, "d"))
    assert plan.top.firsts == (0,)
    assert before(plan.top, "b") == {"a"}
    assert before(plan.top, "c") == {"a", "b"}
    assert before(plan.top, "d") == {"a", "b", "c"}


def test_parts_of_a_parallel_wait_for_what_stands_before_it_and_not_for_each_other() -> None:
    plan = plan_of(
        Node(tool, "a", gives="x"),
        Parallel(
            Node(tool, "b", takes="x", gives="y"),
            Sequential(Node(tool, "c", takes="x", gives="z"), Node(tool, "d", takes="z", gives="w")),
        ),
        Node(tool, "e", takes=("y", "w")),
    )
    assert before(plan.top, "b") == {"a"}
    assert before(plan.top, "c") == {"a"}
    assert before(plan.top, "d") == {"a", "c"}
    assert before(plan.top, "e") == {"a", "b", "c", "d"}
    assert plan.top.waits == [0, 1, 1, 2, 4]


def test_a_parallel_at_the_head_starts_all_its_parts() -> None:
    plan = plan_of(Parallel(Node(tool, "a", gives="x"), Node(tool, "b", gives="y")))
    assert plan.top.firsts == (0, 1)
    assert plan.results == (("x", 0), ("y", 1))


def test_a_node_that_nobody_carries_from_trails() -> None:
    plan = plan_of(
        Loop(
            Node(lm, "next", takes="n", gives="n"),
            Node(detok, "decode", takes="n", gives="text", to=words),
            carry="n",
            times=3,
        )
    )
    body = the_loop(plan).body
    assert trailing(body) == ["decode"]
    assert body.critical == 1
    assert before(body, "decode") == {"next"}


def test_what_a_carried_value_is_made_of_does_not_trail() -> None:
    plan = plan_of(
        Loop(
            Node(tool, "look", takes="n", gives="seen"),
            Node(tool, "add", takes=("n", "seen"), gives="n"),
            Node(detok, "decode", takes="seen"),
            carry="n",
            times=3,
        )
    )
    assert trailing(the_loop(plan).body) == ["decode"]


def test_a_trailing_node_holds_back_none_that_does_not_trail() -> None:
    plan = plan_of(
        Loop(
            Node(detok, "decode", takes="n", gives="text", to=words),
            Node(lm, "next", takes="n", gives="n"),
            carry="n",
            times=3,
        )
    )
    body = the_loop(plan).body
    assert trailing(body) == ["decode"]
    assert body.firsts == (0, 1)
    assert body.waits == [0, 0]


def test_a_call_that_writes_a_cache_is_never_overtaken_by_its_next_turn() -> None:
    plan = plan_of(
        Loop(
            Node(tool, "add", takes="n", gives="n"),
            Node(lm, "read", takes="n"),
            Node(lm, "peek", takes="n", gives="p", keeps=False, branch="other"),
            carry="n",
            times=3,
        )
    )
    assert trailing(the_loop(plan).body) == ["peek"]


def test_in_a_loop_where_nothing_is_carried_every_node_counts() -> None:
    plan = plan_of(
        Loop(Node(tool, "a", takes="t", gives="x"), Node(tool, "b", takes="x"), each={"t": "times"})
    )
    assert trailing(the_loop(plan).body) == []


def test_nothing_outside_a_loop_trails() -> None:
    plan = plan_of(Node(tool, "a", gives="x"), Node(tool, "b"))
    assert trailing(plan.top) == []


def test_loops_nest_and_names_reach_through_all_of_them() -> None:
    inner = Loop(Node(tool, "add", takes=("n", "by"), gives="n"), carry="n", times="inner")
    plan = plan_of(Loop(inner, Node(tool, "halve", takes="n", gives="n"), carry="n", times=2))
    outer = the_loop(plan)
    nested = next(child for child in outer.body.children if isinstance(child, LoopOp))
    inputs = dict(plan.inputs)
    assert {source for source, _ in outer.imports} == {inputs["by"], inputs["inner"]}
    imported = {source: target for source, target in outer.imports}
    assert [source for source, _ in nested.imports] == [imported[inputs["by"]]]
    assert nested.times_slot == imported[inputs["inner"]]
    add, halve = plan.ops
    assert nested.carry_in[0][0] == outer.carry_in[0][1]
    assert dict(halve.takes)["n"] == nested.carry_out[0][1]
    assert outer.carry_next == ((dict(halve.gives)["n"], outer.carry_in[0][1]),)
    assert add.index == 0 and halve.index == 1


def test_what_a_call_keeps_is_known_only_of_a_component_with_a_cache() -> None:
    plan = plan_of(
        Node(lm, "read"),
        Node(lm, "peek", keeps=False, branch="other"),
        Node(tool, "look"),
        Node(detok, "decode"),
    )
    assert [op.keeps for op in plan.ops] == [True, False, False, False]
    assert [op.branch for op in plan.ops] == ["main", "other", "main", "main"]
    assert plan.components == ("lm", "tool", "detok")
    assert plan.ops[1].key == ("lm", "peek")
    assert plan.ops[1].place == "Toy.go: lm.peek"


class Piped(Model):
    lm = Component("some.where:LM", kv=PagedKV())
    tool = Component("some.where:Tool")
    items = Stream()
    words = Output(Text())
    write = WalkGraph(
        Loop(Node(lm, "next", takes="n", gives=("n", "h"), to={"n": (items, words), "h": words}), carry="n")
    )
    read = WalkGraph(
        Loop(Node(tool, "read", takes=items, gives="x"), Node(tool, "show", takes="x", gives="y", to=words))
    )

    @track(writes=items)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        yield self.write(n=0)
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        yield self.read()
        return None


def test_streams_and_outputs_are_told_apart_and_a_reader_does_not_trail() -> None:
    plans = lower_model(Piped)
    (write,) = plans["write"].ops
    assert (write.streams, write.outputs) == ((("n", "items"),), (("n", "words"), ("h", "words")))
    assert (plans["write"].writes, plans["write"].reads) == (("items",), ())
    assert (plans["read"].writes, plans["read"].reads) == ((), ("items",))
    assert the_loop(plans["read"]).streams == ("items",)
    assert the_loop(plans["write"]).streams == ()
    assert trailing(the_loop(plans["read"]).body) == ["show"]


def test_the_next_turn_waits_for_what_is_collected() -> None:
    body = the_loop(
        plan_of(
            Loop(
                Node(lm, "next", takes="x", gives="x"),
                Node(tool, "look", takes="x", gives="y"),
                Node(tool, "tell", takes="y", gives="z", to=words),
                carry="x",
                times=2,
                collect={"all": "y"},
            )
        )
    ).body
    assert trailing(body) == ["tell"]


def the_fan(plan: Plan) -> FanOp:
    (fan,) = plan.fans
    return fan


def test_a_row_takes_its_slice_and_what_it_gives_leaves_the_fan() -> None:
    plan = plan_of(
        Fan(Node(tool, "look", takes=("x", "y"), gives=("x", "z")), over={"x": "xs"}),
        Node(tool, "after", takes=("x", "z", "y"), gives="end"),
    )
    fan = the_fan(plan)
    (look,) = (child for child in fan.body.children if isinstance(child, Op))
    assert plan.inputs == (("xs", 0), ("y", 1))
    assert (fan.over, fan.sources, fan.imports) == (((0, 0),), ("xs",), ((1, 1),))
    assert look.takes == (("x", 0), ("y", 1)) and look.gives == (("x", 2), ("z", 3))
    assert fan.gives == ((2, 2), (3, 3))
    assert plan.ops[1].takes == (("x", 2), ("z", 3), ("y", 1))  # and what it only took is what it was
    assert before(plan.top, "after") == {"loop"}


def test_a_row_forks_what_its_nodes_call_and_grows_the_caches_that_they_write() -> None:
    plan = plan_of(
        Fan(
            Sequential(
                Loop(Node(lm, "next", takes="x", gives="x"), carry="x", times=2),
                Node(lm, "read", takes="x", gives="y", branch="other", keeps=False),
                Node(detok, "tell", takes="y", gives="z"),
                Node(tool, "look", takes="z", gives="w"),
            ),
            over={"x": "xs"},
        )
    )
    fan = the_fan(plan)
    assert fan.forks == (("lm", "main"), ("lm", "other"), ("detok", "main"), ("tool", "main"))
    assert fan.grows == (("lm", "main"),)
    assert plan.components == ("lm", "detok", "tool")
    assert [op.method for op in plan.ops] == ["next", "read", "tell", "look"]


def test_the_next_turn_waits_for_a_fan() -> None:
    plan = plan_of(
        Loop(
            Fan(Node(tool, "look", takes="x", gives="y"), over={"x": "xs"}),
            Node(tool, "trail", takes="y", gives="z", to=words),
            times=3,
        )
    )
    body = the_loop(plan).body
    assert [child.critical for child in body.children] == [True, False]
    assert the_fan(plan) is body.children[0]


def test_a_stream_of_the_client_is_read_and_nobody_writes_it() -> None:
    class Live(Model):
        tool = Component("some.where:Tool")
        frames = Stream(by="client")
        words = Output(Text())
        read = WalkGraph(Loop(Node(tool, "read", takes=frames, gives="x", to=words)))

        @track
        def reading(self, request: Request, prepared: Outcome) -> Track:
            yield self.read()
            return None

    plan = lower_model(Live)["read"]
    assert (plan.reads, plan.writes, the_loop(plan).streams) == (("frames",), (), ("frames",))


def twins(*parts: Any) -> list[int | None]:
    return [op.twins for op in plan_of(*parts).ops]


PEEK = Node(lm, "peek", takes="x", gives="y", keeps=False)


def test_nodes_side_by_side_that_take_the_same_and_keep_nothing_may_be_equal() -> None:
    other = Node(lm, "peek", takes="x", gives="z", keeps=False, branch="other", when="wanted", to=words)
    assert twins(Parallel(PEEK, Node(tool, "see", gives="a"), other)) == [0, None, 0]


def test_a_name_from_outside_is_one_and_the_same_to_all_parts_of_a_parallel() -> None:
    plan = plan_of(
        Loop(Parallel(PEEK, Node(lm, "peek", takes="x", gives="z", keeps=False, to=words)), times=2)
    )
    body = the_loop(plan).body
    assert the_loop(plan).imports == ((plan.inputs[0][1], 0),)
    assert [child.twins for child in body.children if isinstance(child, Op)] == [0, 0]


@pytest.mark.parametrize(
    "other",
    [
        Node(lm, "look", takes="x", gives="z", keeps=False, to=words),
        Node(lm, "peek", takes=("x", "w"), gives="z", keeps=False, to=words),
        Node(lm, "peek", takes="x", gives="z", branch="other", to=words),
        Node(lm, "peek", takes="x", gives=("z", "w"), keeps=False, to={"z": words}),
        Sequential(Node(lm, "peek", takes="x", gives="z", keeps=False, to=words)),
    ],
    ids=["another method", "another value", "it keeps", "more values", "no direct part"],
)
def test_others_are_never_equal(other: Any) -> None:
    assert twins(Parallel(PEEK, other)) == [None, None]
