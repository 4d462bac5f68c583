"""Each format over HTTP: what it is called, that it is what it is called, and that nobody waits for it."""

import asyncio
import io
import threading

import av
import numpy as np
import pytest
import soundfile

from walkserve import messages as m
from walkserve.media import encoders

pytestmark = pytest.mark.anyio
SPEECH = "/v1/audio/speech"
ASK = {"model": "parrot", "input": "hello", "seed": 7}
TYPES = {
    "wav": "audio/wav",
    "pcm": "audio/pcm;rate=8000;channels=1",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg;codecs=opus",
}
SECONDS = 0.5


def speaks(stage, seconds=SECONDS, chunk=500):
    """A conductor that has every request say half a second of a tone."""
    tone = 0.5 * np.sin(np.arange(round(8000 * seconds)) * 2 * np.pi * 440 / 8000)

    def on_submit(mailbox, submit):
        items = [stage.sound(*tone[start : start + chunk]) for start in range(0, len(tone), chunk)]
        for first, item in enumerate(items):
            mailbox.say(stage.emitted(submit.tag, first, item))
        mailbox.say(stage.ended(submit.tag, len(items)))

    return on_submit


def seconds_heard(data: bytes) -> tuple[float, int]:
    """By a library that has no part in writing: how long it is, and how many channels there are."""
    with av.open(io.BytesIO(data)) as file:
        (stream,) = file.streams.audio
        return sum(frame.samples for frame in file.decode(stream)) / stream.rate, stream.channels


@pytest.mark.parametrize("name", TYPES)
async def test_a_format_is_called_by_its_name_and_is_what_it_is_called(stage, name):
    async with stage.serving(speaks(stage)) as at:
        whole = await at.client.post(SPEECH, json={**ASK, "response_format": name})
        streamed = await at.client.post(SPEECH, json={**ASK, "response_format": name, "stream": True})
        for response in (whole, streamed):
            assert response.status_code == 200
            assert response.headers["content-type"] == TYPES[name]
            if name == "pcm":
                assert len(response.content) == 8000
                continue
            seconds, channels = seconds_heard(response.content)
            assert channels == 1
            padding = 0.3 if name == "mp3" and response is streamed else 0.001  # of frames of 72 ms, at 8 kHz
            assert SECONDS - 0.001 <= seconds < SECONDS + padding
        assert whole.headers["content-length"] == str(len(whole.content))
        assert whole.headers["x-audio-s"] == "0.500000"
        assert whole.headers["x-finish-reason"] == "stop"
        assert "x-audio-s" not in streamed.headers
        assert at.caller.open_calls == 0


async def test_no_format_at_all_is_wav(stage):
    async with stage.serving(speaks(stage)) as at:
        response = await at.client.post(SPEECH, json={**ASK, "response_format": None})
        assert soundfile.info(io.BytesIO(response.content)).format == "WAV"


@pytest.mark.parametrize("name", ["wav", "flac", "opus"])
async def test_all_channels_are_sent(stage, name):
    def on_submit(mailbox, submit):
        song = np.zeros((4000, 3), np.float32)
        mailbox.say(m.Emitted("song", [submit.tag], [m.Array("float32", song.shape, song.tobytes())]))
        mailbox.say(m.RequestEnded(submit.tag, "stop", 7, {"song": 1}, {}, {}))

    async with stage.serving(on_submit) as at:
        response = await at.client.post(
            SPEECH, json={"model": "choir", "input": "la", "response_format": name}
        )
        assert seconds_heard(response.content) == (0.5, 3)
        assert response.headers["x-usage-output-tokens"] == "0"


class _Stuck(encoders.Encoder):
    """Takes as long as it is made to."""

    def __init__(self, may_go_on: threading.Event) -> None:
        super().__init__(1)
        self._may_go_on = may_go_on

    def _feed(self, sound):
        assert self._may_go_on.wait(10)
        return b"sound"

    def _finish(self):
        return b""


async def test_others_are_served_while_sound_is_encoded(stage, monkeypatch):
    may_go_on = threading.Event()
    monkeypatch.setattr("walkserve.http.encoding.open_encoder", lambda *a, **k: _Stuck(may_go_on))
    async with stage.serving(speaks(stage, 0.05)) as at:
        asking = asyncio.create_task(at.client.post(SPEECH, json={**ASK, "response_format": "mp3"}))
        await at.mailbox.wait_for(m.Submit)
        for _ in range(5):
            assert (await at.client.get("/health")).status_code == 200
        assert not asking.done()
        may_go_on.set()
        assert (await asking).content == b"sound"


@pytest.mark.parametrize("name", TYPES)
async def test_a_client_may_leave_in_any_format(stage, name, caplog):
    async with stage.serving() as at:
        ask = {**ASK, "response_format": name, "stream": True}
        asking = asyncio.create_task(at.client.post(SPEECH, json=ask))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(stage.emitted(submit.tag, 0, stage.sound(*[0.5] * 4000)))
        await asyncio.sleep(0.02)
        asking.cancel()
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]
        assert at.caller.open_calls == 0
        assert caplog.text == ""
