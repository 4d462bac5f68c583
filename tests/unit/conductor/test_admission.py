"""What a request will need of every cache: cut to what fits, or refused with both numbers."""

from dataclasses import dataclass

import pytest

from walkserve.conductor.admission import fit, longest_branches, pages_needed
from walkserve.conductor.served import Served
from walkserve.messages import PoolInfo
from walkserve_sdk import (
    Budget,
    Component,
    ContextLengthExceeded,
    DeclarationError,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Request,
    Text,
    Track,
    WalkGraph,
    track,
)


class Both(Model):
    """Two caches: the second needs twice what the first does."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        max_tokens: int = 100

    first = Component("some.where:First", kv=PagedKV())
    second = Component("some.where:Second", kv=PagedKV(branches=("no_text", "no_image")))
    words = Output(Text())
    go = WalkGraph(Node(first, "go", gives="text", to=words))

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        length, more = prepared["length"], request.options.max_tokens
        return {self.first: (length, more), self.second: (0, 2 * more)}

    @track
    def going(self, request: Request, prepared: Outcome) -> Track:
        yield self.go()
        return None


class Plain(Both):
    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {}


class Fixed(Both):
    """Says itself how far it goes."""

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.first: (prepared["length"], 10)}


def pools(first: int = 1000, second: int = 1000, context: int = 1000) -> dict[str, PoolInfo]:
    return {
        "first": PoolInfo(pages=first, page_size=4, context=context),
        "second": PoolInfo(pages=second, page_size=16, context=context),
    }


def fitted(
    length: int, known: dict[str, PoolInfo], model: Model | None = None, **options: int
) -> tuple[int, Budget]:
    model = model or Both()
    request, budget = fit(model, model.request(options=options), Outcome({"length": length}), known)
    return request.options.max_tokens, budget


def test_a_request_that_fits_is_left_as_it_is() -> None:
    assert fitted(10, pools()) == (100, {Both.first: (10, 100), Both.second: (0, 200)})


def test_a_model_without_a_budget_needs_nothing() -> None:
    assert fitted(10, pools(), Plain()) == (100, {})
    assert pages_needed({}, pools()) == {}


def test_a_default_length_is_cut_to_what_the_context_holds() -> None:
    known = {"first": PoolInfo(1000, 4, 60), "second": PoolInfo(1000, 16, 1000)}
    assert fitted(10, known) == (50, {Both.first: (10, 50), Both.second: (0, 100)})


def test_a_default_length_is_cut_to_what_the_whole_pool_holds() -> None:
    assert fitted(10, pools(first=5)) == (10, {Both.first: (10, 10), Both.second: (0, 20)})


def test_an_explicit_length_that_cannot_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextLengthExceeded) as refused:
        fitted(10, pools(first=5), max_tokens=50)
    assert str(refused.value) == (
        "this needs 60 tokens of first (10 to begin with, 50 to come), "
        "but one request may have 20; shorten the input or max_tokens"
    )
    assert (refused.value.status, refused.value.param) == (400, "max_tokens")
    assert refused.value.code == "context_length_exceeded"


def test_an_explicit_length_that_fits_is_kept() -> None:
    assert fitted(10, pools(first=5), max_tokens=10)[0] == 10


def test_an_input_that_fills_the_pool_is_refused_whatever_the_length() -> None:
    for length in (20, 21):
        with pytest.raises(ContextLengthExceeded, match="one request may have 20") as refused:
            fitted(length, pools(first=5))
        assert refused.value.param == "text"


def test_an_input_that_leaves_room_for_one_token_is_served() -> None:
    assert fitted(19, pools(first=5)) == (1, {Both.first: (19, 1), Both.second: (0, 2)})


def test_a_length_that_is_no_option_cannot_be_cut() -> None:
    with pytest.raises(ContextLengthExceeded, match="this needs 25 tokens of first"):
        fitted(15, pools(first=5), Fixed())


def test_pages_are_whole_and_for_every_branch() -> None:
    budget = {Both.first: (10, 7), Both.second: (0, 16)}
    assert pages_needed(budget, pools()) == {"first": 5, "second": 3}
    assert pages_needed({Both.second: (0, 17)}, pools()) == {"second": 6}
    assert pages_needed({Both.first: (0, 0)}, pools()) == {"first": 0}


def test_of_a_branch_that_a_fan_forks_the_start_and_one_row_are_reserved() -> None:
    """Whatever the start ends in is copied by the row: 10 tokens of its own in 3 pages, 7 more in 3."""
    budget, fanned = {Both.first: (10, 7), Both.second: (0, 16)}, {"first": 1}
    assert pages_needed(budget, pools(), fanned) == {"first": 6, "second": 3}
    assert longest_branches(budget) == {"first": 17, "second": 16}


def test_what_a_fan_needs_is_admitted_only_where_it_fits() -> None:
    model, known = Both(), pools(first=5)
    request = model.request(options={"max_tokens": 7})
    assert fit(model, request, Outcome({"length": 10}), known)[0] is request
    with pytest.raises(ContextLengthExceeded, match="needs 17 tokens of first .* one request may have 16"):
        fit(model, request, Outcome({"length": 10}), known, {"first": 1})
    fit(model, request, Outcome({"length": 9}), known, {"first": 1})


def test_a_default_length_is_cut_so_that_every_cache_fits() -> None:
    """Where a cache grows by two tokens for each that the option counts, half of its room is what fits."""
    most, budget = fitted(10, pools(second=6))  # 32 tokens of the second on each of its three branches
    assert (most, budget[Both.second]) == (16, (0, 32))


def test_what_is_admitted_can_be_reserved() -> None:
    """With three branches a request of 20 tokens takes 6 pages, and would wait for a pool of 4 for ever."""
    known = pools(second=4)
    with pytest.raises(ContextLengthExceeded, match="this needs 20 tokens of second .* may have 16"):
        fitted(1, known, max_tokens=10)
    _, budget = fitted(1, known, max_tokens=8)
    assert pages_needed(budget, known)["second"] <= known["second"].pages


def test_all_caches_of_a_request_are_promised_or_none() -> None:
    served = Served("both", Both(), {"first": "both.rank0", "second": "both.rank1"})
    served.pools = pools(first=10, second=4)
    served.reserved = {"first": 2, "second": 3}
    assert served.has_room_for({"first": 8, "second": 1})
    assert not served.has_room_for({"first": 9, "second": 1})
    assert not served.has_room_for({"first": 1, "second": 2})
    assert served.has_room_for({})
    served.overcommit = 1.5
    assert served.has_room_for({"first": 13, "second": 3})
    assert not served.has_room_for({"first": 13, "second": 4})


class Guided(Both):
    """Its branches have the prompt of main: one adds nothing to it, one adds as much as main does."""

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        length, more = prepared["length"], request.options.max_tokens
        return {
            self.second: (length, more),
            self.second.on("no_text"): (0, 0),
            self.second.on("no_image"): (0, more),
        }


def test_a_branch_with_a_size_of_its_own_is_given_that_and_the_page_in_which_it_parts() -> None:
    budget = Guided().budget(Guided().request(options={"max_tokens": 33}), Outcome({"length": 480}))
    assert pages_needed(budget, pools()) == {"second": 33 + 1 + (3 + 1)}  # of 16 tokens
    assert longest_branches(budget) == {"second": 513}


def test_a_limit_is_cut_to_what_fits_beside_branches_of_their_own() -> None:
    most, budget = fitted(480, pools(second=40), Guided())
    assert most == 64  # 34 pages, one page, and five
    assert pages_needed(budget, pools(second=40)) == {"second": 40}


def test_what_never_fits_beside_branches_of_their_own_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextLengthExceeded) as refused:
        fitted(480, pools(second=40), Guided(), max_tokens=65)
    assert str(refused.value) == (
        "this needs 545 tokens of second (480 to begin with, 65 to come), but one request may have 528; "
        "shorten the input or max_tokens"
    )


@pytest.mark.parametrize("branch", ["main", "no_txt"])
def test_a_size_of_its_own_is_for_a_branch_that_there_is_besides_main(branch: str) -> None:
    with pytest.raises(
        DeclarationError, match=rf"second.on\('{branch}'\): besides main its branches are no_text, no_im"
    ):
        Both.second.on(branch)


class Forgetful(Both):
    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.second.on("no_text"): (1, 2)}


def test_a_budget_with_a_branch_and_not_its_component_is_a_mistake_of_the_family() -> None:
    with pytest.raises(DeclarationError, match="size of second@no_text, but not of second; say what"):
        fitted(10, pools(), Forgetful())
