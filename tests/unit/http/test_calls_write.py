"""A call whose client writes streams: it waits where it has to, and is told how its request ended."""

import asyncio

import pytest

from walkserve import messages as m
from walkserve.http.callers import Caller
from walkserve_sdk import Part, Stream
from walkserve_sdk.errors import BadRequest, Cancelled, ClientIdle

pytestmark = pytest.mark.anyio
TICKS = Stream(by="client", limit=2)
TICKS.name = "ticks"


@pytest.fixture
def mailbox(stage):
    return stage.FakeMailbox()


@pytest.fixture
async def caller(mailbox, stage):
    async with Caller(mailbox) as caller:
        mailbox.say(stage.READY)
        await caller.wait_until(lambda: caller.state.phase == "ready")
        yield caller


@pytest.fixture
def call(caller, stage):
    request = stage.Parrot().request(parts=[Part("text", "hello")], options={"seed": 7})
    with caller.submit("parrot", request, writes=[TICKS]) as call:
        yield call


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_conductor_is_told_which_streams_will_be_written_and_then_their_items(mailbox, call):
    assert mailbox.sent_of(m.Submit)[0].writes == ("ticks",)
    await call.send("ticks", b"a picture")
    await call.send("ticks", [1, 2.5])
    call.end("ticks")
    call.end("ticks")
    said = [one for _, one in mailbox.sent if isinstance(one, m.WriteStream | m.FinishStream)]
    assert said == [
        m.WriteStream("http", call.tag, "ticks", 0, [m.Blob(b"a picture")]),
        m.WriteStream("http", call.tag, "ticks", 1, [[1, 2.5]]),
        m.FinishStream("http", call.tag, "ticks", 2),
    ]


async def test_it_waits_until_some_of_it_is_read(mailbox, call):
    writing = asyncio.create_task(write_all(call, 5))
    await settle()
    assert len(mailbox.sent_of(m.WriteStream)) == 2 and not writing.done()
    mailbox.say(m.ItemsTaken(call.tag, "ticks", 1))
    await settle()
    assert len(mailbox.sent_of(m.WriteStream)) == 3
    mailbox.say(m.ItemsTaken(call.tag, "ticks", 2), m.ItemsTaken(call.tag, "ticks", 3))
    await asyncio.wait_for(writing, 5)
    assert [one.first for one in mailbox.sent_of(m.WriteStream)] == [0, 1, 2, 3, 4]


async def write_all(call, count):
    for tick in range(count):
        await call.send("ticks", tick)


async def test_once_nobody_reads_any_more_it_waits_for_nobody(mailbox, call):
    writing = asyncio.create_task(write_all(call, 50))
    await settle()
    mailbox.say(m.ItemsTaken(call.tag, "ticks", 0, is_discarded=True))
    await asyncio.wait_for(writing, 5)
    assert len(mailbox.sent_of(m.WriteStream)) == 2
    call.end("ticks")
    assert mailbox.sent_of(m.FinishStream) == []


async def test_whoever_waits_to_write_is_told_how_its_request_failed(mailbox, call):
    writing = asyncio.create_task(write_all(call, 5))
    await settle()
    mailbox.say(m.RequestFailed(call.tag, m.Fault("silent", 408, "timeout", "client_idle")))
    with pytest.raises(ClientIdle, match="silent"):
        await asyncio.wait_for(writing, 5)
    with pytest.raises(ClientIdle):
        call.end("ticks")


async def test_whoever_waits_to_write_is_told_that_it_was_cancelled(call):
    writing = asyncio.create_task(write_all(call, 5))
    await settle()
    call.cancel()
    with pytest.raises(Cancelled):
        await asyncio.wait_for(writing, 5)


async def test_what_is_written_after_a_good_end_goes_nowhere(mailbox, call, stage):
    mailbox.say(stage.ended(call.tag, 0))
    await call.take()
    await write_all(call, 50)
    call.end("ticks")
    assert mailbox.sent_of(m.WriteStream) == mailbox.sent_of(m.FinishStream) == []


async def test_what_cannot_be_written_is_refused_and_the_request_goes_on(mailbox, call):
    with pytest.raises(BadRequest, match="did you mean 'ticks'"):
        await call.send("tick", 1)
    with pytest.raises(BadRequest, match="None is no item"):
        await call.send("ticks", None)
    assert mailbox.sent_of(m.Cancel) == []
    await call.send("ticks", 1)
    assert len(mailbox.sent_of(m.WriteStream)) == 1
