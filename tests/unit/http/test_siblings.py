"""Several calls that make one answer each, taken together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.delivery import Done
from walkserve.http.callers import Caller
from walkserve.http.calls import Call
from walkserve.http.problems import Faulted
from walkserve.http.siblings import Siblings, sibling_seeds
from walkserve.http.terms import Terms
from walkserve_sdk import Request


@asynccontextmanager
async def open_siblings(stage: Any, n: int) -> AsyncIterator[tuple[Any, Caller, Siblings]]:
    mailbox = stage.FakeMailbox()
    async with Caller(mailbox) as caller:
        mailbox.say(stage.READY)
        await caller.wait_until(lambda: caller.state.phase == "ready")
        model, terms = stage.Parrot(), Terms()
        requests = [model.request(options={"seed": seed}) for seed in sibling_seeds(5, n)]

        def submit(request: Request) -> Call:
            return caller.submit("parrot:toy", request, terms=terms)

        with Siblings(requests, submit, {"text": "input"}) as siblings:
            yield mailbox, caller, siblings


@pytest.fixture
def said(stage):
    return lambda tag: stage.emitted(tag, 0, stage.sound(0.5))


def ended(tag: int, count: int = 1) -> m.RequestEnded:
    return m.RequestEnded(tag, "stop", 5, {"speech": count}, {"input_tokens": 3, "output_tokens": 7}, {})


def test_each_has_a_seed_of_its_own_and_none_is_too_large():
    assert sibling_seeds(5, 3) == [5, 6, 7]
    assert sibling_seeds(2**63 - 1, 2) == [2**63 - 1, 0]


def test_all_run_at_once_and_what_comes_says_whose_it_is(stage, said):
    async def run() -> None:
        async with open_siblings(stage, 3) as (mailbox, _, siblings):
            tags = [submit.tag for submit in mailbox.sent_of(m.Submit)]
            assert len(tags) == 3 and [each.seed for each in mailbox.sent_of(m.Submit)] == [5, 6, 7]
            mailbox.say(said(tags[2]))
            ((index, items),) = await siblings.take()
            assert index == 2 and items.output == "speech"
            mailbox.say(ended(tags[2]), said(tags[0]), ended(tags[0]), said(tags[1]), ended(tags[1]))
            done = set()
            while came := await siblings.take():
                done |= {index for index, event in came if isinstance(event, Done)}
            assert done == {0, 1, 2} == set(siblings.ended)
            assert siblings.record.state == "done"
            assert siblings.record.usage == {"input_tokens": 9, "output_tokens": 21}

    asyncio.run(run())


def test_what_came_before_a_failure_is_taken_first_and_then_all_are_cancelled(stage, said):
    async def run() -> None:
        async with open_siblings(stage, 2) as (mailbox, caller, siblings):
            first, second = (submit.tag for submit in mailbox.sent_of(m.Submit))
            mailbox.say(
                said(first), m.RequestFailed(first, m.Fault("no", 400, "invalid_request_error", param="text"))
            )
            await asyncio.sleep(0.01)
            ((index, _),) = await siblings.take()
            assert index == 0
            with pytest.raises(Faulted) as failed:
                await siblings.take()
            assert failed.value.param == "input"  # as the client calls it
            assert caller.open_calls == 1
        assert [each.tag for each in mailbox.sent_of(m.Cancel)] == [second]

    asyncio.run(run())


def test_one_that_has_enough_ends_well_and_what_it_would_still_give_is_not_computed(stage, said):
    async def run() -> None:
        async with open_siblings(stage, 2) as (mailbox, caller, siblings):
            first, second = (submit.tag for submit in mailbox.sent_of(m.Submit))
            mailbox.say(m.Admitted(first, 3), said(first))
            await siblings.take()
            assert siblings.settle(0, "stop", output_tokens=2).usage == {
                "input_tokens": 3,
                "output_tokens": 2,
            }
            assert [each.tag for each in mailbox.sent_of(m.Cancel)] == [first]
            mailbox.say(said(first), said(second), ended(second))
            came = []
            while some := await siblings.take():
                came += some
            assert {index for index, _ in came} == {1}
            assert siblings.record.state == "done" and siblings.record.finish_reason == "stop"
            assert siblings.record.usage == {"input_tokens": 6, "output_tokens": 9}
            assert caller.open_calls == 0

    asyncio.run(run())


def test_leaving_cancels_what_runs(stage):
    async def run() -> None:
        async with open_siblings(stage, 3) as (mailbox, _, siblings):
            taking = asyncio.ensure_future(siblings.take())
            await asyncio.sleep(0.01)
            taking.cancel()
        assert len(mailbox.sent_of(m.Cancel)) == 3
        assert siblings.record.state == "cancelled"

    asyncio.run(run())
