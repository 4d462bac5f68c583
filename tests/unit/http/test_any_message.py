"""The HTTP process among senders that say anything: it hears on, and other requests are answered."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.drawn import messages

from walkserve import messages as m
from walkserve.delivery import Done, Failed
from walkserve.http.callers import Caller
from walkserve.http.calls import Items
from walkserve_sdk import Part

pytestmark = pytest.mark.anyio

NAMES = ("parrot", "parrot.rank0", "parrot.rank0.0", "speech", "ready", "lost", "float32", "", "http")
DRAWN = messages(m.ToClient | m.Unreadable, NAMES)


@given(heard=st.lists(st.lists(DRAWN, max_size=3), max_size=8))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_messages_never_end_the_listening_and_a_good_request_is_answered(stage, heard):
    async def story() -> list[object]:
        mailbox = stage.FakeMailbox()
        request = stage.Parrot().request(parts=[Part("text", "hello")], options={"seed": 7})
        async with Caller(mailbox, profiles=True) as caller:
            caller._hear_all([stage.READY])
            calls = [caller.submit("parrot", request) for _ in range(3)]  # whose tags are drawn, too
            for frame in heard:
                caller._hear_all(frame)
            caller._hear_all([stage.READY])
            for call in calls:
                call.cancel()
            with caller.submit("parrot", request) as call:
                caller._hear_all([stage.emitted(call.tag, 0, stage.sound(0.5)), stage.ended(call.tag, 1)])
                return await asyncio.wait_for(call.take(), 5)

    items, done = asyncio.run(story())
    assert isinstance(items, Items)
    assert isinstance(done, Done)


async def test_a_message_of_several_requests_that_cannot_be_heard_fails_these_and_no_other(stage):
    mailbox = stage.FakeMailbox()
    request = stage.Parrot().request(parts=[Part("text", "hello")], options={"seed": 7})
    async with Caller(mailbox) as caller:
        caller._hear_all([stage.READY])
        first, second, third = [caller.submit("parrot", request) for _ in range(3)]
        uneven = m.Emitted("speech", [first.tag, second.tag], [stage.sound(0.5)])
        caller._hear_all([uneven, m.Unreadable("RequestEnded", tags=(12345,))])
        for call in (first, second):
            last = (await call.take())[-1]
            assert isinstance(last, Failed)
            assert (last.fault.status, last.fault.code) == (500, "unreadable")
        assert not third.is_over
        assert [one.tag for one in mailbox.sent_of(m.Cancel)] == [first.tag, second.tag]
        third.cancel()


async def test_a_request_whose_message_could_not_be_read_fails_instead_of_waiting(stage):
    mailbox = stage.FakeMailbox()
    request = stage.Parrot().request(parts=[Part("text", "hello")], options={"seed": 7})
    async with Caller(mailbox) as caller:
        caller._hear_all([stage.READY])
        call = caller.submit("parrot", request)
        mailbox.say(m.Unreadable("RequestEnded", tags=(call.tag,)))
        (failed,) = await asyncio.wait_for(call.take(), 5)
        assert failed.fault.message == "a RequestEnded of this request could not be read"
