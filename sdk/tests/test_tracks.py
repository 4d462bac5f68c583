"""Tracks: generators that are resumed once per Walk, and what their Outcomes say."""

from typing import Any

import pytest

from walkserve_sdk import (
    Component,
    DeclarationError,
    Fork,
    Model,
    Node,
    Outcome,
    PagedKV,
    Request,
    Track,
    Walk,
    WalkFailed,
    WalkGraph,
    track,
)
from walkserve_sdk.tracks import Finished, TrackRun

closed: list[str] = []


class Plans(Model):
    llm = Component("some.where:LM", kv=PagedKV(branches=("no_text",)))
    read = WalkGraph(Node(llm, "read", takes="ids", gives="id"))

    @track
    def reading(self, request: Request, prepared: Outcome) -> Track:
        first = yield self.read(ids=prepared["ids"])
        yield Fork(self.llm, "main", to="no_text")
        second = yield self.read(ids=first["id"])
        return second.finish_reason

    @track
    def catching(self, request: Request, prepared: Outcome) -> Track:
        try:
            yield self.read(ids=1)
        except WalkFailed:
            return "error"
        finally:
            closed.append("catching")
        return None

    @track
    def resting(self, request: Request, prepared: Outcome) -> None:
        return None

    @track
    def returning(self, request: Request, prepared: Outcome) -> Any:
        return self.read(ids=1)

    @track
    def rambling(self, request: Request, prepared: Outcome) -> Any:
        yield "read"

    @track
    def boasting(self, request: Request, prepared: Outcome) -> Any:
        yield self.read(ids=1)
        return 42


def run(name: str) -> TrackRun:
    model = Plans()
    return TrackRun(model.spec.tracks[name], model, None, Outcome({"ids": [1]}))


def test_a_track_is_resumed_once_per_step_and_counts_its_walks() -> None:
    reading = run("reading")
    first = reading.start()
    assert isinstance(first, Walk) and first.inputs == {"ids": [1]}
    assert reading.send(Outcome({"id": 5})) == Fork(Plans.llm, "main", to="no_text")
    second = reading.send(Outcome())
    assert isinstance(second, Walk) and second.inputs == {"ids": 5}
    assert reading.walks == 2
    assert reading.send(Outcome(ended_by="times")) == Finished("length")


def test_a_track_that_returns_at_once_is_one_the_request_does_not_need() -> None:
    assert run("resting").start() == Finished(None)


def test_a_failed_walk_is_thrown_into_its_track() -> None:
    catching = run("catching")
    catching.start()
    assert catching.throw(WalkFailed("no luck")) == Finished("error")


def test_a_track_that_does_not_take_a_failure_passes_it_on() -> None:
    reading = run("reading")
    reading.start()
    with pytest.raises(WalkFailed, match="no luck"):
        reading.throw(WalkFailed("no luck"))


def test_cancelling_runs_the_finally_clauses() -> None:
    closed.clear()
    catching = run("catching")
    catching.start()
    catching.close()
    assert closed == ["catching"]


def test_a_track_that_returns_its_walk_is_told_to_yield_it() -> None:
    with pytest.raises(DeclarationError) as refused:
        run("returning")
    assert str(refused.value).startswith("returning: a track is a generator, this one returned Walk(")
    assert str(refused.value).endswith("; write yield, not return")


def test_a_track_yields_walks_and_forks_only() -> None:
    with pytest.raises(DeclarationError) as refused:
        run("rambling").start()
    assert str(refused.value) == "rambling: a track yields Walks and Forks, not 'read'"


def test_a_track_returns_a_reason_or_nothing() -> None:
    boasting = run("boasting")
    boasting.start()
    with pytest.raises(DeclarationError) as refused:
        boasting.send(Outcome())
    assert str(refused.value) == "boasting: a track returns a finish reason or None, not 42"


def test_a_fork_knows_its_branches() -> None:
    with pytest.raises(DeclarationError) as refused:
        Fork(Plans.llm, "main", to="no_txt")
    assert str(refused.value) == (
        "Fork(Component('llm')): no branch 'no_txt'; did you mean 'no_text'?; "
        "branches are declared by Component(kv=PagedKV(branches=...))"
    )
    assert Fork(Plans.llm, None, to="main").branch is None
    with pytest.raises(DeclarationError, match="no branch 'min'; did you mean 'main'"):
        Fork(Plans.llm, None, to="min")


@pytest.mark.parametrize(
    ("ended_by", "reason"),
    [("times", "length"), ("end", "stop"), ("each", "stop"), ("stream", "stop"), ("image", "image")],
)
def test_an_outcome_says_in_a_clients_words_how_it_ended(ended_by: str, reason: str) -> None:
    assert Outcome(ended_by=ended_by).finish_reason == reason


def test_an_outcome_is_read_by_name() -> None:
    outcome = Outcome({"ids": [1], "length": 1})
    assert outcome["length"] == 1 and list(outcome) == ["ids", "length"] and len(outcome) == 2
    with pytest.raises(KeyError, match="the Walk gave no 'lenght'; did you mean 'length'"):
        outcome["lenght"]
