"""Speech through a real web server; the runtime behind it is a fake."""

import asyncio
import io
import wave

import httpx
import numpy as np
import openai
import pytest
import soundfile

from walkserve import messages as m

pytestmark = pytest.mark.anyio
SPEECH = "/v1/audio/speech"
ASK = {"model": "parrot", "input": "hello", "seed": 7}
STREAM = {**ASK, "stream": True}


def speaks(stage, *chunks):
    """A conductor that has every request spoken at once: one item a chunk."""

    def on_submit(mailbox, submit):
        mailbox.say(m.Admitted(submit.tag))
        for first, chunk in enumerate(chunks):
            mailbox.say(stage.emitted(submit.tag, first, stage.sound(*chunk)))
        mailbox.say(stage.ended(submit.tag, len(chunks)))

    return on_submit


def refuses(status=400, **more):
    def on_submit(mailbox, submit):
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("no", status, **more)))

    return on_submit


def ints(pcm):
    return np.frombuffer(pcm, "<i2").tolist()


# --- whole --------------------------------------------------------------------------------------------


async def test_a_whole_file_has_exact_sizes_and_says_how_it_went(stage):
    async with stage.serving(speaks(stage, [0.0, 1.0], [-1.0])) as at:
        response = await at.client.post(SPEECH, json=ASK)
        assert response.status_code == 200
        assert response.headers["content-type"] == "audio/wav"
        assert response.headers["content-length"] == str(44 + 6)
        assert response.headers["x-finish-reason"] == "stop"
        assert response.headers["x-usage-input-tokens"] == "3"
        assert response.headers["x-usage-output-tokens"] == "21"
        assert response.headers["x-seed"] == "7"
        assert response.headers["x-request-id"].startswith("req-")
        with wave.open(io.BytesIO(response.content)) as read:
            assert (read.getframerate(), read.getnframes()) == (8000, 3)
            assert ints(read.readframes(3)) == [0, 32767, -32767]
        assert at.caller.open_calls == 0
        assert at.mailbox.sent_of(m.Cancel) == []


async def test_pcm_is_the_samples_alone_and_the_content_type_says_how_to_read_them(stage):
    async with stage.serving(speaks(stage, [0.0, 1.0])) as at:
        response = await at.client.post(SPEECH, json={**ASK, "response_format": "pcm"})
        assert response.headers["content-type"] == "audio/pcm;rate=8000;channels=1"
        assert ints(response.content) == [0, 32767]


async def test_no_sound_at_all_is_a_file_without_samples(stage):
    async with stage.serving(speaks(stage)) as at:
        for ask in (ASK, STREAM):
            response = await at.client.post(SPEECH, json=ask)
            assert response.status_code == 200
            assert len(response.content) == 44


async def test_openais_own_client_is_served(stage):
    async with stage.serving(speaks(stage, [0.5] * 10)) as at:
        client = openai.AsyncOpenAI(base_url=f"{at.server.url}/v1", api_key="none", max_retries=0)
        speech = await client.audio.speech.create(
            model="parrot:toy", input="hello", voice="JACK", response_format="wav", speed=1.0
        )
        assert soundfile.info(io.BytesIO(speech.content)).frames == 10
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.audio.speech.create(model="parrot:toy", input="hello", voice="nobody")
        assert wrong.value.param == "voice"
        await client.close()


async def test_instructions_and_speed_reach_a_family_that_says_it_takes_them(stage):
    async with stage.serving(speaks(stage)) as at:
        ask = {"model": "actor", "input": "hello", "instructions": "whisper!", "speed": 0.5}
        assert (await at.client.post(SPEECH, json=ask)).status_code == 200
        (submit,) = at.mailbox.sent_of(m.Submit)
        assert submit.options.max_tokens == 16


# --- streamed -----------------------------------------------------------------------------------------


async def test_a_stream_is_one_header_of_unknown_size_and_the_samples_as_they_come(stage):
    tags = []
    async with stage.serving(lambda mailbox, submit: tags.append(submit.tag)) as at:
        sending = at.client.build_request("POST", SPEECH, json=STREAM)
        opening = asyncio.create_task(at.client.send(sending, stream=True))
        await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(stage.emitted(tags[0], 0, stage.sound(0.0, 1.0)))
        response = await opening  # the end is not known yet
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.headers["x-seed"] == "7"
        pieces = response.aiter_raw()
        first = await anext(pieces)
        assert first[4:8] == first[40:44] == b"\xff\xff\xff\xff"
        assert ints(first[44:]) == [0, 32767]
        at.mailbox.say(stage.emitted(tags[0], 1, stage.sound(-1.0)))
        second = await anext(pieces)
        assert ints(second) == [-32767]
        at.mailbox.say(stage.ended(tags[0], 2))
        assert [piece async for piece in pieces] == []
        with wave.open(io.BytesIO(first + second)) as read:
            assert read.readframes(read.getnframes()) == (first + second)[44:]
        assert soundfile.read(io.BytesIO(first + second))[0].shape == (3,)
        assert at.mailbox.sent_of(m.Cancel) == []


@pytest.mark.parametrize(
    ("fields", "is_streamed"),
    [
        ({}, False),
        ({"stream": False}, False),
        ({"stream": True}, True),
        ({"stream_format": "audio"}, True),
        ({"stream": None, "stream_format": None}, False),
    ],
)
async def test_a_stream_is_sent_when_one_is_asked_for(stage, fields, is_streamed):
    async with stage.serving(speaks(stage, [0.5])) as at:
        response = await at.client.post(SPEECH, json={**ASK, **fields})
        assert ("content-length" not in response.headers) == is_streamed
        assert (response.content[4:8] == b"\xff\xff\xff\xff") == is_streamed


@pytest.mark.parametrize("number", [1, 2, 7, 60])
async def test_the_stream_is_the_whole_without_its_header(stage, number):
    chunks = [[n / 100, -n / 100] for n in range(number)]
    async with stage.serving(speaks(stage, *chunks)) as at:
        for kind, header in (("wav", 44), ("pcm", 0)):
            whole = await at.client.post(SPEECH, json={**ASK, "response_format": kind})
            streamed = await at.client.post(SPEECH, json={**STREAM, "response_format": kind})
            assert streamed.content[header:] == whole.content[header:]


# --- failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [ASK, STREAM])
async def test_a_failure_before_the_first_sample_has_its_own_status(stage, ask):
    async with stage.serving(refuses(429, type="rate", code="full", param="text")) as at:
        response = await at.client.post(SPEECH, json=ask)
        assert response.status_code == 429
        assert response.json() == {
            "error": {"message": "no", "type": "rate", "code": "full", "param": "input"}
        }
        assert at.mailbox.sent_of(m.Cancel) == []


@pytest.mark.parametrize("ask", [ASK, STREAM])
async def test_a_server_that_is_not_ready_says_so_and_when_to_come_again(stage, ask):
    async with stage.serving(refuses(503, type="unavailable", code="unavailable")) as at:
        response = await at.client.post(SPEECH, json=ask)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert response.json()["error"]["code"] == "unavailable"
        at.caller.conductor_died()
        assert (await at.client.post(SPEECH, json=ask)).status_code == 503


async def test_a_failure_in_mid_stream_closes_the_connection_before_the_end(stage):
    tags = []
    async with stage.serving(lambda mailbox, submit: tags.append(submit.tag)) as at:
        opening = asyncio.create_task(
            at.client.send(at.client.build_request("POST", SPEECH, json=STREAM), stream=True)
        )
        await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(stage.emitted(tags[0], 0, stage.sound(0.5)))
        response = await opening
        at.mailbox.say(m.RequestFailed(tags[0], m.Fault("lost a worker", 503)))
        got = b""
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            async for piece in response.aiter_raw():
                got += piece
        assert len(got) == 46  # what came before is not lost
        assert (await at.client.get("/health")).status_code == 200


async def test_an_output_that_is_no_sound_is_our_fault(stage):
    def on_submit(mailbox, submit):
        mailbox.say(m.Emitted("speech", [submit.tag], ["words"]))

    async with stage.serving(on_submit) as at:
        assert (await at.client.post(SPEECH, json=ASK)).status_code == 500
        assert len(await at.mailbox.wait_for(m.Cancel)) == 1


# --- clients that leave -------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [ASK, STREAM])
@pytest.mark.parametrize("heard", [0, 1])
async def test_a_request_is_cancelled_when_its_client_leaves(stage, ask, heard, caplog):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json=ask))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        if heard:
            at.mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.5)))
            await asyncio.sleep(0.02)
        asking.cancel()
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]
        assert at.caller.open_calls == 0
        assert caplog.text == ""


async def test_a_client_that_does_not_read_is_cut_and_others_are_served(stage):
    async with stage.serving(buffer_bytes=1 << 20) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port, limit=1024)
        body = b'{"model": "parrot", "input": "hello", "stream": true}'
        head = "POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        loud = stage.sound(*[0.5] * 50_000)
        for first in range(400):  # 80 MB of float32, half as much on the wire
            at.mailbox.say(stage.emitted(submit.tag, first, loud))
            await asyncio.sleep(0)
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]
        got = b""
        while piece := await asyncio.wait_for(reader.read(1 << 16), 5):
            got += piece
        assert len(got) < 20_000_000
        assert not got.endswith(b"0\r\n\r\n")  # and so it knows that there is more
        writer.close()
        assert at.caller.open_calls == 0
        assert (await at.client.get("/health")).status_code == 200


# --- the web server's life ----------------------------------------------------------------------------


async def test_draining_lets_a_response_under_way_end(stage):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json=ASK))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.server.drain()
        await asyncio.sleep(0.3)
        assert not asking.done()
        at.mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.5)), stage.ended(submit.tag, 1))
        assert (await asking).status_code == 200
        with pytest.raises(httpx.ConnectError):
            await at.client.get("/health", headers={"connection": "close"})


async def test_stopping_cancels_what_is_open(stage):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json=ASK))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.server.stop()
        with pytest.raises(httpx.HTTPError):
            await asking
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]


# --- what is refused ----------------------------------------------------------------------------------

BAD = [
    # what is sent, status, param, a word of the message
    ({"input": "hi"}, 400, "model", "missing"),
    ({"model": "parrot"}, 400, "input", "missing"),
    ({"model": 3, "input": "hi"}, 400, "model", "expected `str`, got `int`"),
    ({"model": "parrot", "input": ["hi"]}, 400, "input", "expected `str`, got `array`"),
    ({"model": "parrot", "input": None}, 400, "input", "got `null`"),
    ({**ASK, "voice": 7}, 400, "voice", "expected"),
    ({**ASK, "stream": "yes"}, 400, "stream", "expected"),
    ({**ASK, "stream": 1}, 400, "stream", "expected"),
    ({**ASK, "model": "nobody"}, 404, "model", "there is no model 'nobody'"),
    ({**ASK, "model": "painter:a"}, 400, "model", "makes image"),
    ({**ASK, "input": ""}, 400, "input", "nothing to say"),
    ({**ASK, "input": " \n\t "}, 400, "input", "nothing to say"),
    ({**ASK, "voice": "nobody"}, 400, "voice", "polly, jack"),
    ({**ASK, "voice": ""}, 400, "voice", "polly, jack"),
    ({**ASK, "max_tokens": 0}, 400, "max_tokens", ">= 1"),
    ({**ASK, "max_tokens": -1}, 400, "max_tokens", ">= 1"),
    ({**ASK, "max_tokens": "ten"}, 400, "max_tokens", "expected `int`"),
    ({**ASK, "max_tokens": 1.5}, 400, "max_tokens", "expected `int`"),
    ({**ASK, "seed": -1}, 400, "seed", ">= 0"),
    ({**ASK, "seed": 2**63}, 400, "seed", ""),
    ({**ASK, "seed": 2**70}, 400, "seed", ""),
    ({**ASK, "respone_format": "wav"}, 400, "respone_format", "did you mean 'response_format'?"),
    ({**ASK, "max_token": 3}, 400, "max_token", "did you mean 'max_tokens'?"),
    ({**ASK, "n": 3}, 400, "n", "unknown field 'n'"),
    ({**ASK, "max_tokens": 2**64}, 400, "max_tokens", "at most 64 bits, got 18446744073709551616"),
    ({**ASK, "sampling": {"top_p": 1}}, 400, "sampling", "send its fields flat: temperature, top_k, top_p, "),
    ({**ASK, "top_q": 1}, 400, "top_q", "did you mean 'top_p'?"),
    ({**ASK, "model": "actor", "speed": 5}, 400, "speed", "from 0.25 to 4, got 5"),
    ({**ASK, "response_format": "aac"}, 400, "response_format", "there is wav, pcm, flac, mp3, opus"),
    ({**ASK, "response_format": "WAVE"}, 400, "response_format", "there is wav, pcm, flac, mp3, opus"),
    ({**ASK, "response_format": ""}, 400, "response_format", "there is wav, pcm, flac, mp3, opus"),
    ({**ASK, "speed": 1.5}, 400, "speed", "only 1"),
    ({**ASK, "speed": 0}, 400, "speed", "only 1"),
    ({**ASK, "instructions": "whisper"}, 400, "instructions", "no instructions"),
    ({**ASK, "stream_format": "websocket"}, 400, "stream_format", "there is audio, sse"),
    ({**ASK, "stream_format": "sse", "stream": False}, 400, "stream", "one of them"),
    ({**ASK, "split": "word"}, 400, "split", "there is sentence"),
    ({**ASK, "split": True}, 400, "split", "expected `str | null`, got `bool`"),
    ({**ASK, "model": "choir", "response_format": "mp3"}, 400, "response_format", "at most 2 channels"),
]


@pytest.mark.parametrize(("sent", "status", "param", "word"), BAD, ids=lambda value: str(value)[:60])
async def test_what_cannot_be_served_is_refused_with_the_field_at_fault(stage, sent, status, param, word):
    async with stage.serving() as at:
        response = await at.client.post(SPEECH, json=sent)
        assert response.status_code == status
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["param"] == param
        assert word in error["message"]
        if status == 404:
            assert error["code"] == "model_not_found"
        assert at.mailbox.sent_of(m.Submit) == []


async def test_a_whole_number_may_be_written_with_a_point(stage):
    async with stage.serving(lambda mailbox, submit: mailbox.say(stage.ended(submit.tag, 0))) as at:
        fields = '{"model": "parrot", "input": "hi", "seed": 311.0, "max_tokens": %s, "temperature": 1.0}'
        headers = {"content-type": "application/json"}
        answer = await at.client.post("/v1/audio/speech", content=fields % "5.0", headers=headers)
        assert (answer.status_code, answer.headers["x-seed"]) == (200, "311")
        (submit,) = await at.mailbox.wait_for(stage.Submit)
        assert submit.options.max_tokens == 5
        refused = await at.client.post("/v1/audio/speech", content=fields % "5.5", headers=headers)
        assert refused.json()["error"]["param"] == "max_tokens"
