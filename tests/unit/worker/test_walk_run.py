"""One traversal of a plan: what is offered when, what a turn leaves behind, and how it ends.

The host is a fake that finishes offered calls one at a time, first come first served or in any order a
test draws; components are plain functions from what a node takes to what it gives, or to a ``Stop``.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkserve.graph.lower import lower_model
from walkserve.streams.ends import ReadEnd
from walkserve.worker.walk_run import Call, WalkRun
from walkserve_sdk import (
    Component,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
    Request,
    Stop,
    Stream,
    Text,
    Track,
    WalkGraph,
    track,
)

Answer = Callable[..., Any]
Order = Callable[[int], int]


class One(Model):
    lm = Component("some.where:LM", kv=PagedKV(branches=("no_text", "no_image")))
    tool = Component("some.where:Tool")
    detok = Component("some.where:Detok", state=True)
    words = Output(Text())
    notes = Output(Text())
    go = WalkGraph(Node(tool, "look", gives="seen", to={"seen": (words, notes)}))

    @track
    def going(self, request: Request, prepared: Outcome) -> Track:
        yield self.go()
        return None


class Piped(Model):
    tool = Component("some.where:Tool")
    detok = Component("some.where:Detok", state=True)
    items = Stream()
    words = Output(Text())
    go = WalkGraph(Loop(Node(detok, "read", takes=items, gives="x", to=words)))
    write = WalkGraph(Loop(Node(tool, "next", takes="n", gives="n", to=items), carry="n", times=1))

    @track(writes=items)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        yield self.write(n=0)
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        yield self.go()
        return None


lm, tool, detok, words, notes = One.lm, One.tool, One.detok, One.words, One.notes


class Host:
    """Runs what is offered, one call at a time, where ``order`` says which of n."""

    def __init__(self, answers: dict[str, Answer], order: Order) -> None:
        self.answers = answers
        self.order = order
        self.offered: list[Call] = []
        self.did: list[str] = []
        self.said: dict[str, list[Any]] = {}
        self.written: list[Any] = []
        self.stopped: list[tuple[str, str]] = []
        self.ends = 0
        self.items: ReadEnd | None = None

    def offer(self, call: Call) -> None:
        if not call.run.is_closed and not call.frame.is_dropped:
            self.offered.append(call)

    def forget(self, call: Call) -> None: ...

    def push(self, run: WalkRun, stream: str, value: Any) -> None:
        self.written.append(value)

    def emit(self, run: WalkRun, output: str, value: Any, index: int | None) -> None:
        self.said.setdefault(output, []).append(value)

    def is_over(self, run: WalkRun, stream: str) -> bool:
        return self.items is not None and self.items.is_done

    def stop_writer(self, run: WalkRun, stream: str, reason: str) -> None:
        self.stopped.append((stream, reason))

    def ended(self, run: WalkRun) -> None:
        self.ends += 1

    def step(self) -> None:
        """Run one of the calls that are there, and commit it."""
        index = self.order(len(self.offered))
        self.commit(self.offered.pop(index))

    def commit(self, call: Call) -> None:
        values = dict(call.values)
        for stream in call.op.reads:
            assert self.items is not None
            call.helpings = [self.items.next()]
            values[stream] = call.helpings[0]
        self.did.append(call.op.method)
        gave = self.answers[call.op.method](**values)
        stop = None
        if isinstance(gave, tuple):
            gave, stop = gave
        elif isinstance(gave, Stop):
            gave, stop = {}, gave
        call.run.finish(call, gave, stop)


def first(n: int) -> int:
    return 0


def begin(
    graph: WalkGraph, answers: dict[str, Answer], order: Order = first, base: type[Model] = One, **inputs: Any
) -> tuple[WalkRun, Host]:
    host = Host(answers, order)
    plan = lower_model(type("Toy", (base,), {"go": graph}))["go"]
    run = WalkRun(host, None, plan, "going", 0, inputs)  # type: ignore[arg-type]  # the run only hands it on
    run.start()
    return run, host


def walk(
    graph: WalkGraph, answers: dict[str, Answer], order: Order = first, **inputs: Any
) -> tuple[WalkRun, Host]:
    """Walk it to its end."""
    run, host = begin(graph, answers, order, **inputs)
    for _ in range(1000):
        if run.is_closed:
            break
        assert host.offered, f"nothing is left to run, but the Walk has not ended; it did {host.did}"
        host.step()
    assert host.ends == 1
    return run, host


def outcome(run: WalkRun) -> Outcome:
    return Outcome(run.results(), run.ended_by, run.turns)


def add_one(n: int) -> dict[str, int]:
    return {"n": n + 1}


def until(last: int, *, keep: bool = False) -> Answer:
    """Counts, and stops with the turn that would give ``last``."""

    def answer(n: int) -> Any:
        return ({"n": n + 1}, Stop("enough", keep=keep)) if n + 1 == last else {"n": n + 1}

    return answer


next_n = Node(lm, "next", takes="n", gives="n", to=words)


# --- turns, carries, ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [0, 1, 4])
def test_times_counts_turns_and_none_at_all_passes_the_carry_through(times: int) -> None:
    for given_times, inputs in ((times, {}), ("most", {"most": times})):
        run, _ = walk(WalkGraph(Loop(next_n, carry="n", times=given_times)), {"next": add_one}, n=0, **inputs)
        assert outcome(run) == Outcome({"n": times}, "times", times)


def test_a_turn_takes_what_the_turn_before_gave() -> None:
    run, host = walk(WalkGraph(Loop(next_n, carry="n", times=3)), {"next": add_one}, n=5)
    assert host.said == {"words": [6, 7, 8]}
    assert run.emitted == {"words": 3}


def test_a_loop_ends_when_the_shortest_each_is_used_up() -> None:
    graph = WalkGraph(
        Loop(Node(tool, "add", takes=("x", "y"), gives="z", to=words), each={"x": "xs", "y": "ys"})
    )
    run, host = walk(graph, {"add": lambda x, y: {"z": x + y}}, xs=[1, 2, 3], ys=[10, 20])
    assert (run.ended_by, run.turns) == ("each", 2)
    assert host.said["words"] == [11, 22]
    assert run.results() == {}  # z is known inside the loop only


def test_an_each_without_items_turns_no_turn() -> None:
    graph = WalkGraph(Loop(Node(tool, "add", takes="x"), each={"x": "xs"}))
    run, host = walk(graph, {}, xs=[])
    assert (run.ended_by, run.turns, host.did) == ("each", 0, [])


def test_where_turns_and_items_run_out_together_it_was_times() -> None:
    run, _ = walk(
        WalkGraph(Loop(Node(tool, "add", takes="x"), each={"x": "xs"}, times=2)),
        {"add": lambda x: {}},
        xs=[1, 2],
    )
    assert run.ended_by == "times"


def test_a_stop_discards_what_its_turn_gave() -> None:
    run, host = walk(WalkGraph(Loop(next_n, carry="n")), {"next": until(3)}, n=0)
    assert outcome(run) == Outcome({"n": 2}, "enough", 2)
    assert host.said == {"words": [1, 2]}


def test_a_stop_that_keeps_counts_its_turn() -> None:
    run, host = walk(WalkGraph(Loop(next_n, carry="n")), {"next": until(3, keep=True)}, n=0)
    assert outcome(run) == Outcome({"n": 3}, "enough", 3)
    assert host.said == {"words": [1, 2, 3]}


@pytest.mark.parametrize(("keep", "after"), [(True, 2), (False, 1)])
def test_the_rest_of_a_turn_runs_only_if_the_turn_counts(keep: bool, after: int) -> None:
    graph = WalkGraph(Loop(Node(lm, "next", takes="n", gives="n"), Node(tool, "after", takes="n"), carry="n"))
    run, host = walk(graph, {"next": until(2, keep=keep), "after": lambda n: {}}, n=0)
    assert host.did.count("after") == after
    assert outcome(run) == Outcome({"n": after}, "enough", after)


def test_what_a_loop_collects_is_what_its_committed_turns_gave() -> None:
    graph = WalkGraph(Loop(next_n, carry="n", collect={"all": "n"}))
    run, _ = walk(graph, {"next": until(4)}, n=0)
    assert outcome(run) == Outcome({"n": 3, "all": [1, 2, 3]}, "enough", 3)
    run, _ = walk(graph, {"next": until(4, keep=True)}, n=0)
    assert outcome(run) == Outcome({"n": 4, "all": [1, 2, 3, 4]}, "enough", 4)


def test_a_graph_without_a_loop_ends_at_its_end() -> None:
    graph = WalkGraph(
        Node(tool, "look", takes="x", gives="y"), Node(tool, "see", takes="y", gives="z", to=words)
    )
    run, host = walk(graph, {"look": lambda x: {"y": x + 1}, "see": lambda y: {"z": y * 2}}, x=1)
    assert outcome(run) == Outcome({"y": 2, "z": 4}, "end", 0)
    assert host.said == {"words": [4]}


def test_a_stop_outside_a_loop_ends_the_walk() -> None:
    graph = WalkGraph(
        Node(tool, "look", gives="x"), Node(lm, "see", gives="y"), Node(tool, "never", takes="y")
    )
    run, host = walk(graph, {"look": lambda: {"x": 1}, "see": lambda: Stop("nothing there")})
    assert outcome(run) == Outcome({"x": 1}, "nothing there", 0)
    assert host.did == ["look", "see"]


def test_a_loop_ends_in_front_of_what_follows_it() -> None:
    graph = WalkGraph(
        Node(tool, "noise", gives="n"),
        Loop(next_n, carry="n", times=2),
        Node(tool, "decode", takes="n", gives="p"),
    )
    run, host = walk(
        graph, {"noise": lambda: {"n": 10}, "next": add_one, "decode": lambda n: {"p": f"<{n}>"}}
    )
    assert host.did == ["noise", "next", "next", "decode"]
    assert outcome(run) == Outcome({"n": 12, "p": "<12>"}, "times", 2)


def test_a_none_is_sent_to_nobody_and_not_counted() -> None:
    graph = WalkGraph(Loop(Node(tool, "say", takes="n", gives="text", to=words), each={"n": "ns"}))
    run, host = walk(graph, {"say": lambda n: {"text": "odd" if n % 2 else None}}, ns=[1, 2, 3])
    assert host.said == {"words": ["odd", "odd"]}
    assert run.emitted == {"words": 2}


def test_what_comes_after_the_end_is_thrown_away() -> None:
    graph = WalkGraph(Parallel(Node(tool, "look", gives="x", to=words), Node(lm, "see", gives="y")))
    run, host = begin(graph, {"look": lambda: {"x": 1}, "see": lambda: Stop("nothing there")})
    look, see = host.offered
    host.commit(see)
    host.commit(look)  # was in flight
    assert (host.ends, host.said, outcome(run)) == (1, {}, Outcome({}, "nothing there", 0))


# --- when ----------------------------------------------------------------------------------------------

guided = WalkGraph(
    Loop(
        Parallel(
            Node(lm, "full", takes=("n", "t"), gives="full", keeps=False),
            Node(lm, "no_text", takes="n", gives="no_text", keeps=False, branch="no_text", when="guided"),
            Node(lm, "no_image", takes="n", gives="no_image", keeps=False, branch="no_image", when="guided"),
        ),
        Node(tool, "step", takes=("n", "full", "no_text", "no_image"), gives="n"),
        each={"t": "times", "guided": "guidance"},
        carry="n",
    )
)


@given(st.data())
def test_a_false_row_is_skipped_and_gives_nothing(data: st.DataObject) -> None:
    steps: list[Any] = []

    def step(n: int, full: Any, no_text: Any, no_image: Any) -> dict[str, int]:
        steps.append((full, no_text, no_image))
        return {"n": n + 1}

    run, host = walk(
        guided,
        {
            "full": lambda n, t: {"full": t},
            "no_text": lambda n: {"no_text": "t"},
            "no_image": lambda n: {"no_image": "i"},
            "step": step,
        },
        lambda n: data.draw(st.integers(0, n - 1)),
        n=0,
        times=[0.9, 0.5, 0.1],
        guidance=[True, False, True],
    )
    assert steps == [(0.9, "t", "i"), (0.5, None, None), (0.1, "t", "i")]
    assert host.did.count("no_text") == 2
    assert outcome(run) == Outcome({"n": 3}, "each", 3)


def test_a_skipped_node_leaves_the_carry_as_it_was() -> None:
    node = Node(lm, "next", takes="n", gives="n", when="goes")
    graph = WalkGraph(Loop(node, carry="n", each={"goes": "going"}, collect={"all": "n"}))
    run, host = walk(graph, {"next": add_one}, n=0, going=[True, False, True])
    assert outcome(run) == Outcome({"n": 2, "all": [1, 2]}, "each", 3)
    assert host.did == ["next", "next"]


def test_a_turn_may_end_with_a_node_that_is_skipped() -> None:
    graph = WalkGraph(
        Loop(Node(tool, "add", takes="n", gives="n"), Node(lm, "read", takes="n", when="reads"), carry="n",
             each={"reads": "all"})
    )  # fmt: skip
    run, host = walk(graph, {"add": add_one, "read": lambda n: {}}, n=0, all=[True, False])
    assert outcome(run) == Outcome({"n": 2}, "each", 2)
    assert host.did == ["add", "read", "add"]


def test_a_walk_may_end_with_a_node_that_is_skipped_and_ends_once() -> None:
    graph = WalkGraph(Node(tool, "look", gives="x"), Node(tool, "see", takes="x", gives="y", when="sees"))
    run, host = walk(graph, {"look": lambda: {"x": 1}}, sees=False)
    assert (outcome(run), host.ends) == (Outcome({"x": 1}, "end", 0), 1)


def test_a_walk_may_end_with_a_loop_of_no_turns_and_ends_once() -> None:
    graph = WalkGraph(Node(tool, "look", gives="n"), Loop(next_n, carry="n", times="most"))
    run, host = walk(graph, {"look": lambda: {"n": 1}}, most=0)
    assert (outcome(run), host.ends) == (Outcome({"n": 1}, "times", 0), 1)


def test_a_turn_may_end_with_a_loop_of_no_turns() -> None:
    inner = Loop(Node(lm, "next", takes=("n", "x"), gives="n"), carry="n", each={"x": "rows"})
    graph = WalkGraph(Loop(Node(tool, "look", takes="n", gives="n"), inner, carry="n", times=2))
    run, _ = walk(graph, {"look": add_one}, n=0, rows=[])
    assert outcome(run) == Outcome({"n": 2}, "times", 2)


def test_many_turns_in_a_row_may_be_skipped() -> None:
    graph = WalkGraph(
        Loop(Node(lm, "next", takes="n", gives="n", when="goes"), carry="n", each={"goes": "going"})
    )
    run, _ = walk(graph, {"next": add_one}, n=0, going=[False] * 2000 + [True])
    assert (run.turns, run.ended_by) == (2001, "each")


# --- trailing nodes ------------------------------------------------------------------------------------

chatting = WalkGraph(
    Loop(
        Node(lm, "next", takes="n", gives="n"),
        Node(detok, "decode", takes="n", gives="text", to=words),
        carry="n",
        times="most",
        collect={"all": "n"},
    )
)


def test_the_next_turn_starts_before_a_trailing_node_has_run() -> None:
    _, host = begin(chatting, {"next": add_one, "decode": lambda n: {"text": n}}, n=0, most=3)
    host.step()
    assert [call.op.method for call in host.offered] == ["decode", "next"]


def test_a_trailing_node_has_one_call_offered_at_a_time() -> None:
    run, host = begin(chatting, {"next": add_one, "decode": lambda n: {"text": n}}, n=0, most=3)
    for _ in range(3):
        (call,) = (call for call in host.offered if call.op.method == "next")
        host.offered.remove(call)
        host.commit(call)
    assert [call.op.method for call in host.offered] == ["decode"]
    assert not run.is_closed
    for _ in range(3):
        host.step()
    assert host.said == {"words": [1, 2, 3]}
    assert outcome(run) == Outcome({"n": 3, "all": [1, 2, 3]}, "times", 3)


@given(st.data(), st.integers(0, 5))
def test_a_trailing_node_runs_in_order_whatever_finishes_first(data: st.DataObject, most: int) -> None:
    run, host = walk(
        chatting,
        {"next": add_one, "decode": lambda n: {"text": n}},
        lambda n: data.draw(st.integers(0, n - 1)),
        n=0,
        most=most,
    )
    assert host.said.get("words", []) == list(range(1, most + 1))
    assert outcome(run) == Outcome({"n": most, "all": list(range(1, most + 1))}, "times", most)


@given(st.data())
def test_what_trails_a_stopped_loop_still_comes_to_its_end(data: st.DataObject) -> None:
    run, host = walk(
        chatting,
        {"next": until(4), "decode": lambda n: {"text": n}},
        lambda n: data.draw(st.integers(0, n - 1)),
        n=0,
        most=9,
    )
    assert host.said == {"words": [1, 2, 3]}
    assert outcome(run) == Outcome({"n": 3, "all": [1, 2, 3]}, "enough", 3)


def stop_string(n: int) -> Any:
    return Stop("stop_string") if n == 3 else {"text": n}


@given(st.data())
def test_a_stop_of_a_trailing_node_lets_no_later_turn_be_heard(data: st.DataObject) -> None:
    run, host = walk(
        chatting,
        {"next": add_one, "decode": stop_string},
        lambda n: data.draw(st.integers(0, n - 1)),
        n=0,
        most=9,
    )
    assert host.said == {"words": [1, 2]}
    assert run.ended_by == "stop_string"


@given(st.data())
def test_turns_that_ran_ahead_of_a_trailing_nodes_stop_do_not_count(data: st.DataObject) -> None:
    run, _ = walk(
        chatting,
        {"next": add_one, "decode": stop_string},
        lambda n: data.draw(st.integers(0, n - 1)),
        n=0,
        most=9,
    )
    assert outcome(run) == Outcome({"n": 2, "all": [1, 2]}, "stop_string", 2)


def test_a_call_of_a_dropped_turn_that_was_in_flight_changes_nothing() -> None:
    run, host = begin(chatting, {"next": add_one, "decode": stop_string}, n=0, most=9)
    for method in ("next", "next", "next", "decode", "decode"):
        (call,) = (call for call in host.offered if call.op.method == method)
        host.offered.remove(call)
        host.commit(call)
    (ahead,) = (call for call in host.offered if call.op.method == "next")
    (stopping,) = (call for call in host.offered if call.op.method == "decode")
    host.commit(stopping)
    assert run.is_closed and host.ends == 1
    host.commit(ahead)
    assert host.ends == 1 and host.said == {"words": [1, 2]}


def test_a_trailing_node_may_be_skipped_turn_by_turn() -> None:
    graph = WalkGraph(
        Loop(
            Node(lm, "next", takes="n", gives="n"),
            Node(detok, "decode", takes="n", gives="text", to=words, when="heard"),
            carry="n",
            each={"heard": "hearing"},
        )
    )
    for order in (first, lambda n: n - 1):
        run, host = walk(
            graph,
            {"next": add_one, "decode": lambda n: {"text": n}},
            order,
            n=0,
            hearing=[False, True, True, False, True, False],
        )
        assert host.said == {"words": [2, 3, 5]}
        assert outcome(run) == Outcome({"n": 6}, "each", 6)


def test_a_skipped_trailing_node_does_not_bring_a_dropped_turn_back() -> None:
    graph = WalkGraph(
        Loop(
            Node(lm, "next", takes="n", gives="n"),
            Node(detok, "decode", takes="n", gives="text", to=words, when="heard"),
            Node(tool, "note", takes="n", gives="note", to=notes),
            carry="n",
            each={"heard": "hearing"},
        ),
        Node(tool, "after", takes="n"),
    )
    answers = {
        "next": add_one,
        "decode": lambda n: Stop("stop_string"),
        "note": lambda n: {"note": n},
        "after": lambda n: {},
    }
    _, host = begin(graph, answers, n=0, hearing=[True, False, False])

    def one(method: str) -> Call:
        (call,) = (call for call in host.offered if call.op.method == method)
        host.offered.remove(call)
        return call

    host.commit(one("next"))
    host.commit(one("next"))
    decode = one("decode")
    host.commit(decode)
    for call in list(host.offered):
        if call.op.method != "after":
            host.commit(call)
    assert host.said == {}


# --- nested loops --------------------------------------------------------------------------------------

nested = WalkGraph(
    Loop(
        Loop(Node(lm, "next", takes="n", gives="n"), carry="n"),
        Node(tool, "reset", takes="n", gives="n", to=words),
        carry="n",
        times=2,
    )
)


def test_a_stop_of_an_inner_loop_leaves_the_outer_one_alone() -> None:
    run, host = walk(nested, {"next": until(3), "reset": lambda n: {"n": n - 2}}, n=0)
    assert outcome(run) == Outcome({"n": 0}, "times", 2 + 4)
    assert host.said["words"] == [0, 0]


def test_an_inner_loop_begins_anew_with_every_outer_turn() -> None:
    graph = WalkGraph(
        Loop(
            Loop(Node(tool, "add", takes=("n", "x", "by"), gives="n"), carry="n", each={"x": "xs"}),
            carry="n",
            each={"by": "factors"},
        )
    )
    run, _ = walk(graph, {"add": lambda n, x, by: {"n": n + x * by}}, n=0, xs=[1, 2], factors=[1, 10, 100])
    assert outcome(run) == Outcome({"n": 333}, "each", 6 + 3)


@given(st.data())
def test_an_inner_loop_that_nobody_carries_from_stays_in_order(data: st.DataObject) -> None:
    graph = WalkGraph(
        Loop(
            Node(lm, "next", takes="n", gives="n"),
            Loop(Node(detok, "spell", takes=("n", "x"), gives="text", to=words), each={"x": "xs"}),
            carry="n",
            times=3,
        )
    )
    _, host = walk(
        graph,
        {"next": add_one, "spell": lambda n, x: {"text": (n, x)}},
        lambda n: data.draw(st.integers(0, n - 1)),
        n=0,
        xs=["a", "b"],
    )
    assert host.said["words"] == [(n, x) for n in (1, 2, 3) for x in ("a", "b")]


def test_an_outer_stop_takes_its_inner_loop_with_it() -> None:
    graph = WalkGraph(
        Loop(
            Parallel(
                Node(lm, "next", takes="n", gives="n"),
                Loop(Node(detok, "spell", takes="x", gives="text", to=words), each={"x": "xs"}),
            ),
            carry="n",
        ),
        Node(tool, "after", takes="n"),
    )
    run, host = begin(
        graph,
        {"next": lambda n: Stop("enough"), "spell": lambda x: {"text": x}, "after": lambda n: {}},
        n=0,
        xs=["a", "b", "c"],
    )
    stopping, spelling = host.offered
    host.offered.clear()
    host.commit(stopping)
    assert [call.op.method for call in host.offered] == ["after"]
    host.commit(spelling)
    assert host.said == {}
    host.step()
    assert (run.ended_by, host.ends) == ("enough", 1)


# --- streams -------------------------------------------------------------------------------------------


def feed(host: Host, items: list[Any], *, is_ended: bool = True) -> None:
    host.items = ReadEnd(Piped.items.policy)
    host.items.push(0, items)
    if is_ended:
        host.items.end(len(items))


def test_a_loop_fed_by_a_stream_ends_with_it() -> None:
    run, host = begin(Piped.go, {"read": lambda items: {"x": list(items.new)}}, base=Piped)
    feed(host, ["a", "b"])
    while host.offered:
        host.step()
    assert outcome(run) == Outcome({}, "stream", 2)
    assert host.said == {"words": [["a"], ["b"]]}


def test_a_loop_fed_by_a_stream_ends_with_it_also_when_it_carries_something() -> None:
    graph = WalkGraph(Loop(Node(Piped.detok, "read", takes=(Piped.items, "n"), gives="n"), carry="n"))
    run, host = begin(graph, {"read": lambda items, n: {"n": n + items.fresh}}, base=Piped, n=0)
    feed(host, ["a", "b", "c"])
    while host.offered:
        host.step()
    assert outcome(run) == Outcome({"n": 3}, "stream", 3)


def test_a_reader_that_stops_with_the_last_helping_has_stopped() -> None:
    run, host = begin(Piped.go, {"read": lambda items: Stop("enough")}, base=Piped)
    feed(host, ["a"])
    host.step()
    assert outcome(run) == Outcome({}, "enough", 0)


def test_a_stop_upstream_is_passed_on_by_the_name_of_the_stream() -> None:
    run, host = begin(Piped.go, {"read": lambda items: Stop("heard", upstream=True)}, base=Piped)
    feed(host, ["a", "b"], is_ended=False)
    host.step()
    assert host.stopped == [("items", "heard")]
    assert outcome(run) == Outcome({}, "heard", 0)


def test_committed_turns_are_written_to_their_stream_and_counted() -> None:
    graph = WalkGraph(Loop(Node(Piped.tool, "next", takes="n", gives="n", to=Piped.items), carry="n"))
    host = Host({"next": until(3)}, first)
    plan = lower_model(type("Toy", (Piped,), {"write": graph}))["write"]
    run = WalkRun(host, None, plan, "writing", 0, {"n": 0})  # type: ignore[arg-type]
    run.start()
    while host.offered:
        host.step()
    assert host.written == [1, 2]
    assert run.wrote == {"items": 2}
