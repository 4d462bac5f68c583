"""Every format from the real server: another library reads it, and the digits are heard in it."""

from __future__ import annotations

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor

import av
import httpx
import numpy as np
import openai
import pytest

from walk_plugin_orpheus.toy.dtmf import digits_heard

SPEECH = "/v1/audio/speech"
ASK = {"model": "orpheus", "input": "call 5 5 1", "voice": "tara", "temperature": 0, "seed": 3}
FORMATS = ("wav", "pcm", "flac", "mp3", "opus")
MAGIC = {"wav": b"RIFF", "flac": b"fLaC", "mp3": b"\xff\xf3", "opus": b"OggS", "pcm": b""}
TYPES = {
    "wav": "audio/wav",
    "pcm": "audio/pcm;rate=24000;channels=1",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg;codecs=opus",
}


def _post(server, **fields) -> httpx.Response:
    return httpx.post(f"{server.url}{SPEECH}", json=ASK | fields, timeout=60)


def _heard(name: str, data: bytes) -> tuple[np.ndarray, int, int]:
    """Samples, rate and channels, by a library that has no part in writing."""
    if name == "pcm":
        return np.frombuffer(data, "<i2") / 32768, 24_000, 1
    with av.open(io.BytesIO(data)) as file:
        (stream,) = file.streams.audio
        blocks = [frame.to_ndarray().reshape(-1) for frame in file.decode(stream)]
        samples = np.concatenate(blocks)
        return samples / (32768 if samples.dtype == np.int16 else 1), stream.rate, stream.channels


def _events(text: str) -> list[dict]:
    return [json.loads(block.removeprefix("data: ")) for block in text.strip().split("\n\n")]


@pytest.mark.parametrize("manner", ["whole", "streamed", "events"])
@pytest.mark.parametrize("name", FORMATS)
def test_the_digits_are_heard_in_every_format(toy_server, name, manner):
    fields = {"whole": {}, "streamed": {"stream": True}, "events": {"stream_format": "sse"}}[manner]
    answer = _post(toy_server, response_format=name, **fields)
    assert answer.status_code == 200
    data, told = answer.content, answer.headers.get("x-audio-s")
    if manner == "events":
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-audio-content-type"] == TYPES[name]
        *deltas, done = _events(answer.text)
        assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
        data, told = b"".join(base64.b64decode(delta["audio"]) for delta in deltas), done["audio_s"]
        assert done["type"] == "speech.audio.done"
        usage = done["usage"]
        assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
        assert (done["finish_reason"], done["seed"]) == ("stop", 3)
    else:
        assert answer.headers["content-type"] == TYPES[name]
    assert data.startswith(MAGIC[name])
    samples, rate, channels = _heard(name, data)
    assert (rate, channels) == (48_000 if name == "opus" else 24_000, 1)
    assert digits_heard(samples, rate) == "551"
    if told is not None:
        padding = 0.096 if name == "mp3" and manner == "events" else 1e-4
        assert float(told) - 1e-4 <= len(samples) / rate <= float(told) + padding


@pytest.mark.parametrize("name", FORMATS)
def test_the_first_event_leaves_before_the_end_is_known(toy_server, name):
    ask = ASK | {"input": "1 2 3 4 5 6 7 8 9 0", "response_format": name, "stream_format": "sse"}
    with httpx.stream("POST", f"{toy_server.url}{SPEECH}", json=ask, timeout=60) as answer:
        pieces = answer.iter_raw()
        assert next(pieces).startswith(b'data: {"type":"speech.audio.delta"')
        id = answer.headers["x-request-id"]
        assert httpx.get(f"{toy_server.url}/v1/requests/{id}").json()["state"] == "running"
        assert b"speech.audio.done" in b"".join(pieces)


def test_a_raw_streams_end_is_told_by_its_id(toy_server):
    whole = _post(toy_server)
    with httpx.stream("POST", f"{toy_server.url}{SPEECH}", json=ASK | {"stream": True}, timeout=60) as answer:
        answer.read()
    assert "x-finish-reason" not in answer.headers
    told = httpx.get(f"{toy_server.url}/v1/requests/{answer.headers['x-request-id']}").json()
    assert (told["state"], told["finish_reason"], told["seed"]) == ("done", "stop", 3)
    usage = {name: int(whole.headers[f"x-usage-{name.replace('_', '-')}"]) for name in told["usage"]}
    assert told["usage"] == usage
    assert 0 < told["first_output_s"] < told["took_s"]


@pytest.mark.parametrize("seed", [3, 4])
def test_sentences_are_joined_to_the_sample(toy_server, seed):
    sentences = ["Call 5 5 1.", "Dial 042!", "7"]
    how = {"temperature": 0.6, "seed": seed, "response_format": "pcm"}
    alone = [_post(toy_server, input=each, **how) for each in sentences]
    joined = _post(toy_server, input=" ".join(sentences), split="sentence", **how)
    streamed = _post(toy_server, input="\n\n".join(sentences), split="sentence", stream=True, **how)
    by_hand = np.frombuffer(b"".join(answer.content for answer in alone), "<i2").astype(int)
    for answer in (joined, streamed):
        assert len(answer.content) == 2 * len(by_hand)
        # where the model computed in other company, by rounding: 1e-4 of full scale
        assert np.abs(np.frombuffer(answer.content, "<i2") - by_hand).max() <= 3
    for name in ("input", "output"):
        counts = [int(answer.headers[f"x-usage-{name}-tokens"]) for answer in alone]
        assert joined.headers[f"x-usage-{name}-tokens"] == str(sum(counts))


def test_a_text_beyond_the_context_is_spoken_sentence_by_sentence(toy_server):
    """The toy's context is 1,024 tokens; this text alone has more."""
    text = "Call 5 5 1. " * 100
    refused = _post(toy_server, input=text)
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    ask = ASK | {"input": text, "split": "sentence", "response_format": "pcm", "stream": True}
    heard = b""
    with httpx.stream("POST", f"{toy_server.url}{SPEECH}", json=ask, timeout=60) as answer:
        for piece in answer.iter_raw():
            heard += piece
            if len(heard) > 4 * 24_000:
                break
    assert digits_heard(np.frombuffer(heard[: len(heard) // 2 * 2], "<i2") / 32768, 24_000).startswith(
        "551551"
    )
    toy_server.wait_for(lambda state: state["open_requests"] == 0)  # its client has left


def test_a_request_says_the_same_alone_in_company_and_streamed(toy_server):
    """Its seed decides; another says something else."""
    how = {"temperature": 1.5, "top_p": 1, "max_tokens": 140, "response_format": "pcm"}
    alone = _post(toy_server, seed=11, **how).content
    with httpx.Client(base_url=toy_server.url, timeout=60) as client, ThreadPoolExecutor(4) as pool:
        asks = [ASK | how | {"seed": seed, "stream": seed == 11} for seed in (11, 12, 13, 14)]
        bodies = list(pool.map(lambda ask: client.post(SPEECH, json=ask).content, asks))
    in_company = np.frombuffer(bodies[0], "<i2").astype(int)
    assert len(bodies[0]) == len(alone)
    assert np.abs(in_company - np.frombuffer(alone, "<i2")).max() <= 3  # 1e-4 of full scale
    assert len({bytes(body) for body in [alone, *bodies[1:]]}) == 4


def test_a_slow_reader_costs_others_nothing_and_gets_all_of_its_own(toy_server):
    long = {"input": "1 2 3 4 5 6 7 8 9 0", "response_format": "pcm"}
    whole = _post(toy_server, **long).content
    ask = ASK | long | {"stream": True}
    with httpx.stream("POST", f"{toy_server.url}{SPEECH}", json=ask, timeout=60) as slow:
        pieces = slow.iter_raw()
        got = next(pieces)
        with ThreadPoolExecutor(8) as pool:
            others = list(pool.map(lambda _: _post(toy_server, response_format="flac"), range(8)))
        for other in others:
            assert digits_heard(*_heard("flac", other.content)[:2]) == "551"
        got += b"".join(pieces)
    assert len(got) == len(whole)


def test_the_voices_are_those_of_the_checkpoint(toy_server):
    listed = httpx.get(f"{toy_server.url}/v1/audio/voices").json()["data"]
    assert [(voice["id"], voice["is_default"]) for voice in listed] == [("tara", True), ("leo", False)]
    unnamed = {name: value for name, value in ASK.items() if name != "voice"}
    answer = httpx.post(f"{toy_server.url}{SPEECH}", json=unnamed, timeout=60)
    assert answer.content == _post(toy_server, voice="TARA").content


def test_the_openai_client_reads_events_and_writes_files(toy_server, tmp_path):
    client = openai.OpenAI(base_url=f"{toy_server.url}/v1", api_key="none")
    how = {"model": "orpheus", "voice": "leo", "input": "dial 042", "extra_body": {"temperature": 0}}
    client.audio.speech.create(response_format="mp3", **how).write_to_file(tmp_path / "speech.mp3")
    samples, rate, _ = _heard("mp3", (tmp_path / "speech.mp3").read_bytes())
    assert digits_heard(samples, rate) == "042"
    with client.audio.speech.with_streaming_response.create(
        response_format="opus", stream_format="sse", **how
    ) as response:
        events = list(openai.Stream(cast_to=object, response=response.http_response, client=client))
    sound = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    samples, rate, _ = _heard("opus", sound)
    assert digits_heard(samples, rate) == "042"
    assert events[-1]["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("text", ["!", "🙂", "。", "—"])
@pytest.mark.parametrize("split", [None, "sentence"])
def test_a_text_without_words_is_a_valid_file_in_every_format(toy_server, text, split):
    for name in FORMATS:
        answer = _post(toy_server, input=text, max_tokens=35, response_format=name, split=split)
        assert answer.status_code == 200
        if answer.content or name != "pcm":
            samples, rate, _ = _heard(name, answer.content)
            assert len(samples) / rate < 0.6
