"""The HTTP process's side of the runtime, against a mailbox that is only lists."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from walkserve import messages as m
from walkserve.delivery import Done, Failed
from walkserve.http.callers import Caller
from walkserve.http.calls import Items
from walkserve.transport.base import Unsendable
from walkserve.transport.shm import Arena, ArenaReader
from walkserve_sdk import Part
from walkserve_sdk.errors import BadRequest, Unavailable

pytestmark = pytest.mark.anyio


@pytest.fixture
def mailbox(stage):
    return stage.FakeMailbox()


@pytest.fixture
def request_of_parrot(stage):
    return stage.Parrot().request(parts=[Part("text", "hello")], options={"max_tokens": 3, "seed": 7})


async def ready(caller, mailbox, stage):
    mailbox.say(stage.READY)
    await caller.wait_until(lambda: caller.state.phase == "ready")


async def settle(caller):
    for _ in range(5):
        await asyncio.sleep(0)


async def test_it_asks_for_the_state_and_keeps_the_newest(mailbox, stage):
    async with Caller(mailbox) as caller:
        assert caller.state.phase == "starting"
        assert mailbox.sent == [("conductor", m.Attach("http"))]
        mailbox.say(m.Loading("parrot.rank0", "speaker", False))
        await caller.wait_until(lambda: bool(caller.loading))
        assert caller.loading == {("parrot.rank0", "speaker"): False}
        await ready(caller, mailbox, stage)
        assert caller.state == stage.READY


async def test_a_request_is_submitted_complete(mailbox, stage, request_of_parrot):
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        with caller.submit("parrot:toy", request_of_parrot) as call:
            (submit,) = mailbox.sent_of(m.Submit)
            assert submit == m.Submit(
                "http",
                call.tag,
                "parrot:toy",
                (m.SentPart("text", b"hello"),),
                ("speech",),
                request_of_parrot.options,
                7,
                ("max_tokens", "seed"),
                call.record.id,
            )


async def test_nothing_is_submitted_before_the_conductor_has_answered(mailbox, request_of_parrot):
    async with Caller(mailbox) as caller:
        with pytest.raises(Unavailable, match="parrot is not ready: starting"):
            caller.submit("parrot", request_of_parrot)


async def test_the_end_is_held_back_until_every_item_it_counts_has_arrived(mailbox, stage, request_of_parrot):
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        with caller.submit("parrot", request_of_parrot) as call:
            end = stage.ended(call.tag, 2)
            mailbox.say(m.Admitted(call.tag), stage.emitted(call.tag, 0, stage.sound(0.5)), end)
            (first,) = await call.take()
            assert isinstance(first, Items)
            assert first.items[0].tolist() == [0.5]
            assert not call.is_over
            mailbox.say(stage.emitted(call.tag, 1, stage.sound(0.25)))
            await settle(caller)
            second, done = await call.take()
            assert second.items[0].tolist() == [0.25]
            assert done == Done(end)
        assert mailbox.sent_of(m.Cancel) == []
        assert caller.open_calls == 0


async def test_what_cannot_be_sent_is_the_clients_mistake_and_is_named(mailbox, stage):
    def refuse(to, messages):
        raise Unsendable(to, messages, "too large")

    request = stage.Parrot().request(parts=[Part("text", "hello")], options={"max_tokens": 5, "seed": 7})
    request = replace(request, options=replace(request.options, max_tokens=2**64))
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        mailbox.send = refuse
        with pytest.raises(BadRequest, match="max_tokens: 18446744073709551616 cannot be sent") as refused:
            caller.submit("parrot", request)
        assert refused.value.param == "max_tokens"
        assert caller.open_calls == 0


async def test_frames_that_keep_coming_leave_turns_to_others(mailbox, stage):
    async def receive():  # has always something
        return [m.Loading("w", "c", True)]

    mailbox.receive = receive
    async with asyncio.timeout(5), Caller(mailbox) as caller:
        await settle(caller)
        assert caller.loading == {("w", "c"): True}


async def test_leaving_before_the_end_cancels(mailbox, stage, request_of_parrot):
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        with caller.submit("parrot", request_of_parrot) as call:
            pass
        call.cancel()
        assert mailbox.sent_of(m.Cancel) == [m.Cancel("http", call.tag)]
        assert caller.open_calls == 0


async def test_an_error_reaches_only_its_own_call(mailbox, stage, request_of_parrot):
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        bad, good = (caller.submit("parrot", request_of_parrot) for _ in range(2))
        fault = m.Fault("no", 400, "invalid_request_error")
        mailbox.say(m.RequestFailed(bad.tag, fault), stage.ended(good.tag, 0))
        assert await bad.take() == [Failed(fault)]
        assert await good.take() == [Done(stage.ended(good.tag, 0))]


async def test_lent_tensors_are_read_and_freed(mailbox, stage, request_of_parrot, tmp_path):
    samples = np.arange(9, dtype=np.float32)
    arena, reader = Arena(tmp_path, "parrot.rank0.1", 1 << 16), ArenaReader(tmp_path)
    try:
        slot = arena.put(samples.tobytes())
        ref = m.TensorRef("parrot.rank0.1", slot.key, slot.segment, slot.offset, slot.size, "float32", (9,))
        async with Caller(mailbox, reader) as caller:
            await ready(caller, mailbox, stage)
            with caller.submit("parrot", request_of_parrot) as call:
                mailbox.say(m.Emitted("speech", [call.tag], [ref]))
                (items,) = await call.take()
                assert items.items[0].tolist() == samples.tolist()
                assert mailbox.sent[-1] == ("parrot.rank0.1", m.FreeTensors([slot.key]))
    finally:
        reader.close()
        arena.close()


async def test_what_comes_for_a_cancelled_call_is_freed_too(mailbox, stage, request_of_parrot):
    ref = m.TensorRef("parrot.rank0.1", 5, "x.arena", 0, 4, "float32", (1,))
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        with caller.submit("parrot", request_of_parrot) as call:
            pass
        mailbox.say(m.Emitted("speech", [call.tag, call.tag], [ref, 3]))
        await mailbox.wait_for(m.FreeTensors)
        assert mailbox.sent[-1] == ("parrot.rank0.1", m.FreeTensors([5]))


async def test_an_item_that_cannot_be_read_fails_its_call_and_is_freed(
    mailbox, stage, request_of_parrot, tmp_path
):
    ref = m.TensorRef("parrot.rank0.1", 5, "gone.0.arena", 0, 4, "float32", (1,))
    async with Caller(mailbox, ArenaReader(tmp_path)) as caller:
        await ready(caller, mailbox, stage)
        call, other = (caller.submit("parrot", request_of_parrot) for _ in range(2))
        mailbox.say(m.Emitted("speech", [call.tag], [ref]), stage.ended(other.tag, 0))
        (failed,) = await call.take()
        assert failed.fault.status == 503
        assert mailbox.sent_of(m.Cancel) == [m.Cancel("http", call.tag)]
        assert mailbox.sent_of(m.FreeTensors) == [m.FreeTensors([5])]
        assert isinstance((await other.take())[0], Done)


async def test_a_worker_that_is_gone_is_forgotten_and_sent_nothing(mailbox, stage, request_of_parrot):
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        mailbox.say(m.ServerState("starting", "parrot.rank0 died", 55, ()))
        await caller.wait_until(lambda: caller.state.phase == "starting")
        assert mailbox.forgotten == ["parrot.rank0.1"]
        mailbox.say(m.Emitted("speech", [99], [m.TensorRef("parrot.rank0.1", 5, "x", 0, 4, "float32", (1,))]))
        await settle(caller)
        assert mailbox.sent_of(m.FreeTensors) == []


async def test_a_client_that_is_too_slow_is_cut_and_the_others_go_on(mailbox, stage, request_of_parrot):
    cuts = []
    async with Caller(mailbox, buffer_bytes=16) as caller:
        await ready(caller, mailbox, stage)
        slow = caller.submit("parrot", request_of_parrot, on_cut=lambda: cuts.append("slow"))
        fast = caller.submit("parrot", request_of_parrot, on_cut=lambda: cuts.append("fast"))
        for first in range(3):
            for call in (slow, fast):
                mailbox.say(stage.emitted(call.tag, first, stage.sound(0.1, 0.2)))
            assert (await fast.take())[0].items[0].size == 2
        (failed,) = await slow.take()
        assert failed.fault.code == "too_slow"
        assert cuts == ["slow"]
        assert mailbox.sent_of(m.Cancel) == [m.Cancel("http", slow.tag)]


async def test_one_item_larger_than_the_buffer_is_not_a_slow_clients_fault(mailbox, stage, request_of_parrot):
    async with Caller(mailbox, buffer_bytes=4) as caller:
        await ready(caller, mailbox, stage)
        call = caller.submit("parrot", request_of_parrot)
        mailbox.say(stage.emitted(call.tag, 0, stage.sound(*[0.0] * 100)))
        assert (await call.take())[0].items[0].size == 100
        assert call.waiting_bytes == 0


async def test_what_waits_is_taken_in_pieces_of_a_bounded_size(mailbox, stage, request_of_parrot):
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        call = caller.submit("parrot", request_of_parrot)
        mailbox.say(
            *(stage.emitted(call.tag, n, stage.sound(0.0, 0.0)) for n in range(4)), stage.ended(call.tag, 4)
        )
        while not call.is_over:
            await asyncio.sleep(0)
        assert [len(await call.take(16)) for _ in range(3)] == [2, 2, 1]


async def test_when_the_conductor_dies_every_open_call_fails_and_new_ones_are_refused(
    mailbox, stage, request_of_parrot
):
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        calls = [caller.submit("parrot", request_of_parrot) for _ in range(3)]
        caller.conductor_died()
        for call in calls:
            (failed,) = await call.take()
            assert (failed.fault.status, failed.fault.code) == (503, "conductor_lost")
        with pytest.raises(Unavailable):
            caller.submit("parrot", request_of_parrot)
        assert caller.open_calls == 0
        await ready(caller, mailbox, stage)
        caller.submit("parrot", request_of_parrot)


async def test_a_message_nobody_should_send_here_is_passed_over(mailbox, stage):
    async with Caller(mailbox) as caller:
        mailbox.say(m.StopWorker())
        await ready(caller, mailbox, stage)


async def test_closing_ends_whoever_still_waits(mailbox, stage, request_of_parrot):
    async with Caller(mailbox) as caller:
        await ready(caller, mailbox, stage)
        call = caller.submit("parrot", request_of_parrot)
        waiting = asyncio.create_task(call.take())
        await settle(caller)
    (failed,) = await waiting
    assert failed.fault.status == 503
    assert mailbox.sent_of(m.Cancel) == [m.Cancel("http", call.tag)]
