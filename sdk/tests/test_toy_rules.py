"""The toy runtime's rules one by one, each on the smallest declaration that shows it."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from walkserve_sdk import (
    BadRequest,
    Component,
    DeclarationError,
    Each,
    Fixed,
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
    WalkFailed,
    WalkGraph,
    track,
)
from walkserve_sdk.testing import StreamTotal, ToyCall, ToyResult, ToyRuntime

Ask = Callable[[ToyCall], Any]


class Fake:
    """A component out of functions."""

    def __init__(self, **methods: Ask) -> None:
        self.__dict__.update(methods)


def counting(until: int, *, keep: bool = False) -> Ask:
    """Gives ``n + 1``, and stops with the turn that gives ``until``."""

    def call(call: ToyCall) -> dict[str, int]:
        if call["n"] + 1 == until:
            call.stop("enough", keep=keep)
        return {"n": call["n"] + 1}

    return call


class One(Model):
    """One graph, one track that keeps what it was told in ``heard``."""

    a = Component("some.where:A", kv=PagedKV())
    b = Component("some.where:B", state=True)
    words = Output(Text())
    heard: list[Any]
    asked: Mapping[str, Any] = MappingProxyType({})

    go = WalkGraph(Loop(Node(a, "next", takes="n", gives="n", to=words), carry="n"))

    def setup(self) -> None:
        self.heard = []

    @track
    def going(self, request: Request, prepared: Outcome) -> Track:
        try:
            self.heard.append((yield self.go(**self.asked)))
        except WalkFailed as failure:
            self.heard.append(failure)
            return "error"
        finally:
            self.heard.append("closed")
        return self.heard[0].finish_reason


def walk(graph: WalkGraph, fakes: dict[str, object] | None = None, turns: int = 3, **inputs: Any):
    """Walk ``graph`` of components One.a and One.b: its outcome, and the whole result."""
    model = type("Toy", (One,), {"go": graph, "asked": inputs})()
    result = ToyRuntime(model, fakes, turns=turns).run(model.request())
    return model.heard[0], result


a, b, words = One.a, One.b, One.words
next_n = Node(a, "next", takes="n", gives="n", to=words)


def test_an_outcome_holds_what_its_graph_says_it_gives() -> None:
    both = Node(b, "look", takes="n", gives=("seen", "large"))
    fakes = {"b": Fake(look=lambda call: {"seen": 1, "large": 2})}
    assert walk(WalkGraph(both, gives="seen"), fakes, n=0)[0] == Outcome({"seen": 1})
    assert walk(WalkGraph(both, gives=()), fakes, n=0)[0] == Outcome()


# --- loops ---------------------------------------------------------------------------------------------


def test_a_stop_discards_what_its_turn_gave() -> None:
    outcome, result = walk(WalkGraph(Loop(next_n, carry="n")), {"a": Fake(next=counting(3))}, n=0)
    assert outcome == Outcome({"n": 2}, "enough", 2)
    assert result.outputs == {"words": [1, 2]}


def test_a_stop_that_keeps_counts_its_turn() -> None:
    fakes = {"a": Fake(next=counting(3, keep=True))}
    outcome, result = walk(WalkGraph(Loop(next_n, carry="n")), fakes, n=0)
    assert outcome == Outcome({"n": 3}, "enough", 3)
    assert result.outputs == {"words": [1, 2, 3]}


@pytest.mark.parametrize(("keep", "after"), [(True, [1, 2]), (False, [1])])
def test_the_rest_of_a_turn_runs_only_if_the_turn_counts(keep: bool, after: list[int]) -> None:
    graph = WalkGraph(Loop(Node(a, "next", takes="n", gives="n"), Node(b, "after", takes="n"), carry="n"))
    _, result = walk(graph, {"a": Fake(next=counting(2, keep=keep))}, n=0)
    assert [taken["n"] for taken in result.calls("b.after")] == after


def test_the_cache_holds_what_a_stopped_turn_read() -> None:
    _, result = walk(WalkGraph(Loop(next_n, carry="n")), {"a": Fake(next=counting(3))}, n=0)
    assert result.branches["a", "main"].length == 3


def test_a_stop_of_an_inner_loop_leaves_the_outer_one_alone() -> None:
    inner = Loop(Node(a, "next", takes="n", gives="n"), carry="n")
    graph = WalkGraph(Loop(inner, Node(b, "reset", takes="n", gives="n", to=words), carry="n", times=2))
    fakes = {"a": Fake(next=counting(3)), "b": Fake(reset=lambda call: {"n": call["n"] - 2})}
    outcome, result = walk(graph, fakes, n=0)
    assert outcome == Outcome({"n": 0}, "times", 2 + 4)
    assert result.outputs["words"] == [0, 0]


def test_a_stop_outside_a_loop_ends_the_walk() -> None:
    graph = WalkGraph(Node(b, "first", gives="x"), Node(a, "look", gives="y"), Node(b, "never", takes="y"))
    outcome, result = walk(graph, {"a": Fake(look=lambda call: call.stop("nothing there"))})
    assert outcome == Outcome({"x": "b.first()"}, "nothing there", 0)
    assert "b.never" not in result.did()


def test_a_stop_in_a_parallel_lets_its_neighbours_run() -> None:
    graph = WalkGraph(
        Loop(Parallel(next_n, Node(b, "beside", gives="x")), Node(b, "after", takes="x"), carry="n")
    )
    _, result = walk(graph, {"a": Fake(next=counting(1))}, n=0)
    assert result.did("going") == ["go", "a.next", "b.beside"]


@pytest.mark.parametrize("times", [0, 1, 4])
def test_times_counts_turns_and_none_at_all_passes_the_carry_through(times: int) -> None:
    for given, inputs in ((times, {}), ("most", {"most": times})):
        outcome, _ = walk(
            WalkGraph(Loop(next_n, carry="n", times=given)), {"a": Fake(next=counting(99))}, n=0, **inputs
        )
        assert outcome == Outcome({"n": times}, "times", times)


def test_times_must_be_a_number() -> None:
    outcome, _ = walk(WalkGraph(Loop(next_n, carry="n", times="most")), n=0, most=None)
    assert str(outcome) == "a loop's times='most' is None, which is no number of turns"


def test_a_loop_ends_when_the_shortest_each_is_used_up() -> None:
    graph = WalkGraph(Loop(Node(a, "add", takes=("x", "y"), gives="z"), each={"x": "xs", "y": "ys"}))
    outcome, result = walk(graph, xs=[1, 2, 3], ys="ab")
    assert (outcome.ended_by, outcome.turns) == ("each", 3)  # a word stands for as many words as turns
    assert result.calls("a.add")[0] == {"x": 1, "y": "ab[0]"}
    outcome, _ = walk(graph, xs=[1, 2, 3], ys=[1, 2])
    assert (outcome.ended_by, outcome.turns) == ("each", 2)


def test_a_skipped_node_leaves_the_carry_as_it_was() -> None:
    node = Node(a, "next", takes="n", gives="n", when="goes")
    graph = WalkGraph(Loop(node, carry="n", each={"goes": "going"}, collect={"all": "n"}))
    outcome, result = walk(graph, {"a": Fake(next=counting(99))}, n=0, going=[True, False, True])
    assert outcome == Outcome({"n": 2, "all": [1, 2]}, "each", 3)
    assert len(result.calls("a.next")) == 2


def test_a_loop_that_only_a_stop_would_end_turns_a_stated_number_of_times() -> None:
    outcome, _ = walk(WalkGraph(Loop(next_n, carry="n")), n="start", turns=5)
    assert outcome == Outcome({"n": "a.next(n)"}, "stop", 5)


def test_a_fake_that_never_stops_is_found_out() -> None:
    outcome, _ = walk(WalkGraph(Loop(next_n, carry="n")), {"a": Fake(next=counting(-1))}, n=0)
    assert str(outcome) == "a loop did not end in 10000 turns; no fake in it says stop"


def test_no_part_of_a_parallel_sees_what_another_gives() -> None:
    graph = WalkGraph(
        Loop(
            Parallel(Node(b, "b", takes="m", gives="m"), Node(a, "a", takes="n", gives="n")),
            carry=("n", "m"),
            times=2,
        )
    )
    outcome, _ = walk(
        graph,
        {"a": Fake(a=lambda call: {"n": call["n"] + 1}), "b": Fake(b=lambda call: {"m": call["m"] * 2})},
        n=0,
        m=1,
    )
    assert outcome.values == {"n": 2, "m": 4}


def test_a_none_is_sent_to_nobody() -> None:
    graph = WalkGraph(Loop(Node(a, "say", takes="n", gives="text", to=words), each={"n": "ns"}))
    fakes = {"a": Fake(say=lambda call: {"text": "odd" if call["n"] % 2 else None})}
    assert walk(graph, fakes, ns=[1, 2, 3])[1].outputs == {"words": ["odd", "odd"]}


# --- calls ---------------------------------------------------------------------------------------------


def test_a_state_is_handed_on_from_call_to_call() -> None:
    def add(call: ToyCall) -> dict[str, Any]:
        call.state = (*(call.state or ()), call.turn)
        return {"all": call.state}

    graph = WalkGraph(Loop(Node(b, "add", gives="all", to=words), times=3))
    assert walk(graph, {"b": Fake(add=add)})[1].outputs == {"words": [(0,), (0, 1), (0, 1, 2)]}


def test_a_call_makes_its_cache_longer_by_what_it_reads() -> None:
    def lengths(call: ToyCall) -> None:
        call.count("before", call.length)
        call.tokens = call["n"]

    graph = WalkGraph(Loop(Node(a, "read", takes="n"), each={"n": "ns"}))
    _, result = walk(graph, {"a": Fake(read=lengths)}, ns=[5, 7])
    assert result.branches["a", "main"].length == 12
    assert result.counts == {"before": 5}


def test_a_fake_gives_exactly_what_its_node_says() -> None:
    look = Fake(look=lambda call: {"x": 1, "z": 2})
    outcome, _ = walk(WalkGraph(Node(a, "look", gives=("x", "y"))), {"a": look})
    assert str(outcome) == "a.look: it must give ['x', 'y'], but returned ['x', 'z']"


def test_a_single_value_has_the_name_that_its_node_has_for_it() -> None:
    outcome, _ = walk(WalkGraph(Node(a, "look", gives="x")), {"a": Fake(look=lambda call: {"y": 1})})
    assert outcome["x"] == 1


def test_a_fake_without_the_method_is_refused_at_once() -> None:
    with pytest.raises(DeclarationError, match="the fake of a.next has no such method; did you mean 'nxt'"):
        ToyRuntime(One(), {"a": Fake(nxt=counting(3))})


def test_a_fake_of_no_component_is_refused_at_once() -> None:
    with pytest.raises(DeclarationError, match="One has no component 'c'; known: a, b"):
        ToyRuntime(One(), {"c": Fake()})


def test_a_failed_walk_is_thrown_into_its_track_with_its_cause() -> None:
    def broken(call: ToyCall) -> None:
        raise ZeroDivisionError("by zero")

    outcome, result = walk(WalkGraph(Node(a, "look")), {"a": Fake(look=broken)})
    assert isinstance(outcome, WalkFailed) and isinstance(outcome.__cause__, ZeroDivisionError)
    assert str(outcome) == "a.look: ZeroDivisionError: by zero"
    assert result.finish_reason == "error"


def test_whose_fault_it_is_survives() -> None:
    def refuse(call: ToyCall) -> None:
        raise BadRequest("too loud")

    outcome, _ = walk(WalkGraph(Node(a, "look")), {"a": Fake(look=refuse)})
    assert (outcome.status, outcome.type) == (400, "invalid_request_error")


def test_cancelling_closes_the_tracks() -> None:
    model = type("Toy", (One,), {"asked": {"n": 0}})()
    runtime = ToyRuntime(model, {"a": Fake(next=counting(99))})
    result = runtime.run(model.request(), cancel_after=4)
    assert result.finish_reason == "cancelled"
    assert result.outputs == {"words": [1, 2, 3, 4]}
    assert model.heard == ["closed"]


def test_a_walk_of_another_model_is_refused() -> None:
    class Other(Model):
        part = Component("some.where:Part")
        other = WalkGraph(Node(part, "look"))

        @track
        def looking(self, request: Request, prepared: Outcome) -> Track:
            yield One.go(n=1) if prepared is not None else self.other()
            return None

    with pytest.raises(DeclarationError, match="Other.looking: it walks WalkGraph\\('go'\\), which is not"):
        ToyRuntime(Other()).run(Request((), (), None, 0))


# --- streams -------------------------------------------------------------------------------------------


class Pipe(Model):
    """One track writes ``items``, another reads them."""

    a = Component("some.where:A")
    b = Component("some.where:B", state=True)
    items = Stream(Each(), limit=2)
    words = Output(Text())
    write = WalkGraph(Loop(Node(a, "next", takes="n", gives="n", to=items), carry="n", times="most"))
    read = WalkGraph(Loop(Node(b, "read", takes=items, gives="text", to=words)))
    ends: list[str]

    def setup(self) -> None:
        self.ends = []

    @track(writes=items)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        for _ in range(2):
            wrote = yield self.write(n=0, most=5)
            self.ends.append(wrote.ended_by)
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        read = yield self.read()
        self.ends.append(read.ended_by)
        return read.ended_by


def pipe(read: Ask) -> tuple[Pipe, ToyResult]:
    model = Pipe()
    return model, ToyRuntime(model, {"a": Fake(next=counting(99)), "b": Fake(read=read)}).run(model.request())


def test_a_stream_goes_on_over_the_walks_of_its_writer_and_ends_with_its_track() -> None:
    model, result = pipe(lambda call: {"text": [*call.helping.new]})
    assert [n for text in result.outputs["words"] for n in text] == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    assert model.ends == ["times", "times", "stream"]
    assert result.finish_reason == "stream"


def test_once_its_reader_has_ended_what_is_written_is_discarded() -> None:
    def two(call: ToyCall) -> dict[str, Any]:
        if call.turn == 1:
            call.stop("enough", keep=True)
        return {"text": "x"}

    model, result = pipe(two)
    assert model.ends == ["enough", "times", "times"]
    assert result.streams["items"] == StreamTotal(written=10, taken=2, discarded=8, helpings=2)


def test_a_reader_that_stops_its_writer_also_stops_the_walks_that_follow() -> None:
    def stop(call: ToyCall) -> None:
        call.stop(Stop("heard enough", upstream=True))

    model, result = pipe(stop)
    assert model.ends == ["heard enough"] * 3
    assert len(result.calls("a.next")) <= 2


def test_only_what_reads_a_stream_can_stop_upstream() -> None:
    outcome, _ = walk(
        WalkGraph(Loop(next_n, carry="n")),
        {"a": Fake(next=lambda call: call.stop("enough", upstream=True))},
        n=0,
    )
    assert str(outcome) == "a.next says Stop(upstream=True), but it reads no stream"


def test_a_reader_may_go_on_with_its_next_walk() -> None:
    class Twice(Pipe):
        @track
        def reading(self, request: Request, prepared: Outcome) -> Track:
            first = yield self.read()
            second = yield self.read()
            third = yield self.read()
            return f"{first.ended_by} {second.ended_by} {third.ended_by} {third.turns}"

    def three(call: ToyCall) -> dict[str, Any]:
        if call.turn == 2:
            call.stop("pause", keep=True)
        return {"text": [*call.helping.new]}

    model = Twice()
    result = ToyRuntime(model, {"a": Fake(next=counting(99)), "b": Fake(read=three)}).run(model.request())
    assert result.finish_reason == "pause pause pause 3"
    assert [n for text in result.outputs["words"] for n in text] == [1, 2, 3, 4, 5, 1, 2, 3, 4]


class Client(Model):
    b = Component("some.where:B", state=True)
    frames = Stream(Fixed(2), by="client", limit=3)
    words = Output(Text())
    read = WalkGraph(Loop(Node(b, "read", takes=frames, gives="text", to=words)))

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        yield self.read()
        return None


def test_a_client_writes_a_stream_and_closes_it() -> None:
    model = Client()
    runtime = ToyRuntime(model, {"b": Fake(read=lambda call: {"text": list(call.helping.new)})})
    assert runtime.run(model.request(), client={"frames": "abcde"}).outputs["words"] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert runtime.run(model.request()).outputs["words"] == [[]]


def test_a_client_writes_no_other_stream() -> None:
    model = Client()
    with pytest.raises(DeclarationError, match="the client writes no stream 'codes'; it writes frames"):
        ToyRuntime(model).run(model.request(), client={"codes": []})


class Stuck(Model):
    """The reader wants all of ``second`` before it looks at ``first``, whose writer may not run ahead."""

    a = Component("some.where:A", kv=PagedKV())
    first = Stream(limit=2)
    second = Stream()
    words = Output(Text())
    write = WalkGraph(
        Loop(
            Node(a, "next", takes="n", gives=("n", "m"), to={"n": first, "m": second}),
            carry="n",
            times="most",
        )
    )
    read_first = WalkGraph(Loop(Node(a, "first", takes=first)))
    read_second = WalkGraph(Loop(Node(a, "second", takes=second, gives="word", to=words)))
    closed: list[str]

    def setup(self) -> None:
        self.closed = []

    @track(writes=(first, second))
    def writing(self, request: Request, prepared: Outcome) -> Track:
        try:
            yield self.write(n=0, most=5)
        finally:
            self.closed.append("writing")
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        yield self.read_second()
        yield self.read_first()
        return None


def test_a_request_that_waits_only_on_its_own_streams_fails_and_names_them() -> None:
    model = Stuck()
    with pytest.raises(WalkFailed) as failed:
        ToyRuntime(model).run(model.request())
    assert str(failed.value) == (
        "all of the request's Walks wait on its own streams: writing for room in 'first', "
        "reading for items in 'second'; raise 'first''s limit of 2, or read it without waiting for 'second'"
    )
    assert model.closed == ["writing"]


class Both(Model):
    """One loop reads two streams that end apart."""

    a = Component("some.where:A", kv=PagedKV())
    b = Component("some.where:B")
    long = Stream()
    short = Stream()
    write_long = WalkGraph(Loop(Node(b, "next", gives="x", to=long), times=4))
    write_short = WalkGraph(Loop(Node(b, "next", gives="x", to=short), times=2))
    read = WalkGraph(Loop(Node(a, "long", takes=long, gives="l"), Node(a, "short", takes=(short, "l"))))

    @track(writes=long)
    def one(self, request: Request, prepared: Outcome) -> Track:
        yield self.write_long()
        return None

    @track(writes=short)
    def two(self, request: Request, prepared: Outcome) -> Track:
        yield self.write_short()
        return None

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        yield self.read()
        return None


def test_a_loop_that_reads_two_streams_ends_when_both_have_and_each_has_one_last_helping() -> None:
    result = ToyRuntime(Both()).run(Request((), (), None, 0))
    for name, total in (("long", 4), ("short", 2)):
        helpings = [taken[name] for taken in result.calls(f"a.{name}")]
        assert sum(helping.last for helping in helpings) == 1
        assert sum(helping.fresh for helping in helpings) == total


# --- equal calls ---------------------------------------------------------------------------------------


look = partial(Node, a, "look", keeps=False)


def alike(*nodes: Node, keep: bool = True) -> tuple[Any, Any, list[int]]:
    """Nodes side by side in a loop; ``a.look`` counts, draws a number and then says stop."""
    computed: list[int] = []

    def count(call: ToyCall) -> dict[str, Any]:
        computed.append(call.key("a draw"))
        call.count("looks")
        call.stop("seen", keep=keep)
        return {"it": len(computed)}

    outcome, result = walk(WalkGraph(Loop(Parallel(*nodes), times="m")), {"a": Fake(look=count)}, n=0, m=3)
    return outcome, result, computed


def test_an_equal_call_is_given_counted_and_stopped_as_if_it_were_computed() -> None:
    outcome, result, computed = alike(look(takes="n", gives="x"), look(takes="n", gives="y", to=words))
    assert len(computed) == 1 and result.shared == 1
    assert (result.outputs, result.counts, outcome) == (
        {"words": [1]},
        {"looks": 2},
        Outcome({}, "seen", 1),
    )


def test_a_stop_of_an_equal_call_discards_what_both_give() -> None:
    _, result, computed = alike(
        look(takes="n", gives="x"),
        look(takes="n", gives="y", to=words),
        keep=False,
    )
    assert len(computed) == 1 and result.outputs == {"words": []}


def test_calls_that_take_other_values_are_each_computed() -> None:
    _, result, computed = alike(look(takes="n", gives="x"), look(takes="m", gives="y", to=words))
    assert len(computed) == 2 and result.shared == 0
