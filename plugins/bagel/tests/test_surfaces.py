"""The routes of images and of chat by OpenAI's client: what the reference gives, or an Engine."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from by_hand import CASES, DATA, picture
from PIL import Image
from tests.system.conftest import RunningServer

from walkserve import Engine
from walkserve_sdk import Part

MODEL = f"bagel={DATA / 'golden'}"
OWN = ("cfg_text_scale", "cfg_img_scale", "cfg_interval", "cfg_renorm_type", "cfg_renorm_min")
STEPS = ("num_timesteps", "timestep_shift")
SHORT = {"num_timesteps": 4}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    log = tmp_path_factory.mktemp("bagel") / "log"
    server = RunningServer(MODEL, "--port", "0", "--dtype", "float32", "--deterministic", log=log)
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(MODEL, device="cpu", dtype="float32", deterministic=True) as engine:
        yield engine


def file_of(case: dict[str, Any]) -> Path:
    return next(DATA / "images" / one["file"] for one in case["inputs"] if one["type"] == "image")


def prompt_of(case: dict[str, Any]) -> str:
    return next(one["text"] for one in case["inputs"] if one["type"] == "text")


def said(case: dict[str, Any]) -> list[dict[str, Any]]:
    """All that goes in, as one message."""
    content = []
    for one in case["inputs"]:
        if one["type"] == "text":
            content.append({"type": "text", "text": one["text"]})
        else:
            data = base64.b64encode((DATA / "images" / one["file"]).read_bytes()).decode()
            content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
    return [{"role": "user", "content": content}]


def pixels(b64: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(b64))))


def apart(here: np.ndarray, there: np.ndarray) -> int:
    assert here.shape == there.shape
    return int(np.abs(here.astype(int) - there.astype(int)).max())


@pytest.mark.parametrize("name", ["t2i_app_default", "t2i_text_channel"])
def test_a_seed_gives_the_references_picture(client, name):
    case = CASES[name]
    height, width = case["image_shape"]
    options = {each: case["params"][each] for each in (*OWN, *STEPS) if each in case["params"]}
    answer = client.images.generate(
        model="bagel",
        prompt=prompt_of(case),
        size=f"{width}x{height}",
        extra_body={"seed": case["seed"], **options},
    )
    assert apart(pixels(answer.data[0].b64_json), picture(f"{name}.png")) <= 1
    assert answer.size == f"{width}x{height}"


def test_an_edit_is_what_an_engine_makes_of_the_same_seed(client, engine):
    case = CASES["edit_text_channel"]
    answer = client.images.edit(
        model="bagel", image=file_of(case), prompt=prompt_of(case), extra_body={"seed": 5, **SHORT}
    )
    parts = [Part("image", file_of(case).read_bytes()), Part("text", prompt_of(case))]
    expected = engine.generate(parts=parts, outputs=("image",), seed=5, **SHORT).image
    assert np.array_equal(pixels(answer.data[0].b64_json), expected)


@pytest.mark.parametrize("name", ["i2t", "t2t", "t2t_eos", "i2t_think"])
def test_it_answers_as_the_reference_does(client, name):
    case = CASES[name]
    ask = {
        "model": "bagel",
        "messages": said(case),
        "max_tokens": case["params"]["max_think_token_n"] - 1,
        "extra_body": {"think": case["params"].get("think", False)},
    }
    whole = client.chat.completions.create(**ask)
    (choice,) = whole.choices
    assert choice.message.content == case["outputs"][0]["text"]
    assert choice.finish_reason == ("stop" if case["hit_eos"] else "length")
    assert whole.usage.completion_tokens == len(case["token_ids"]) - 1
    chunks = list(client.chat.completions.create(**ask, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content


def test_it_tells_how_likely_each_token_was(client):
    case = CASES["i2t"]
    ask = {"model": "bagel", "messages": said(case), "max_tokens": 12, "logprobs": True, "top_logprobs": 3}
    answer = client.chat.completions.create(**ask)
    (choice,) = answer.choices
    tokens = choice.logprobs.content
    assert len(tokens) == answer.usage.completion_tokens == 12
    assert b"".join(bytes(each.bytes) for each in tokens).decode(errors="replace") == choice.message.content
    for each in tokens:
        assert [each.bytes, each.logprob] == [each.top_logprobs[0].bytes, each.top_logprobs[0].logprob]
        likely = np.exp([one.logprob for one in each.top_logprobs])
        assert len(likely) == 3 and list(likely) == sorted(likely, reverse=True) and likely.sum() <= 1
    pieces = [chunk.choices[0] for chunk in client.chat.completions.create(**ask, stream=True)]
    assert [one for piece in pieces if piece.logprobs for one in piece.logprobs.content] == tokens


def test_a_picture_is_shown_before_it_is_done(client):
    ask = {"model": "bagel", "prompt": "A red fox", "size": "64x32", "extra_body": {"seed": 1, **SHORT}}
    events = list(client.images.generate(**ask, stream=True, partial_images=2))
    assert [event.type.rpartition(".")[2] for event in events] == ["partial_image"] * 2 + ["completed"]
    assert [event.partial_image_index for event in events[:2]] == [0, 1]
    done = pixels(client.images.generate(**ask).data[0].b64_json)
    assert np.array_equal(pixels(events[2].b64_json), done)
    off = [np.abs(pixels(event.b64_json).astype(int) - done).mean() for event in events[:2]]
    assert off[0] > off[1] > 0  # nearer each time


def test_a_stop_string_ends_an_answer_before_it(client):
    case = CASES["t2t"]
    text = case["outputs"][0]["text"]
    answer = client.chat.completions.create(model="bagel", messages=said(case), max_tokens=31, stop=" mellow")
    assert answer.choices[0].message.content == text[: text.index(" mellow")]
    assert answer.choices[0].finish_reason == "stop"


def test_a_conversation_paints_what_was_said_in_order(client, engine):
    case = CASES["interleave"]
    answer = client.chat.completions.create(
        model="bagel", messages=said(case), modalities=["image"], seed=6, extra_body=SHORT
    )
    message = answer.choices[0].message
    assert message.content is None
    parts = [
        Part("text", one["text"])
        if one["type"] == "text"
        else Part("image", (DATA / "images" / one["file"]).read_bytes())
        for one in case["inputs"]
    ]
    expected = engine.generate(parts=parts, outputs=("image",), seed=6, **SHORT).image
    assert np.array_equal(pixels(message.images[0]["image_url"]["url"].partition(",")[2]), expected)


def test_mixed_requests_at_once_are_each_what_they_are_alone(client):
    edit, look = CASES["edit_text_channel"], CASES["i2t"]

    def ask(number: int) -> str:
        match number:
            case 0:
                return (
                    client.images.generate(
                        model="bagel", prompt="A red fox", size="64x32", extra_body={"seed": 1, **SHORT}
                    )
                    .data[0]
                    .b64_json
                )
            case 1:
                return (
                    client.images.edit(
                        model="bagel", image=file_of(edit), prompt="blue", extra_body={"seed": 2, **SHORT}
                    )
                    .data[0]
                    .b64_json
                )
            case 2:
                answer = client.chat.completions.create(model="bagel", messages=said(look), max_tokens=12)
            case _:
                answer = client.chat.completions.create(
                    model="bagel", messages=said(CASES["t2t"]), max_tokens=12, temperature=1, seed=4
                )
        return answer.choices[0].message.content

    alone = [ask(number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == alone


def test_what_it_cannot_do_is_refused_in_a_clients_words(client):
    with pytest.raises(openai.BadRequestError) as size:
        client.images.generate(model="bagel", prompt="a fox", size="65x32")
    assert size.value.param == "size"
    with pytest.raises(openai.BadRequestError) as larger:
        client.images.edit(
            model="bagel", image=file_of(CASES["edit_text_channel"]), prompt="blue", size="64x32"
        )
    assert larger.value.param == "size" and "as large as the last of them" in larger.value.message
    with pytest.raises(openai.BadRequestError) as blank:
        client.chat.completions.create(
            model="bagel", messages=[{"role": "system", "content": " "}, {"role": "user", "content": "hi"}]
        )
    assert blank.value.param == "messages"
