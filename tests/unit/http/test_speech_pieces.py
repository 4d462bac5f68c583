"""A long text as one stream: a call for each of its sentences, joined in order."""

import asyncio

import numpy as np
import pytest

from walkserve import messages as m

pytestmark = pytest.mark.anyio
SPEECH = "/v1/audio/speech"
TEXT = "One thing. Two things! Three?"
ASK = {"model": "parrot", "input": TEXT, "split": "sentence", "response_format": "pcm", "seed": 7}


def ints(pcm: bytes) -> list[int]:
    return np.frombuffer(pcm, "<i2").tolist()


def text_of(submit: m.Submit) -> str:
    (part,) = submit.parts
    return part.data.decode()


def says_its_number(stage):
    """A conductor whose n-th call is spoken as samples of n."""
    calls = []

    def on_submit(mailbox, submit):
        calls.append(submit)
        item = stage.sound(*[len(calls) / 32767] * 3)
        mailbox.say(stage.emitted(submit.tag, 0, item), stage.ended(submit.tag, 1))

    return on_submit


@pytest.mark.parametrize("stream", [False, True])
async def test_each_sentence_is_a_call_and_their_sounds_are_joined_in_order(stage, stream):
    async with stage.serving(says_its_number(stage)) as at:
        response = await at.client.post(SPEECH, json={**ASK, "stream": stream})
        assert ints(response.content) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        submits = at.mailbox.sent_of(m.Submit)
        assert [text_of(submit) for submit in submits] == ["One thing.", "Two things!", "Three?"]
        assert {submit.seed for submit in submits} == {7}
        if not stream:
            assert response.headers["x-usage-input-tokens"] == "9"
            assert response.headers["x-usage-output-tokens"] == "63"
        status = (await at.client.get(f"/v1/requests/{response.headers['x-request-id']}")).json()
        assert status["state"] == "done"
        assert status["usage"] == {"input_tokens": 9, "output_tokens": 63}
        assert at.mailbox.sent_of(m.Cancel) == []
        assert at.caller.open_calls == 0


async def test_a_seed_that_is_drawn_is_that_of_every_piece(stage):
    async with stage.serving(says_its_number(stage)) as at:
        ask = {name: value for name, value in ASK.items() if name != "seed"}
        response = await at.client.post(SPEECH, json=ask)
        seeds = {submit.seed for submit in at.mailbox.sent_of(m.Submit)}
        assert seeds == {int(response.headers["x-seed"])}


async def test_without_split_a_text_is_one_call(stage):
    async with stage.serving(says_its_number(stage)) as at:
        await at.client.post(SPEECH, json={**ASK, "split": None})
        assert [text_of(submit) for submit in at.mailbox.sent_of(m.Submit)] == [TEXT]


async def test_the_next_piece_is_submitted_when_one_begins_to_sound_and_none_beyond_it(stage):
    async with stage.serving() as at:
        opening = asyncio.create_task(
            at.client.send(at.client.build_request("POST", SPEECH, json={**ASK, "stream": True}), stream=True)
        )
        (first,) = await at.mailbox.wait_for(m.Submit)
        await asyncio.sleep(0.02)
        assert len(at.mailbox.sent_of(m.Submit)) == 1

        at.mailbox.say(stage.emitted(first.tag, 0, stage.sound(0.0)))
        response = await opening
        _, second = await at.mailbox.wait_for(m.Submit, 2)

        # all of the second comes while the first still sounds: it waits, and so does the third
        at.mailbox.say(stage.emitted(second.tag, 0, stage.sound(1.0)), stage.ended(second.tag, 1))
        at.mailbox.say(stage.emitted(first.tag, 1, stage.sound(-1.0)))
        pieces = response.aiter_raw()
        assert ints(await anext(pieces) + await anext(pieces)) == [0, -32767]
        assert len(at.mailbox.sent_of(m.Submit)) == 2

        at.mailbox.say(stage.ended(first.tag, 2))
        assert ints(await anext(pieces)) == [32767]
        third = (await at.mailbox.wait_for(m.Submit, 3))[2]
        status = (await at.client.get(f"/v1/requests/{response.headers['x-request-id']}")).json()
        assert status["state"] == "running"
        at.mailbox.say(stage.ended(third.tag, 0))
        assert b"".join([piece async for piece in pieces]) == b""
        assert at.caller.open_calls == 0


async def test_a_piece_with_nothing_to_say_does_not_stop_the_others(stage):
    def on_submit(mailbox, submit):
        is_silent = text_of(submit) != "Three?"
        items = [] if is_silent else [stage.sound(1.0)]
        mailbox.say(*[stage.emitted(submit.tag, 0, item) for item in items])
        mailbox.say(stage.ended(submit.tag, len(items), "stop" if is_silent else "length"))

    async with stage.serving(on_submit) as at:
        response = await at.client.post(SPEECH, json=ASK)
        assert ints(response.content) == [32767]
        assert response.headers["x-finish-reason"] == "length"


async def test_a_client_that_leaves_cancels_the_piece_that_sounds_and_the_one_ahead(stage):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json={**ASK, "stream": True}))
        (first,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(stage.emitted(first.tag, 0, stage.sound(0.0)))
        _, second = await at.mailbox.wait_for(m.Submit, 2)
        asking.cancel()
        cancelled = await at.mailbox.wait_for(m.Cancel, 2)
        assert {cancel.tag for cancel in cancelled} == {first.tag, second.tag}
        assert at.caller.open_calls == 0
        (record,) = at.caller.requests._records.values()
        assert record.state == "cancelled"


async def test_a_piece_that_fails_fails_the_stream_after_what_came_before_it(stage):
    def on_submit(mailbox, submit):
        if text_of(submit).startswith("Two"):
            mailbox.say(m.RequestFailed(submit.tag, m.Fault("too long", 400, param="text")))
        else:
            mailbox.say(stage.emitted(submit.tag, 0, stage.sound(1.0)), stage.ended(submit.tag, 1))

    async with stage.serving(on_submit) as at:
        whole = await at.client.post(SPEECH, json=ASK)
        assert whole.status_code == 400
        assert whole.json()["error"]["param"] == "input"
        streamed = await at.client.post(SPEECH, json={**ASK, "stream_format": "sse"})
        assert streamed.status_code == 200
        first, last = streamed.text.strip().split("\n\n")
        assert '"audio":"/38="' in first
        assert last.startswith("event: error") and "too long" in last
        for response in (whole, streamed):
            status = (await at.client.get(f"/v1/requests/{response.headers['x-request-id']}")).json()
            assert (status["state"], status["error"]["message"]) == ("failed", "too long")
        assert at.caller.open_calls == 0
        assert [text_of(submit)[:3] for submit in at.mailbox.sent_of(m.Submit)] == ["One", "Two"] * 2


async def test_a_piece_that_cannot_be_submitted_leaves_no_request_that_runs_forever(stage):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json={**ASK, "stream_format": "sse"}))
        (first,) = await at.mailbox.wait_for(m.Submit)
        at.caller.state = m.ServerState("stopped", "its conductor process died", 0, ())
        at.mailbox.say(stage.emitted(first.tag, 0, stage.sound(1.0)))
        response = await asking
        assert response.status_code == 503
        assert "its conductor process died" in response.json()["error"]["message"]
        assert at.caller.open_calls == 0
        (record,) = at.caller.requests._records.values()
        assert not record.is_running


async def test_a_very_long_text_is_cut_as_it_is_spoken(stage):
    async with stage.serving() as at:
        ask = {**ASK, "input": "Word after word. " * 50_000, "stream": True}
        asking = asyncio.create_task(at.client.post(SPEECH, json=ask))
        (first,) = await at.mailbox.wait_for(m.Submit)
        assert text_of(first) == "Word after word."
        asking.cancel()
        await at.mailbox.wait_for(m.Cancel)
