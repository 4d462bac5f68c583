"""Streams that a client writes, in the runtime and in the toy: what comes of them is the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.worker.test_against_toy import CLIENT, Given, Rig, few, on, seeds

from walkserve import messages as m
from walkserve.writing import Writing
from walkserve_sdk import (
    Component,
    Fixed,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    Request,
    Stream,
    Text,
    Track,
    WalkFailed,
    WalkGraph,
    track,
)
from walkserve_sdk.streams import Each
from walkserve_sdk.testing import ToyCall, ToyRuntime

TAG = 7


class WritingRig(Rig):
    """Its client writes when it may; when it does is drawn like everything else."""

    def __init__(self, *how: Any, items: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(*how)
        self.writes = tuple(items)
        spec = self.served.model.spec
        self.left = {name: list(some) for name, some in items.items()}
        self.writing = Writing(CLIENT, TAG, [spec.streams[name] for name in items])

    def submit(self, request: Request, writes: tuple[str, ...] = ()) -> None:
        super().submit(request, writes or self.writes)

    def _steps(self) -> list[Callable[[], None]]:
        steps = super()._steps()
        for name, left in self.left.items():
            if not left or not self.writing.has_to_wait(self.writing.item(name, left[0])):
                steps.append(lambda name=name: self._write(name))
        return steps

    def _write(self, name: str) -> None:
        left = self.left[name]
        if left:
            message: m.Message | None = self.writing.write(self.writing.item(name, left.pop(0)))
            self.given.written[name] += 1
        else:
            del self.left[name]
            message = self.writing.finish(name)
        if message is not None:
            self.mail[CLIENT, "conductor"].append(message)

    def _tell_client(self, message: m.Message) -> None:
        if isinstance(message, m.ItemsTaken):
            self.writing.took(message)
        else:
            super()._tell_client(message)


def both(
    kind: type[Model],
    fakes: Callable[[], Mapping[str, object]],
    seed: int,
    items: Mapping[str, Sequence[Any]],
) -> tuple[Given, Given]:
    """What the runtime gives, and the toy."""
    request = kind().request(options={"seed": 3})
    ranks = {name: "toy.host" if name == "eye" else "toy.rank0" for name in kind.spec.components}
    got = WritingRig(kind(), fakes(), ranks, seed, items=items).run(request)
    result = ToyRuntime(kind(), fakes()).run(request, client=items)
    wanted = Given(
        result.outputs,
        result.finish_reason,
        result.counts,
        {name: total.written for name, total in result.streams.items()},
        {name: total.taken for name, total in result.streams.items()},
    )
    return got, wanted


class Eye:
    """Doubles what it sees; its last helping may be empty."""

    def see(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        new = list(call.helping.new)
        call.count("last", int(call.helping.last))
        return {"seen": "".join(f"{2 * one} " for one in new) if new else None}


class Pilot:
    """Answers with all that it was ever told."""

    def steer(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        assert len(call.helping.new) <= 1, "one tick a Walk"
        call.state = (call.state or "") + "".join(call.helping.new)
        call.count("last moves", int(call.helping.last))
        return {"move": f"[{call.state.strip()}] " if call.helping.new else None}


def fakes() -> dict[str, object]:
    return {"eye": Eye(), "pilot": Pilot()}


class Drive(Model):
    """Ticks over the host to the device, one Walk for each."""

    eye = Component("some.where:Eye", device="cpu")
    pilot = Component("some.where:Pilot", state=True)
    ticks = Stream(Each(), by="client", limit=2)
    seen = Stream(Each(), limit=2)
    moves = Output(Text())
    watch = WalkGraph(Loop(Node(eye, "see", takes=ticks, gives="seen", to=seen)))
    steer = WalkGraph(Loop(Node(pilot, "steer", takes=seen, gives="move", to=moves), times=1))

    @track(writes=seen)
    def watching(self, request: Request, prepared: Outcome) -> Track:
        yield self.watch()
        return None

    @track
    def steering(self, request: Request, prepared: Outcome) -> Track:
        while True:
            moved = yield self.steer()
            assert moved.turns == 1
            if moved.ended_by == "stream":
                return "driven"
            assert moved.ended_by == "times"


@few
@given(seed=seeds, count=st.integers(0, 12))
def test_one_walk_takes_one_tick_and_the_last_helping_ends_the_track(seed: int, count: int) -> None:
    got, wanted = both(Drive, fakes, seed, {"ticks": range(count)})
    assert got == wanted
    assert got.counts == {"last": 1, "last moves": 1}
    assert len(got.outputs["moves"]) == count


class Batches(Model):
    """The client's stream is read in larger helpings."""

    eye = Component("some.where:Eye", device="cpu")
    pilot = Component("some.where:Pilot")
    ticks = Stream(Fixed(3, most=6), by="client", limit=7)
    moves = Output(Text())
    watch = WalkGraph(Loop(Node(eye, "see", takes=ticks, gives="seen", to=moves)))

    @track
    def watching(self, request: Request, prepared: Outcome) -> Track:
        yield self.watch()
        return None


@few
@given(seed=seeds, count=st.integers(0, 20))
def test_however_the_clients_items_are_cut_they_are_the_stream(seed: int, count: int) -> None:
    got, wanted = both(Batches, fakes, seed, {"ticks": range(count)})
    for one in (got, wanted):  # how much is one helping is a matter of time
        one.outputs = {"moves": ["".join(one.outputs["moves"])]}
    assert got == wanted


class Enough(Model):
    """It has seen enough after three ticks."""

    eye = Component("some.where:Eye", device="cpu")
    ticks = Stream(Each(), by="client", limit=2)
    moves = Output(Text())
    watch = WalkGraph(Loop(Node(eye, "see", takes=ticks, gives="seen", to=moves), times=3))

    @track
    def watching(self, request: Request, prepared: Outcome) -> Track:
        yield self.watch()
        return "enough"


@few
@given(seed=seeds, count=st.integers(3, 12))
def test_a_client_that_writes_on_when_its_reader_has_ended_is_never_held_up(seed: int, count: int) -> None:
    rig = WritingRig(Enough(), fakes(), on("host", "eye"), seed, items={"ticks": range(count)})
    got = rig.run(Enough().request(options={"seed": 3}))
    assert got.finish_reason == "enough" and got.taken["ticks"] == 3
    assert got.outputs["moves"] == ["0 ", "2 ", "4 "]
    assert rig.left == {}, "whatever was still written went nowhere"


class Pairs(Pilot):
    """Says what it reads of two streams."""

    def pair(self, call: ToyCall) -> dict[str, Any]:
        return {"move": None}


class TwoOfTheClient(Model):
    """It reads what its client writes beside what it makes itself, for which there is little room."""

    eye = Component("some.where:Eye", device="cpu")
    pilot = Component("some.where:Pilot")
    ticks = Stream(Each(), by="client", limit=2)
    seen = Stream(Each(), limit=1)
    more = Stream(Each(), by="client", limit=2)
    moves = Output(Text())
    watch = WalkGraph(Loop(Node(eye, "see", takes=ticks, gives="seen", to=seen)))
    steer = WalkGraph(Loop(Node(pilot, "pair", takes=(seen, more), gives="move", to=moves)))

    @track(writes=seen)
    def watching(self, request: Request, prepared: Outcome) -> Track:
        yield self.watch()
        return None

    @track
    def steering(self, request: Request, prepared: Outcome) -> Track:
        yield self.steer()
        return "driven"


@few
@given(seed=seeds)
def test_who_waits_for_the_client_is_not_stalled_however_full_its_own_streams_are(seed: int) -> None:
    """``seen`` is full, and ``more`` has nothing until the client, done with its ticks, writes to it."""
    fakes = {"eye": Eye(), "pilot": Pairs()}
    items = {"ticks": range(4), "more": [1, 2, 3, 4]}
    rig = WritingRig(TwoOfTheClient(), fakes, on("host", "eye") | on("rank0", "pilot"), seed, items=items)
    more = rig.left.pop("more")
    rig.submit(TwoOfTheClient().request(options={"seed": 3}), writes=tuple(items))
    rig.go_on()
    (life,) = rig.conductor.lives
    assert life.rounds is not None and life.rounds.is_blocked and life.rests
    rig.left["more"] = more
    rig.go_on()
    assert rig.end().finish_reason == "driven"


class TwoOfItsOwn(Model):
    """The same, but nothing is ever written to ``more``."""

    eye = Component("some.where:Eye", device="cpu")
    pilot = Component("some.where:Pilot")
    ticks = Stream(Each(), by="client", limit=2)
    seen = Stream(Each(), limit=1)
    more = Stream(Each(), limit=2)
    moves = Output(Text())
    watch = WalkGraph(
        Loop(Node(eye, "see", takes=ticks, gives=("seen", "again"), to={"seen": seen, "again": more}))
    )
    steer = WalkGraph(Loop(Node(pilot, "pair", takes=(seen, more), gives="move", to=moves)))

    @track(writes=(seen, more))
    def watching(self, request: Request, prepared: Outcome) -> Track:
        yield self.watch()
        return None

    @track
    def steering(self, request: Request, prepared: Outcome) -> Track:
        yield self.steer()
        return "driven"


@few
@given(seed=seeds)
def test_a_request_that_waits_only_on_its_own_streams_fails_though_its_client_writes_on(seed: int) -> None:
    with pytest.raises(WalkFailed, match="all of the request's Walks wait on its own streams"):
        both(TwoOfItsOwn, lambda: {"eye": Eye(), "pilot": Pairs()}, seed, {"ticks": range(20)})
