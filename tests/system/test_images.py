"""Pictures by OpenAI's own client, through a running server: painted, edited, shown while they are made."""

from __future__ import annotations

import base64
import io
import json
import time

import httpx
import numpy as np
import openai
import pytest
from PIL import Image

ASK = {"model": "easel", "prompt": "a red chair"}


@pytest.fixture(scope="module")
def images(easel_server):
    with openai.OpenAI(base_url=f"{easel_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client.images


def seen(b64: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(b64))))


def png(colour: tuple[int, int, int] = (250, 20, 20)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (12, 9), colour).save(out, "PNG")
    return out.getvalue()


def fields(answer) -> dict:
    return answer.model_dump()


def test_a_picture_has_the_size_that_was_asked_for_and_is_the_same_for_the_same_seed(images):
    first = images.generate(**ASK, size="40x24", extra_body={"seed": 5})
    again = images.generate(**ASK, size="40x24", extra_body={"seed": 5})
    other = images.generate(**ASK, size="40x24", extra_body={"seed": 6})
    assert first.size == "40x24" and first.output_format == "png" and first.background == "opaque"
    assert abs(first.created - time.time()) < 60
    assert seen(first.data[0].b64_json).shape == (24, 40, 3)
    assert first.data[0].b64_json == again.data[0].b64_json != other.data[0].b64_json
    assert fields(first)["data"][0]["seed"] == 5
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.total_tokens) == (11, 0, 11)
    assert images.generate(**ASK, size="auto").size == "32x24"


def test_picture_i_of_n_is_that_of_the_seed_plus_i(images):
    several = images.generate(**ASK, n=3, extra_body={"seed": 20})
    assert [each["seed"] for each in fields(several)["data"]] == [20, 21, 22]
    assert len({each.b64_json for each in several.data}) == 3
    for i, each in enumerate(several.data):
        assert images.generate(**ASK, extra_body={"seed": 20 + i}).data[0].b64_json == each.b64_json
    assert fields(several)["usage"]["input_tokens"] == 11  # read once for all
    unseeded = fields(images.generate(**ASK, n=2))["data"]
    assert (unseeded[1]["seed"] - unseeded[0]["seed"]) % 2**63 == 1


@pytest.mark.parametrize(("format", "name"), [("png", "PNG"), ("jpeg", "JPEG"), ("webp", "WEBP")])
def test_the_file_is_of_the_format_that_was_asked_for(images, format, name):
    answer = images.generate(**ASK, output_format=format, response_format="b64_json", extra_body={"seed": 1})
    assert answer.output_format == format
    assert Image.open(io.BytesIO(base64.b64decode(answer.data[0].b64_json))).format == name


def test_a_file_is_smaller_where_it_may_be_worse(images):
    sizes = [
        len(
            images.generate(**ASK, output_format="jpeg", output_compression=good, extra_body={"seed": 1})
            .data[0]
            .b64_json
        )
        for good in (5, 95)
    ]
    assert sizes[0] < sizes[1]


def test_pictures_are_shown_while_they_are_made_and_then_whole(images):
    whole = images.generate(**ASK, extra_body={"seed": 5})
    events = list(images.generate(**ASK, stream=True, partial_images=2, extra_body={"seed": 5}))
    assert [each.type for each in events] == [
        *["image_generation.partial_image"] * 2,
        "image_generation.completed",
    ]
    assert [each.partial_image_index for each in events[:2]] == [0, 1]
    assert events[-1].b64_json == whole.data[0].b64_json
    assert len({each.b64_json for each in events}) == 3
    assert events[-1].usage.total_tokens == 11 and events[-1].size == "32x24"


def test_each_of_several_streamed_pictures_is_completed_once(images):
    whole = images.generate(**ASK, n=3, extra_body={"seed": 5})
    events = [each.model_dump() for each in images.generate(**ASK, n=3, stream=True, extra_body={"seed": 5})]
    done = {each["index"]: each for each in events}
    assert len(events) == 3 and sorted(done) == [0, 1, 2]
    assert [done[i]["b64_json"] for i in range(3)] == [each.b64_json for each in whole.data]
    assert [done[i]["seed"] for i in range(3)] == [5, 6, 7]


def test_a_picture_is_shown_before_it_is_done(easel_server):
    ask = {**ASK, "stream": True, "partial_images": 1, "turn_ms": 150, "steps": 8, "seed": 1}
    came = []
    with httpx.stream("POST", f"{easel_server.url}/v1/images/generations", json=ask, timeout=60) as response:
        assert response.headers["content-type"] == "text/event-stream" and response.headers["x-seed"] == "1"
        for line in response.iter_lines():
            if line.startswith("event: "):
                came.append((line.removeprefix("event: "), time.monotonic()))
    (first, early), (last, late) = came
    assert (first, last) == ("image_generation.partial_image", "image_generation.completed")
    assert late - early > 0.5


def test_an_edit_sees_the_images_in_their_order(images):
    red, blue = ("a.png", png(), "image/png"), ("b.png", png((20, 20, 250)), "image/png")

    def edit(*files, **more) -> str:
        image = files[0] if len(files) == 1 else list(files)
        return (
            images.edit(model="easel", image=image, prompt="go on", extra_body={"seed": 3, **more})
            .data[0]
            .b64_json
        )

    assert edit(red) == edit(red) != edit(blue)
    assert edit(red, blue) != edit(blue, red)
    assert edit(red) != edit(red, steps=2)  # an option of the family in a form
    events = list(
        images.edit(
            model="easel",
            image=red,
            prompt="go on",
            stream=True,
            partial_images=1,
            size="16x16",
            extra_body={"seed": 3},
        )
    )
    assert [each.type for each in events] == ["image_edit.partial_image", "image_edit.completed"]
    assert seen(events[-1].b64_json).shape == (16, 16, 3)


@pytest.mark.parametrize(
    ("more", "param", "says"),
    [
        ({"prompt": "  "}, "prompt", "nothing to paint"),
        ({"prompt": 3}, "prompt", "expected"),
        ({"n": 0}, "n", ">= 1"),
        ({"n": 11}, "n", "<= 10"),
        ({"n": "two"}, "n", "expected"),
        ({"size": "large"}, "size", "WIDTHxHEIGHT"),
        ({"size": "33x24"}, "size", "32x24 is near"),
        ({"response_format": "url"}, "response_format", "no picture"),
        ({"output_format": "gif"}, "output_format", "gif"),
        ({"output_compression": 50}, "output_compression", "PNG"),
        ({"quality": "hd"}, "quality", "hd"),
        ({"background": "transparent"}, "background", "transparent"),
        ({"partial_images": 1}, "partial_images", "stream"),
        ({"seed": -1}, "seed", ">= 0"),
        ({"seed": 2**63}, "seed", "<="),
        ({"step": 3}, "step", "did you mean 'steps'"),
        ({"style": "vivid"}, "style", "unknown field"),
        ({"model": "orpheus:toy"}, "model", "has no images.generations; it has audio.speech"),
    ],
)
def test_what_cannot_be_done_is_a_400_that_names_the_field(easel_server, more, param, says):
    response = httpx.post(f"{easel_server.url}/v1/images/generations", json={**ASK, **more}, timeout=30)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param and says in error["message"], error
    assert error["type"] == "invalid_request_error"


def test_the_client_raises_what_it_knows(images):
    with pytest.raises(openai.BadRequestError, match="multiples of 8"):
        images.generate(**ASK, size="9x9")
    with pytest.raises(openai.NotFoundError) as missing:
        images.generate(model="dall-e-3", prompt="a chair")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="mask"):
        images.edit(model="easel", image=png(), mask=png(), prompt="x")
    with pytest.raises(openai.BadRequestError, match="image: an image is PNG"):
        images.edit(model="easel", image=b"no image at all", prompt="x")
    with pytest.raises(openai.APIStatusError) as large:
        dot = io.BytesIO()
        Image.new("1", (2000, 2000)).save(dot, "PNG")
        images.edit(model="easel", image=dot.getvalue(), prompt="x")
    assert large.value.status_code == 413 and large.value.code == "media_too_large"
    assert images.edit(model="easel", image=png(), prompt="x").data  # the next one is fine


def test_an_edit_is_a_form_with_an_image(easel_server):
    url = f"{easel_server.url}/v1/images/edits"
    assert httpx.post(url, json=ASK).status_code == 415
    missing = httpx.post(url, files={name: (None, value) for name, value in ASK.items()})
    assert missing.status_code == 400 and missing.json()["error"]["param"] == "image"
    both = [("image", ("a", png())), ("image[]", ("b", png()))]
    twice = httpx.post(url, data=ASK, files=both)
    assert twice.status_code == 400 and "same field" in twice.json()["error"]["message"]


def test_a_failure_has_a_status_before_the_first_event_and_is_an_event_after_it(easel_server, images):
    with pytest.raises(openai.InternalServerError):
        images.generate(**ASK, stream=True, extra_body={"fail": "turn"})
    with pytest.raises(openai.APIError, match="went wrong|failed|raised|error"):
        for _ in images.generate(**ASK, stream=True, partial_images=1, extra_body={"fail": "turn", "at": 2}):
            pass
    ask = {**ASK, "stream": True, "partial_images": 1, "fail": "turn", "at": 3, "turn_ms": 30}
    events = httpx.post(f"{easel_server.url}/v1/images/generations", json=ask, timeout=30).text
    *_, last = events.strip().split("\n\n")
    assert last.startswith("event: error\n") and "completed" not in events
    assert json.loads(last.partition("data: ")[2])["error"]["type"] == "server_error"


def test_a_client_that_leaves_cancels_all_its_pictures(easel_server):
    ask = {**ASK, "n": 3, "turn_ms": 200, "steps": 100}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{easel_server.url}/v1/images/generations", json=ask, timeout=0.7)
    easel_server.wait_for(lambda state: state["open_requests"] == 0, seconds=10)


def test_a_model_says_by_which_routes_it_paints(easel_server):
    card = httpx.get(f"{easel_server.url}/v1/models/easel").json()
    assert card["surfaces"] == {
        "images.generations": ["POST /v1/images/generations"],
        "images.edits": ["POST /v1/images/edits"],
        "chat.completions": ["POST /v1/chat/completions"],
    }
