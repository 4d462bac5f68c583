"""The toy voice through the real server: what a client hears, in every way it can ask."""

from __future__ import annotations

import io
import wave

import httpx
import numpy as np
import openai
import pytest
import soundfile

from walk_plugin_orpheus.toy.dtmf import digits_heard

ASK = {"model": "orpheus", "input": "call 5 5 1", "voice": "tara", "temperature": 0}


def _post(server, **fields) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/audio/speech", json=ASK | fields, timeout=60)


def _streamed(server, **fields) -> tuple[list[bytes], httpx.Response]:
    with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=ASK | fields, timeout=60) as answer:
        return list(answer.iter_raw()), answer


def _pcm(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<i2")


def test_a_whole_wav_says_the_digits_and_has_exact_sizes(toy_server):
    answer = _post(toy_server)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.headers["x-finish-reason"] == "stop"
    with wave.open(io.BytesIO(answer.content)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        frames = file.getnframes()
        assert len(file.readframes(frames + 1)) == 2 * frames
    samples, rate = soundfile.read(io.BytesIO(answer.content), dtype="float32")
    assert len(samples) == frames == int(answer.headers["x-usage-output-tokens"]) // 7 * 2048
    assert digits_heard(samples, rate) == "551"


@pytest.mark.parametrize(
    ("text", "voice", "digits"),
    [("dial 042", "leo", "042"), ("please call two eight", "tara", "28"), ("7", "leo", "7")],
)
def test_other_texts_and_voices_say_their_digits(toy_server, text, voice, digits):
    samples, rate = soundfile.read(
        io.BytesIO(_post(toy_server, input=text, voice=voice).content), dtype="float32"
    )
    assert digits_heard(samples, rate) == digits


def test_streamed_pcm_is_the_whole_pcm_in_several_pieces(toy_server):
    whole = _pcm(_post(toy_server, response_format="pcm", seed=7, temperature=0.6).content)
    pieces, answer = _streamed(toy_server, response_format="pcm", seed=7, temperature=0.6, stream=True)
    assert answer.status_code == 200
    assert len(pieces) > 1
    streamed = _pcm(b"".join(pieces))
    assert len(streamed) == len(whole)
    assert np.abs(streamed.astype(int) - whole).max() <= 1


def test_a_streamed_wav_is_read_by_wave_and_by_soundfile(toy_server):
    pieces, answer = _streamed(toy_server, stream_format="audio")
    data = b"".join(pieces)
    assert answer.headers["content-type"] == "audio/wav"
    assert data.count(b"RIFF") == 1
    assert data[4:8] == data[40:44] == b"\xff\xff\xff\xff"
    with wave.open(io.BytesIO(data)) as file:
        assert file.getframerate() == 24_000
        told = np.frombuffer(file.readframes(10**9), "<i2")
    samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    assert rate == 24_000
    assert np.array_equal(told, samples)
    assert digits_heard(samples.astype(np.float32) / 32768, rate) == "551"


def test_the_openai_client_makes_speech_whole_and_streamed(toy_server):
    client = openai.OpenAI(base_url=f"{toy_server.url}/v1", api_key="none")
    whole = client.audio.speech.create(
        model="orpheus:toy",
        voice="tara",
        input="dial 042",
        response_format="wav",
        extra_body={"temperature": 0},
    )
    samples, rate = soundfile.read(io.BytesIO(whole.content), dtype="float32")
    assert digits_heard(samples, rate) == "042"
    with client.audio.speech.with_streaming_response.create(
        model="orpheus:toy",
        voice="tara",
        input="dial 042",
        response_format="pcm",
        extra_body={"temperature": 0, "stream": True},
    ) as streaming:
        pieces = list(streaming.iter_bytes())
    streamed = _pcm(b"".join(pieces)).astype(np.float32) / 32767
    assert digits_heard(streamed, 24_000) == "042"
    assert [model.id for model in client.models.list()] == ["orpheus:toy"]


def test_max_tokens_one_is_one_token_and_ends_by_length(toy_server):
    answer = _post(toy_server, max_tokens=1, response_format="pcm")
    assert answer.status_code == 200
    assert answer.headers["x-finish-reason"] == "length"
    assert answer.headers["x-usage-output-tokens"] == "1"
    assert answer.content == b""


def test_the_same_seed_speaks_the_same_and_another_does_not(toy_server):
    first, again, other = (
        _post(toy_server, response_format="pcm", temperature=1.5, top_p=1, max_tokens=70, seed=seed).content
        for seed in (11, 11, 12)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("text", ["🙂🙂", "...!?"])
def test_a_text_without_words_ends_in_sound_or_silence_and_does_not_hang(toy_server, text):
    assert _post(toy_server, input=text, max_tokens=140).status_code == 200
