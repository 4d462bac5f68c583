"""Conversations by OpenAI's own client, through a running server: whole, streamed, stopped, looked at."""

from __future__ import annotations

import base64
import io
import json
import math
import threading
import time

import httpx
import numpy as np
import openai
import pytest
from PIL import Image

ASK = {"model": "easel", "messages": [{"role": "user", "content": "tell me"}]}


@pytest.fixture(scope="module")
def chat(easel_server):
    with openai.OpenAI(base_url=f"{easel_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client.chat.completions


def data_url(colour: tuple[int, int, int] = (250, 20, 20)) -> str:
    out = io.BytesIO()
    Image.new("RGB", (12, 9), colour).save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def looking(*colours: tuple[int, int, int]) -> dict:
    """Asks what images are."""
    images = [{"type": "image_url", "image_url": {"url": data_url(colour)}} for colour in colours]
    return {"role": "user", "content": [{"type": "text", "text": "What is it?"}, *images]}


def lines(response: httpx.Response) -> list[str]:
    return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]


def reserved(state: dict) -> int:
    """Pages that are held."""
    workers = [worker for model in state["models"] for worker in model["workers"]]
    return sum(pool["reserved"] for worker in workers for pool in worker["pools"].values())


def text_of(chunks, index: int = 0) -> str:
    return "".join(
        choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index
    )


def test_an_answer_is_the_same_whole_and_streamed(chat):
    whole = chat.create(**ASK, seed=5, max_tokens=8)
    assert whole.object == "chat.completion" and whole.id.startswith("chatcmpl-")
    assert whole.model == "easel" and abs(whole.created - time.time()) < 60
    (choice,) = whole.choices
    assert (choice.index, choice.message.role, choice.finish_reason) == (0, "assistant", "length")
    assert len(choice.message.content.split()) == 8 and choice.logprobs is None
    assert whole.usage.prompt_tokens == 7 and whole.usage.completion_tokens == 8
    assert whole.usage.total_tokens == 15
    chunks = list(chat.create(**ASK, seed=5, max_tokens=8, stream=True))
    assert text_of(chunks) == choice.message.content
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert chat.create(**ASK, seed=6, max_tokens=8).choices[0].message.content != choice.message.content


def test_a_stream_has_the_role_first_one_finish_and_ends_with_done(easel_server):
    ask = {**ASK, "seed": 5, "max_tokens": 4, "stream": True}
    response = httpx.post(f"{easel_server.url}/v1/chat/completions", json=ask, timeout=60)
    assert response.headers["content-type"] == "text/event-stream" and response.headers["x-seed"] == "5"
    *chunks, last = lines(response)
    assert last == "[DONE]"
    first, *between, end = map(json.loads, chunks)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert end["choices"][0]["delta"] == {} and end["choices"][0]["finish_reason"] == "length"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in [first, *between])
    assert all("usage" not in chunk and "role" not in chunk["choices"][0]["delta"] for chunk in between)


def test_usage_is_streamed_where_it_is_asked_for(chat):
    *chunks, last = chat.create(
        **ASK, seed=5, max_tokens=4, stream=True, stream_options={"include_usage": True}
    )
    assert last.choices == [] and last.usage.completion_tokens == 4 and last.usage.prompt_tokens == 7
    assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in chunks)
    assert all(chunk.choices for chunk in chat.create(**ASK, max_tokens=2, stream=True, stream_options={}))


def test_the_first_word_comes_long_before_the_last(chat):
    began, came = time.monotonic(), []
    for chunk in chat.create(**ASK, seed=5, max_tokens=8, stream=True, extra_body={"turn_ms": 100}):
        if chunk.choices[0].delta.content:
            came.append(time.monotonic() - began)
    assert len(came) >= 5 and came[-1] - came[0] > 0.4


def test_answer_i_of_n_is_that_of_the_seed_plus_i(chat):
    several = chat.create(**ASK, seed=5, n=3, max_tokens=6)
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in several.choices]
    assert len(set(texts)) == 3
    assert [choice.seed for choice in several.choices] == [5, 6, 7]
    assert texts == [
        chat.create(**ASK, seed=5 + i, max_tokens=6).choices[0].message.content for i in range(3)
    ]
    assert several.usage.prompt_tokens == 7
    assert several.usage.completion_tokens == sum(len(text.split()) for text in texts)
    chunks = list(chat.create(**ASK, seed=5, n=3, max_tokens=6, stream=True))
    assert [text_of(chunks, i) for i in range(3)] == texts
    ends = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert sorted(ends) == [0, 1, 2]


def test_one_token_is_one_token(chat):
    answer = chat.create(**ASK, seed=5, max_completion_tokens=1)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 1


def test_a_stop_string_ends_the_answer_before_it(chat):
    whole = chat.create(**ASK, seed=5, max_tokens=12).choices[0].message.content
    words = whole.split()
    across = f"{words[4]} {words[5][:1]}"  # begins in one piece and ends in the next
    for stop in (words[4], across, [across, "nowhere"]):
        found = stop if isinstance(stop, str) else stop[0]
        answer = chat.create(**ASK, seed=5, max_tokens=12, stop=stop)
        assert answer.choices[0].message.content == whole[: whole.index(found)]
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.prompt_tokens == 7 and answer.usage.completion_tokens <= 6
        streamed = list(chat.create(**ASK, seed=5, max_tokens=12, stop=stop, stream=True))
        assert text_of(streamed) == answer.choices[0].message.content
        assert streamed[-1].choices[0].finish_reason == "stop"


def test_what_only_begins_like_a_stop_string_is_told_after_all(chat):
    whole = chat.create(**ASK, seed=5, max_tokens=12).choices[0]
    never = whole.message.content[-3:] + "!"  # held back until the very end
    answer = chat.create(**ASK, seed=5, max_tokens=12, stop=[never, whole.message.content[:2] + "!"])
    assert answer.choices[0].message.content == whole.message.content
    assert answer.choices[0].finish_reason == whole.finish_reason


def test_what_a_stop_string_cuts_off_is_not_computed(chat, easel_server):
    whole = chat.create(**ASK, seed=5, max_tokens=12).choices[0].message.content
    began = time.monotonic()
    chat.create(**ASK, seed=5, max_tokens=300, stop=whole.split()[2], extra_body={"turn_ms": 100})
    assert time.monotonic() - began < 8  # not thirty seconds
    easel_server.wait_for(lambda state: state["open_requests"] == 0, seconds=5)


def test_what_is_told_of_tokens_is_one_entry_for_each_with_its_bytes(chat):
    ask = {**ASK, "seed": 5, "max_tokens": 6, "logprobs": True, "top_logprobs": 2}
    (choice,) = chat.create(**ask).choices
    entries = choice.logprobs.content
    assert len(entries) == 6
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == choice.message.content
    for entry in entries:
        assert entry.token == bytes(entry.bytes).decode() and entry.logprob < 0
        assert len(entry.top_logprobs) == 2
        assert entry.top_logprobs[0].logprob >= max(entry.top_logprobs[1].logprob, entry.logprob)
    greedy = chat.create(**ask, temperature=0).choices[0].logprobs.content
    assert all(entry.token == entry.top_logprobs[0].token for entry in greedy)
    assert all(math.isclose(entry.logprob, entry.top_logprobs[0].logprob) for entry in greedy)
    streamed = [
        entry
        for chunk in chat.create(**ask, stream=True)
        for choice in chunk.choices
        if choice.logprobs is not None
        for entry in choice.logprobs.content
    ]
    assert streamed == entries
    alone = chat.create(**ASK, seed=5, max_tokens=6, logprobs=True).choices[0].logprobs.content
    assert [entry.logprob for entry in alone] == [entry.logprob for entry in entries]
    assert all(entry.top_logprobs == [] for entry in alone)


def test_a_stop_string_cuts_what_is_told_of_tokens_too(chat):
    ask = {**ASK, "seed": 5, "max_tokens": 12, "logprobs": True}
    whole = chat.create(**ask).choices[0]
    word = whole.message.content.split()[5]
    (choice,) = chat.create(**ask, stop=word).choices
    told = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content).decode()
    assert told == choice.message.content == whole.message.content[: whole.message.content.index(word)]


def test_images_are_seen_in_their_order_and_the_system_comes_first(chat):
    def say(*messages) -> float:
        """How likely the first word was: what is read decides it to the last bit."""
        answer = chat.create(model="easel", messages=messages, temperature=0, max_tokens=1, logprobs=True)
        return answer.choices[0].logprobs.content[0].logprob

    red, blue = (250, 20, 20), (20, 20, 250)
    assert say(looking(red)) == say(looking(red)) != say(looking(blue))
    assert say(looking(red, blue)) != say(looking(blue, red))
    system = {"role": "system", "content": "be short"}
    developer = {"role": "developer", "content": "be short"}
    user = {"role": "user", "content": "now"}
    assert say(system, user) == say(user, system) == say(developer, user)
    assert say(user, {"role": "assistant", "content": "no"}) != say({"role": "user", "content": "no"}, user)


def test_an_image_comes_out_where_it_is_asked_for_and_can_be_sent_back(chat):
    answer = chat.create(**ASK, seed=5, modalities=["image"], extra_body={"size": [16, 8]})
    message = answer.choices[0].message
    assert message.content is None
    (image,) = message.images
    assert image["type"] == "image_url"
    head, _, data = image["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    assert pixels.shape == (8, 16, 3)
    both = list(chat.create(**ASK, seed=5, modalities=["text", "image"], max_tokens=3, stream=True))
    images = [each for chunk in both for each in getattr(chunk.choices[0].delta, "images", None) or ()]
    assert len(images) == 1 and images[0]["index"] == 0 and len(text_of(both).split()) == 3
    again = [*ASK["messages"], message.model_dump(), {"role": "user", "content": "more"}]
    plain = [*ASK["messages"], {"role": "user", "content": "more"}]
    with_image, without = (
        chat.create(model="easel", messages=messages, seed=5, max_tokens=5).choices[0].message.content
        for messages in (again, plain)
    )
    assert with_image != without


def said(**more) -> list[dict]:
    return [{"role": "user", **more}]


@pytest.mark.parametrize(
    ("more", "param", "says"),
    [
        ({"messages": []}, "messages", "length >= 1"),
        ({"messages": "hi"}, "messages", "array"),
        ({"messages": said(content="  ")}, "messages", "nothing to answer"),
        ({"messages": said(content=3)}, "messages", "content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages", "robot"),
        ({"messages": said(content=[{"type": "input_audio"}])}, "messages", "input_audio"),
        ({"messages": said(content="x", name="ann")}, "messages", "name"),
        (
            {
                "messages": said(
                    content=[{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}]
                )
            },
            "messages[0].content[0].image_url.url",
            "opens no address",
        ),
        (
            {
                "messages": said(
                    content=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
                )
            },
            "messages",
            "an image is PNG",
        ),
        ({"n": "two"}, "n", "int"),
        ({"n": 17}, "n", "<= 16"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", ">= 1"),
        ({"max_tokens": 3, "max_completion_tokens": 3}, "max_tokens", "the same"),
        ({"stop": ""}, "stop", "length >= 1"),
        ({"stop": ["x"] * 17}, "stop", "length <= 16"),
        ({"top_logprobs": 2}, "top_logprobs", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "<= 20"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        ({"modalities": ["audio"]}, "modalities", "audio"),
        ({"temperature": "hot"}, "temperature", "hot"),
        ({"top_p": 0}, "top_p", "got 0"),
        ({"seed": -1}, "seed", ">= 0"),
        ({"temprature": 1}, "temprature", "did you mean 'temperature'"),
        ({"tools": []}, "tools", "unknown field"),
        ({"model": "orpheus:toy"}, "model", "has no chat.completions; it has audio.speech"),
        ({"max_tokens": 5000}, "max_tokens", "1024"),
        ({"max_completion_tokens": 5000}, "max_completion_tokens", "1024"),
    ],
)
def test_what_cannot_be_done_is_a_400_that_names_the_field(easel_server, more, param, says):
    response = httpx.post(f"{easel_server.url}/v1/chat/completions", json={**ASK, **more}, timeout=30)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param and says in error["message"], error
    assert error["type"] == "invalid_request_error"


def test_what_is_missing_is_named_and_what_is_no_json_is_refused(easel_server, chat):
    url = f"{easel_server.url}/v1/chat/completions"
    missing = httpx.post(url, json={"model": "easel"}).json()["error"]
    assert (missing["param"], missing["code"]) == ("messages", "missing_required_parameter")
    assert httpx.post(url, content=b"{bad", headers={"content-type": "application/json"}).status_code == 400
    assert httpx.post(url, content=b"x", headers={"content-type": "text/plain"}).status_code == 415
    with pytest.raises(openai.NotFoundError):
        chat.create(**{**ASK, "model": "gpt-4o"})
    with pytest.raises(openai.BadRequestError) as long:
        chat.create(model="easel", messages=said(content="x" * 2000))
    assert long.value.code == "context_length_exceeded"


def test_images_may_be_larger_than_the_json_around_them(easel_server, chat):
    noise = np.random.default_rng(1).integers(0, 255, (700, 1000, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
    assert len(url) > 2_000_000
    asked = said(content=[{"type": "image_url", "image_url": {"url": url}}])
    assert chat.create(model="easel", messages=asked, max_tokens=2).choices[0].message.content
    with pytest.raises(openai.APIStatusError) as large:
        chat.create(model="easel", messages=said(content="x" * 1_100_000))
    assert large.value.status_code == 413 and "data URLs" in large.value.message


def test_a_failure_has_a_status_before_the_first_event_and_is_an_event_after_it(easel_server, chat):
    with pytest.raises(openai.InternalServerError):
        chat.create(**ASK, stream=True, extra_body={"fail": "turn"})
    with pytest.raises(openai.InternalServerError):
        chat.create(**ASK, n=2, extra_body={"fail": "turn", "at": 2})
    ask = {**ASK, "stream": True, "seed": 5, "fail": "turn", "at": 4, "turn_ms": 50}
    response = httpx.post(f"{easel_server.url}/v1/chat/completions", json=ask, timeout=30)
    *events, last = [event for event in response.text.split("\n\n") if event]
    assert events and last.startswith("event: error\n") and "[DONE]" not in response.text
    assert json.loads(last.partition("data: ")[2])["error"]["code"] == "component_failed"
    with pytest.raises(openai.APIError):
        list(chat.create(**ASK, stream=True, seed=5, extra_body={"fail": "turn", "at": 4, "turn_ms": 50}))


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_that_leaves_cancels_all_its_answers(easel_server, is_streamed):
    ask = {**ASK, "n": 3, "turn_ms": 200, "max_tokens": 300, "stream": is_streamed}
    if is_streamed:
        url = f"{easel_server.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=ask, timeout=30) as response:
            next(response.iter_bytes())
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{easel_server.url}/v1/chat/completions", json=ask, timeout=0.7)
    easel_server.wait_for(lambda state: not state["open_requests"] and not reserved(state), seconds=10)


def test_answers_are_the_same_beside_others(easel_server, chat):
    def answer(seed: int) -> str:
        messages = [looking((40 * seed, 20, 20))]
        got = chat.create(model="easel", messages=messages, seed=seed, max_tokens=10)
        return got.choices[0].message.content

    alone = [answer(seed) for seed in range(4)]
    beside: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: beside.update({seed: answer(seed)})) for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [beside[seed] for seed in range(4)] == alone
