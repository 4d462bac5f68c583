"""Which rows of a Parallel are computed, and which are given what an equal one gave: as in the sdk's toy.

Drawn: how branches come to hold what they do, what stands side by side, and what is written between turns.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.worker.test_against_toy import Kept, Rig, heard, on, seeds

from walkserve_sdk import (
    Component,
    Fan,
    Fork,
    Loop,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
    Request,
    Text,
    Track,
    WalkGraph,
    track,
)
from walkserve_sdk.testing import FanItem, ToyCall, ToyRuntime

BRANCHES = ("main", "b", "c")


@dataclass(frozen=True)
class Beside:
    """One node of the Parallel."""

    method: str
    takes: tuple[str, ...]
    branch: str
    when: bool
    is_heard: bool


class Guided(Kept):
    """``script`` makes the branches; then come turns of guidance, all of it twice."""

    lm = Component("some.where:LM", kv=PagedKV(branches=BRANCHES[1:]), state=True)
    judge = Component("some.where:Judge")
    words = Output(Text())
    w0, w1, w2, w3, w4 = (Output(Text()) for _ in range(5))
    read_main = WalkGraph(Node(lm, "read", takes="text"))
    read_b = WalkGraph(Node(lm, "read", takes="text", branch="b"))
    read_c = WalkGraph(Node(lm, "read", takes="text", branch="c"))
    go = WalkGraph(Node(judge, "step", takes="x", gives="x", to={"x": (words, w0, w1, w2, w3, w4)}))

    script: Sequence[tuple[str, ...]] = ()
    flags: Sequence[bool] = ()

    @track
    def guiding(self, request: Request, prepared: Outcome) -> Track:
        reads = {"main": self.read_main, "b": self.read_b, "c": self.read_c}
        for number in range(2):
            for what, *names in self.script:
                if what == "fork":
                    yield Fork(self.lm, names[0], to=names[1])
                else:
                    yield reads[names[0]](text=[number] * 3)
            inputs = {"x": "x", "y": "y", "ys": ["y", "z"], "flags": list(self.flags), "more": [1, 2]}
            told = yield self.go(**{name: inputs[name] for name in self.go.inputs})
            self.keep("guiding", told)
        return None


def guided(beside: Sequence[Beside], writes: str | None, *, fans: bool) -> WalkGraph:
    """A graph of what was drawn."""
    lm, judge, words = Guided.lm, Guided.judge, Guided.words
    outputs = (words, Guided.w0, Guided.w1, Guided.w2, Guided.w3, Guided.w4)
    names = [f"g{number}" for number in range(len(beside))]
    nodes = [
        Node(
            lm if one.method == "velocity" else judge,
            one.method,
            takes=one.takes,
            gives=name,
            to=output if one.is_heard else None,
            branch=one.branch if one.method == "velocity" else "main",
            when="wanted" if one.when else None,
            keeps=one.method != "velocity",
        )
        for name, output, one in zip(names, outputs[1:], beside, strict=False)
    ]
    part = Parallel(*nodes)
    given_names = tuple(name for node in nodes for name in node.gives)
    return WalkGraph(
        Loop(
            Fan(part, over={"y": "ys"}) if fans else part,
            *([Node(lm, "read", takes="more", branch=writes)] if writes else []),
            Node(judge, "step", takes=("x", "wanted", *given_names), gives="x", to={"x": outputs}),
            each={"wanted": "flags"},
            carry="x",
        )
    )


class Fake:
    """Gives words, stops where it is told to, and notes what it computes."""

    def __init__(self, stops: bool) -> None:
        self.stops = stops
        self.computed: Counter[str] = Counter()

    def _word(self, method: str, call: ToyCall) -> str:
        word = f"{method}({sorted(call.values.items())}, {call.length}, {call.row}, {call.key() % 97})"
        self.computed[word] += 1
        call.count(method)
        if self.stops and call.turn == 1 and call.length % 2 == 0:
            call.stop("enough", keep=True)
        return word

    def velocity(self, call: ToyCall) -> dict[str, Any]:
        seen, call.state = call.state, "lost"  # as it keeps nothing
        return {"v": self._word(f"velocity of {seen}", call)}

    def look(self, call: ToyCall) -> dict[str, Any]:
        return {"seen": self._word("look", call)}

    def read(self, call: ToyCall) -> None:
        self._word("read", call)
        call.state = (call.state or 0) + 1

    def step(self, call: ToyCall) -> dict[str, Any]:
        self.computed["step"] += 1
        return {"x": repr(sorted(call.values.items(), key=repr))[-60:]}


besides = st.builds(
    Beside,
    method=st.sampled_from(["velocity", "velocity", "look"]),
    takes=st.sampled_from([("x",), ("x", "y"), ("y", "x")]),
    branch=st.sampled_from(BRANCHES),
    when=st.booleans(),
    is_heard=st.booleans(),
)
branches = st.sampled_from(BRANCHES)
scripts = st.lists(
    st.one_of(
        st.tuples(st.just("fork"), branches, branches),
        st.tuples(st.just("read"), branches),
    ),
    max_size=5,
)


def fakes(stops: bool) -> Mapping[str, Any]:
    fake = Fake(stops)
    return {"lm": fake, "judge": fake}


@settings(max_examples=120, deadline=None)
@given(
    seed=seeds,
    script=scripts,
    beside=st.lists(besides, min_size=1, max_size=4),
    flags=st.lists(st.booleans(), max_size=3),
    writes=st.none() | branches,
    fans=st.booleans(),
    stops=st.booleans(),
)
def test_the_same_rows_are_computed_and_the_same_comes_out(
    seed: int,
    script: list[tuple[str, ...]],
    beside: list[Beside],
    flags: list[bool],
    writes: str | None,
    fans: bool,
    stops: bool,
) -> None:
    if fans:  # which somebody has to take a slice of
        beside.append(Beside("look", ("x", "y"), "main", when=False, is_heard=False))
    go = guided(beside, writes, fans=fans)
    kind = type("Drawn", (Guided,), {"script": script, "flags": flags, "go": go})
    toy, real = kind(), kind()
    of_toy, of_real = fakes(stops), fakes(stops)
    request = toy.request(options={"seed": 3})
    wanted = ToyRuntime(toy, of_toy).run(request)
    rig = Rig(real, of_real, on("rank0", "lm", "judge"), seed)
    got = rig.run(request)
    assert of_real["lm"].computed == of_toy["lm"].computed
    (worker,) = rig.workers.values()
    reported = worker.tally.report("", "", {}, {}).methods
    assert sum(one.spared for one in reported) == wanted.shared
    for name, items in wanted.outputs.items():  # rows of a Fan are in order, each for itself
        assert sorted(got.outputs[name], key=told) == sorted(items, key=told)
    assert got.counts == wanted.counts
    assert heard(real) == heard(toy)
    event(f"{'some' if wanted.shared else 'no'} rows were equal")


def told(item: Any) -> str:
    return f"{item.row} {item.value}" if isinstance(item, FanItem) else str(item)
