"""Speech as server-sent events, with OpenAI's names."""

import asyncio
import base64
import json

import openai
import pytest

from walkserve import messages as m
from walkserve.http.sse import event

pytestmark = pytest.mark.anyio
SPEECH = "/v1/audio/speech"
ASK = {"model": "parrot", "input": "hello", "seed": 7, "stream_format": "sse"}


def speaks(stage, *chunks):
    def on_submit(mailbox, submit):
        for first, chunk in enumerate(chunks):
            mailbox.say(stage.emitted(submit.tag, first, stage.sound(*chunk)))
        mailbox.say(stage.ended(submit.tag, len(chunks), "length"))

    return on_submit


def events(body: bytes) -> list[tuple[str | None, dict]]:
    """Each event's name and data; nothing else may stand in the body."""
    *blocks, rest = body.decode().split("\n\n")
    assert rest == ""
    found = []
    for block in blocks:
        lines = block.split("\n")
        name = lines.pop(0).removeprefix("event: ") if lines[0].startswith("event: ") else None
        (data,) = lines
        assert data.startswith("data: ")
        found.append((name, json.loads(data.removeprefix("data: "))))
    return found


def test_an_event_is_one_line_of_data_whatever_is_in_it():
    assert event({"a": "b\n\ndata: c\r"}) == b'data: {"a":"b\\n\\ndata: c\\r"}\n\n'
    assert event({}, "error") == b"event: error\ndata: {}\n\n"


@pytest.mark.parametrize("name", ["wav", "pcm", "flac", "mp3", "opus"])
async def test_the_deltas_of_all_events_are_the_raw_stream(stage, name):
    async with stage.serving(speaks(stage, [0.1] * 4000, [0.2] * 4000)) as at:
        response = await at.client.post(SPEECH, json={**ASK, "response_format": name})
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-seed"] == "7"
        *deltas, (_, done) = events(response.content)
        assert all(
            each == (None, {"type": "speech.audio.delta", "audio": each[1]["audio"]}) for each in deltas
        )
        assert done == {
            "type": "speech.audio.done",
            "usage": {"input_tokens": 3, "output_tokens": 21, "total_tokens": 24},
            "finish_reason": "length",
            "seed": 7,
            "request_id": response.headers["x-request-id"],
            "audio_s": 1.0,
        }
        raw = await at.client.post(
            SPEECH, json={**ASK, "response_format": name, "stream_format": "audio", "stream": True}
        )
        assert response.headers["x-audio-content-type"] == raw.headers["content-type"]
        sound = b"".join(base64.b64decode(delta["audio"], validate=True) for _, delta in deltas)
        if name == "opus":  # whose files have a random number each
            assert len(sound) == len(raw.content)
        else:
            assert sound == raw.content
        assert at.mailbox.sent_of(m.Cancel) == []


async def test_the_first_event_leaves_before_the_last_sample_is_made(stage):
    async with stage.serving() as at:
        sending = at.client.build_request("POST", SPEECH, json={**ASK, "response_format": "pcm"})
        opening = asyncio.create_task(at.client.send(sending, stream=True))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.0, 1.0)))
        response = await opening
        pieces = response.aiter_raw()
        assert events(await anext(pieces)) == [(None, {"type": "speech.audio.delta", "audio": "AAD/fw=="})]
        at.mailbox.say(stage.ended(submit.tag, 1))
        rest = b"".join([piece async for piece in pieces])
        assert [data["type"] for _, data in events(rest)] == ["speech.audio.done"]


async def test_a_failure_before_the_first_event_has_its_own_status(stage):
    def refuses(mailbox, submit):
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("no", 429, type="rate", code="full")))

    async with stage.serving(refuses) as at:
        response = await at.client.post(SPEECH, json=ASK)
        assert response.status_code == 429
        assert response.json()["error"]["code"] == "full"


@pytest.mark.parametrize("failure", ["fault", "not sound"])
async def test_a_failure_after_it_is_an_error_event_and_the_end(stage, failure):
    async with stage.serving() as at:
        opening = asyncio.create_task(at.client.post(SPEECH, json=ASK))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.5)))
        await asyncio.sleep(0.05)
        if failure == "fault":
            at.mailbox.say(m.RequestFailed(submit.tag, m.Fault("lost a worker", 503, "unavailable", "lost")))
            error = {"message": "lost a worker", "type": "unavailable", "param": None, "code": "lost"}
        else:
            at.mailbox.say(m.Emitted("speech", [submit.tag], ["words"]))
            message = "an internal error; the server's log has it"
            error = {"message": message, "type": "server_error", "param": None, "code": "internal_error"}
        (_, delta), end = events((await opening).content)
        assert delta["type"] == "speech.audio.delta"
        assert end == ("error", {"error": error})
        assert at.caller.open_calls == 0


async def test_openais_own_client_reads_the_events_and_raises_the_error(stage):
    def breaks(mailbox, submit):
        mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.5)))
        failed = m.RequestFailed(submit.tag, m.Fault("broken", 500, "server_error"))
        asyncio.get_running_loop().call_later(0.05, lambda: mailbox.say(failed))

    conductors = iter([speaks(stage, [0.5] * 100), breaks])
    async with stage.serving(lambda mailbox, submit: next(conductors)(mailbox, submit)) as at:
        client = openai.AsyncOpenAI(base_url=f"{at.server.url}/v1", api_key="none", max_retries=0)

        async def ask() -> list[str]:
            async with client.audio.speech.with_streaming_response.create(
                model="parrot", input="hello", voice="polly", response_format="pcm", stream_format="sse"
            ) as response:
                stream = openai.AsyncStream(cast_to=object, response=response.http_response, client=client)
                return [data["type"] async for data in stream]

        assert await ask() == ["speech.audio.delta", "speech.audio.done"]

        with pytest.raises(openai.APIError, match="broken"):
            await ask()
        await client.close()


async def test_a_request_is_cancelled_when_its_client_leaves(stage, caplog):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json=ASK))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.5)))
        await asyncio.sleep(0.02)
        asking.cancel()
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]
        assert caplog.text == ""
