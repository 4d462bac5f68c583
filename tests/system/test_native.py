"""The native surfaces of a real server: the toy voice by ``/v1/generate``, ``/v1/stream`` and the client."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import websockets
from websockets.asyncio.client import connect

from walk_plugin_orpheus.toy.dtmf import digits_heard
from walkserve_sdk.client import AsyncClient, Client
from walkserve_sdk.errors import BadRequest, Cancelled

ASK = {"model": "orpheus", "text": "call 5 5 1", "options": {"voice": "tara", "temperature": 0, "seed": 7}}
OPTIONS = {"voice": "tara", "temperature": 0, "seed": 7}
GUIDE = Path(__file__).parents[2] / "docs/how-to/use-the-python-client.md"


def _spoken(server, **fields) -> np.ndarray:
    """The same by the speech route, as int16."""
    body = {"model": "orpheus", "input": ASK["text"], "response_format": "pcm", **OPTIONS} | fields
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=60)
    assert answer.status_code == 200
    return np.frombuffer(answer.content, "<i2").astype(int)


def _is_the_same(samples: np.ndarray, spoken: np.ndarray) -> bool:
    return len(samples) == len(spoken) and np.abs(np.rint(samples * 32767) - spoken).max() <= 1


def _samples(events: list[dict]) -> np.ndarray:
    pieces = [each for each in events if each["type"] == "output"]
    assert [each["index"] for each in pieces] == list(range(len(pieces)))
    assert {(each["rate"], each["dtype"]) for each in pieces} == {(24_000, "float32")}
    return np.concatenate([np.frombuffer(base64.b64decode(each["data"]), "<f4") for each in pieces])


def test_events_bytes_and_the_client_give_what_the_speech_route_gives(toy_server):
    url = f"{toy_server.url}/v1/generate"
    spoken = _spoken(toy_server)
    lines = httpx.post(url, json=ASK, timeout=60).text.splitlines()
    events = [json.loads(line) for line in lines]
    assert (events[0]["type"], events[-1]["type"]) == ("started", "done")
    assert events[-1]["finish_reason"] == "stop"
    assert digits_heard(_samples(events), 24_000) == "551"
    assert _is_the_same(_samples(events), spoken)
    told = httpx.post(url, json=ASK, headers={"accept": "text/event-stream"}, timeout=60).text
    framed = [json.loads(block.removeprefix("data: ")) for block in told.split("\n\n")[:-1]]
    assert _is_the_same(_samples(framed), spoken)
    form = {"model": (None, "orpheus"), "text": (None, ASK["text"]), "options": (None, json.dumps(OPTIONS))}
    wav = httpx.post(url, files=form, headers={"accept": "audio/wav"}, timeout=60)
    samples, rate = soundfile.read(io.BytesIO(wav.content), dtype="float32")
    assert rate == 24_000 and wav.headers["x-finish-reason"] == "stop"
    assert _is_the_same(samples * 32768 / 32767, spoken)
    with Client(toy_server.url) as client:
        assert [card.id for card in client.models()] == ["orpheus:toy"]
        result = client.generate("orpheus", text=ASK["text"], **OPTIONS)
    assert digits_heard(result.speech.samples, result.speech.rate) == "551"
    assert _is_the_same(result.speech.samples, spoken)


def test_sound_comes_while_the_rest_is_still_made(toy_server):
    with Client(toy_server.url) as client:
        with client.stream("orpheus", text=ASK["text"], **OPTIONS) as stream:
            pieces = [len(event.data.samples) for event in stream]
        assert len(pieces) > 1
        assert sum(pieces) == len(_spoken(toy_server))


def test_leaving_a_stream_gives_its_pages_back(toy_server):
    with Client(toy_server.url) as client:
        with client.stream("orpheus", text="call 1 2 3 4 5 6 7 8 9", **OPTIONS) as stream:
            next(stream)
        toy_server.wait_for(_nothing_is_reserved)


def test_what_is_refused_is_told_with_its_field(toy_server):
    with Client(toy_server.url) as client:
        with pytest.raises(BadRequest, match="tara, leo") as wrong:
            client.generate("orpheus", text="hi", voice="zoe")
        assert wrong.value.param == "options.voice"
        with pytest.raises(BadRequest, match="takes no audio"):
            client.generate("orpheus", text="hi", audio=b"RIFF")
        with pytest.raises(BadRequest, match="nothing to say"):
            client.generate("orpheus", text=" ")


async def _speak(session, text, **options):
    return (await session.generate("orpheus", text=text, **(OPTIONS | options)).result()).speech.samples


@pytest.mark.anyio
async def test_requests_on_one_socket_give_what_they_give_alone(toy_server):
    asks = [("call 5 5 1", {}), ("dial 042", {"voice": "leo"}), ("7", {"seed": 8})]
    async with AsyncClient(toy_server.url).connect() as session:
        together = await asyncio.gather(*(_speak(session, text, **options) for text, options in asks))
    assert [digits_heard(each, 24_000) for each in together] == ["551", "042", "7"]
    for samples, (text, options) in zip(together, asks, strict=True):
        assert _is_the_same(samples, _spoken(toy_server, input=text, **options))


@pytest.mark.anyio
async def test_one_is_cancelled_midway_and_the_other_is_as_alone(toy_server):
    async with AsyncClient(toy_server.url).connect() as session:
        one = session.generate("orpheus", text="call 1 2 3 4 5 6 7 8 9", **OPTIONS)
        other = asyncio.create_task(_speak(session, "call 5 5 1"))
        await anext(one)
        await one.cancel()
        with pytest.raises(Cancelled):
            async for _ in one:
                pass
        assert _is_the_same(await other, _spoken(toy_server))
        again = await session.generate("orpheus", text="dial 042", **OPTIONS).result()
        assert digits_heard(again.speech.samples, 24_000) == "042"
    toy_server.wait_for(_nothing_is_reserved)


@pytest.mark.anyio
async def test_text_in_pieces_is_spoken_whole_or_by_sentence(toy_server):
    async with AsyncClient(toy_server.url).connect() as session:
        whole = session.generate("orpheus", text_open=True, **OPTIONS)
        for piece in ("call", " 5 5", " 1"):
            await whole.send_text(piece)
        await whole.end()
        assert _is_the_same((await whole.result()).speech.samples, _spoken(toy_server))
        split = session.generate("orpheus", text_open=True, split="sentence", **OPTIONS)
        await split.send_text("call 5 5 1! 0")
        first = await anext(split)  # before the text is complete
        await split.send_text("42")
        await split.end()
        rest = [event.data.samples async for event in split]
    samples = np.concatenate([first.data.samples, *rest])
    assert digits_heard(samples, 24_000) == "551042"
    alone = [_spoken(toy_server, input=sentence) for sentence in ("call 5 5 1!", "042")]
    assert _is_the_same(samples, np.concatenate(alone))


@pytest.mark.anyio
async def test_bare_frames_bad_ones_and_a_dropped_socket(toy_server):
    address = toy_server.url.replace("http", "ws") + "/v1/stream"
    async with connect(address, max_size=None) as socket:
        await socket.send("{")
        assert json.loads(await socket.recv())["error"]["code"] == "invalid_json"
        for round in range(2):  # the name is used again
            await socket.send(json.dumps({"type": "generate", "id": "a", **ASK}))
            assert json.loads(await socket.recv())["type"] == "started"
            if round == 0:
                await socket.send(json.dumps({"type": "cancel", "id": "a"}))
                while (event := await socket.recv()) and b'"cancelled"' not in _bytes(event):
                    pass
        samples = []
        while (event := json.loads(await socket.recv()))["type"] == "output":
            samples.append(np.frombuffer(await socket.recv(), "<f4"))
        assert event["type"] == "done"
        assert _is_the_same(np.concatenate(samples), _spoken(toy_server))
        await socket.send(json.dumps({"type": "generate", "id": "a", **ASK}))
        assert json.loads(await socket.recv())["type"] == "started"
        socket.transport.abort()
        with pytest.raises(websockets.ConnectionClosed):
            while True:
                await socket.recv()
    await asyncio.to_thread(toy_server.wait_for, _nothing_is_reserved)


def test_the_guide_to_the_client_does_what_it_says(toy_server, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert len(blocks) >= 4
    for block in blocks:
        program = block.replace("http://127.0.0.1:8000", toy_server.url)
        exec(compile(program, str(GUIDE), "exec", dont_inherit=True), {"__name__": "guide"})
    samples, rate = soundfile.read("speech.wav")
    assert digits_heard(samples.astype(np.float32), rate) == "551"
    assert "24000 stop" in capsys.readouterr().out


def _bytes(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame


def _nothing_is_reserved(state: dict) -> bool:
    pools = [
        pool for model in state["models"] for worker in model["workers"] for pool in worker["pools"].values()
    ]
    return state["open_requests"] == 0 and pools != [] and all(pool["reserved"] == 0 for pool in pools)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
