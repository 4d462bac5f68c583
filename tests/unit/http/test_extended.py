"""Routes that a plugin adds, through a real web server: what each gets for nothing, and what it has to do."""

import asyncio
import base64
import json
import socket as sockets
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Literal

import jsonschema_rs
import pytest
from msgspec import Meta, Struct

from walkserve import messages as m
from walkserve.http.keys import ApiKeys
from walkserve_sdk import Model, Part
from walkserve_sdk.errors import DeclarationError
from walkserve_sdk.serving import Exchange, Reply, Route

pytestmark = pytest.mark.anyio
PATH = "/v1/scores"
NDJSON, SSE = "application/x-ndjson", "text/event-stream"


class Place(Struct, frozen=True):
    """Where."""

    bar: int
    below: "list[Place]" = []


class Scoring(Struct, frozen=True):
    """What is asked."""

    title: Annotated[str, Meta(min_length=1)]
    takes: Annotated[int, Meta(ge=1, le=9)] = 1
    manner: Literal["slow", "fast"] = "slow"
    sheet: bytes | None = None
    pages: list[bytes] = []
    numbers: list[float] | bytes = []
    place: Place | None = None

    def __post_init__(self) -> None:
        if self.takes > 1 and self.manner == "fast":
            raise ValueError("several takes are slow")


class Scored(Struct, frozen=True):
    """What came of it."""

    caption: str
    got: str
    energies: list[float] = []


class Step(Struct, frozen=True, tag="step"):
    """One number."""

    energy: float


async def score(exchange: Exchange[Scoring]) -> object:
    fields = exchange.fields
    parts = (Part("text", fields.title), *(Part("tensor", each) for each in fields.pages))
    if fields.title == "a picture":
        parts = (*parts, Part("image", fields.sheet or b"", name="sheet"))
    if fields.title == "a bug":
        raise RuntimeError("in /secret/place.py")
    outputs = ("energy",) if exchange.wants_events else ("caption", "energy")
    running = await exchange.start(exchange.request(parts=parts, outputs=outputs))
    if exchange.wants_events:
        return _steps(running)
    if fields.title == "given up":
        running.cancel()
    result = await running.result()
    if exchange.media_type == "image/png":
        return Reply(b"PNG", "image/png", {"x-more": "yes"})
    return Scored(
        result.caption, repr((fields.sheet, fields.numbers)), [float(each) for each in result.energy or ()]
    )


async def _steps(running: object) -> AsyncIterator[Step]:
    async for event in running:
        yield Step(float(event.data))


ROUTE = Route(
    path=PATH,
    surface="scores",
    handle=score,
    fields=Scoring,
    answer=Scored,
    events=Step,
    media={"image/png": "A picture of it."},
    summary="Score something",
    description="With *care*.",
    example={"title": "a song", "sheet": "aGVsbG8=", "steps": 3},
    example_answer={"caption": "hm", "got": "b''", "energies": [0.5]},
    example_event={"type": "step", "energy": 0.5},
)
ASK = {"model": "studio", "title": "a song", "seed": 7}


@pytest.fixture
def stage(stage):
    """With the route, and a model that has its surface."""

    class Band(stage.Studio):
        """Scores."""

        own_surfaces = ("scores",)

    stage.serving = partial(stage.serving, more={"studio": Band()}, routes=[ROUTE])
    return stage


def gives(*energies, caption="hm"):
    def on_submit(mailbox, submit):
        mailbox.say(m.Admitted(submit.tag))
        counts = {"energy": len(energies)}
        mailbox.say(m.Emitted("energy", [submit.tag] * len(energies), list(energies)))
        if "caption" in submit.outputs:
            mailbox.say(m.Emitted("caption", [submit.tag], [caption]))
            counts["caption"] = 1
        usage = {"input_tokens": 3, "output_tokens": 21}
        mailbox.say(m.RequestEnded(submit.tag, "stop", submit.seed, counts, usage, {}))

    return on_submit


def error(response):
    assert set(response.json()) == {"error"}
    return response.json()["error"]


# --- answers ------------------------------------------------------------------------------------------


async def test_an_answer_is_json_with_the_id_the_seed_and_the_usage_in_its_headers(stage):
    async with stage.serving(gives(0.5, 0.25)) as at:
        response = await at.client.post(PATH, json=ASK, headers={"x-client-request-id": "mine"})
        assert response.status_code == 200
        assert response.json() == {"caption": "hm", "got": "(None, [])", "energies": [0.5, 0.25]}
        told = response.headers
        assert (told["content-type"], told["x-seed"]) == ("application/json", "7")
        assert (told["x-finish-reason"], told["x-usage-output-tokens"]) == ("stop", "21")
        assert told["x-client-request-id"] == "mine"
        status = (await at.client.get(f"/v1/requests/{told['x-request-id']}")).json()
        assert (status["model"], status["state"], status["client_request_id"]) == ("studio", "done", "mine")


async def test_what_is_no_field_of_the_route_is_an_option_of_the_family(stage):
    async with stage.serving(gives()) as at:
        await at.client.post(PATH, json=ASK | {"steps": 3})
        (submit,) = at.mailbox.sent_of(m.Submit)
        assert (submit.options.steps, submit.seed, submit.given) == (3, 7, ("seed", "steps"))
        assert submit.outputs == ("caption", "energy")


async def test_a_form_has_the_same_fields_and_its_files_are_bytes(stage):
    files = [
        ("model", (None, "studio")),
        ("title", (None, "12")),
        ("takes", (None, "2")),
        ("steps", (None, "3")),
        ("sheet", ("sheet.bin", b"\x00\xff")),
        ("numbers", (None, "[1, 2.5]")),
        ("pages", ("1.png", b"one")),
        ("pages", ("2.png", b"two")),
    ]
    async with stage.serving(gives()) as at:
        response = await at.client.post(PATH, files=files)
        assert response.json()["got"] == "(b'\\x00\\xff', [1.0, 2.5])"
        (submit,) = at.mailbox.sent_of(m.Submit)
        assert [part.part.data for part in submit.parts] == ["12", b"one", b"two"]
        assert submit.options.steps == 3
        file = [*files[:2], ("numbers", ("n.npy", b"[1]"))]
        assert (await at.client.post(PATH, files=file)).json()["got"] == "(None, b'[1]')"


async def test_an_image_that_is_none_is_refused_by_the_name_of_its_field(stage):
    async with stage.serving() as at:
        sheet = base64.b64encode(b"no picture").decode()
        response = await at.client.post(PATH, json=ASK | {"title": "a picture", "sheet": sheet})
        assert (response.status_code, error(response)["param"]) == (400, "sheet")
        assert at.mailbox.sent_of(m.Submit) == []


async def test_json_has_bytes_in_base64(stage):
    async with stage.serving(gives()) as at:
        sheet = base64.b64encode(b"\x00\xff").decode()
        got = (await at.client.post(PATH, json=ASK | {"sheet": sheet})).json()["got"]
        assert got == "(b'\\x00\\xff', [])"


async def test_json_has_bytes_in_data_urls_too(stage):
    async with stage.serving(gives()) as at:
        url = "DATA:image/png;base64," + base64.b64encode(b"\x00\xff").decode()
        sent = {"sheet": url, "numbers": url, "pages": [url], "title": url}
        got = (await at.client.post(PATH, json=ASK | sent)).json()["got"]
        assert got == "(b'\\x00\\xff', b'\\x00\\xff')"
        (submit,) = at.mailbox.sent_of(m.Submit)
        assert [part.data for part in submit.parts] == [url.encode(), b"\x00\xff"]  # a text stays what it is
        for wrong, why in (("data:image/png,x", "a data URL is"), ("data:;base64,?", "no base64")):
            response = await at.client.post(PATH, json=ASK | {"sheet": wrong})
            assert (response.status_code, error(response)["param"]) == (400, "sheet")
            assert why in error(response)["message"]


async def test_another_form_of_the_answer_is_had_by_accepting_it(stage):
    async with stage.serving(gives()) as at:
        response = await at.client.post(PATH, json=ASK, headers={"accept": "image/png"})
        assert (response.content, response.headers["content-type"]) == (b"PNG", "image/png")
        assert (response.headers["x-more"], response.headers["x-seed"]) == ("yes", "7")
        refused = await at.client.post(PATH, json=ASK, headers={"accept": "text/html"})
        assert refused.status_code == 406
        assert "application/json, image/png" in error(refused)["message"]


@pytest.mark.parametrize("kind", [SSE, NDJSON])
async def test_events_come_as_the_handler_gives_them(stage, kind):
    async with stage.serving(gives(0.5, 0.25)) as at:
        response = await at.client.post(PATH, json=ASK, headers={"accept": kind})
        assert response.headers["content-type"] == kind
        assert response.headers["x-seed"] == "7"
        lines = [line.removeprefix("data: ") for line in response.text.split("\n") if line]
        assert [json.loads(line) for line in lines] == [
            {"type": "step", "energy": 0.5},
            {"type": "step", "energy": 0.25},
        ]


async def test_events_leave_while_the_request_runs_and_a_late_error_is_the_last_of_them(stage):
    def begin(mailbox, submit):
        mailbox.say(m.Emitted("energy", [submit.tag], [1]))

    async with (
        asyncio.timeout(5),
        stage.serving(begin) as at,
        at.client.stream("POST", PATH, json=ASK, headers={"accept": NDJSON}) as response,
    ):
        lines = response.aiter_lines()
        assert json.loads(await anext(lines)) == {"type": "step", "energy": 1.0}
        tag = at.mailbox.sent_of(m.Submit)[0].tag
        at.mailbox.say(m.RequestFailed(tag, m.Fault("broke", 500, code="component_failed")))
        last = json.loads(await anext(lines))
        assert (last["type"], last["error"]["message"]) == ("error", "broke")


async def test_an_error_before_the_first_event_has_a_status_of_its_own(stage):
    def fail(mailbox, submit):
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("too long", 400, "invalid_request_error")))

    async with stage.serving(fail) as at:
        for kind in (SSE, "application/json"):
            response = await at.client.post(PATH, json=ASK, headers={"accept": kind})
            assert (response.status_code, error(response)["message"]) == (400, "too long")


# --- leaving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["application/json", SSE])
async def test_a_client_that_leaves_cancels_its_request_also_where_nothing_is_streamed(stage, kind):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(PATH, json=ASK, headers={"accept": kind}))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        asking.cancel()
        (cancel,) = await at.mailbox.wait_for(m.Cancel)
        assert cancel.tag == submit.tag


async def test_what_a_handler_has_cancelled_is_told_as_that(stage):
    async with stage.serving() as at:
        response = await asyncio.wait_for(at.client.post(PATH, json=ASK | {"title": "given up"}), 5)
        assert (response.status_code, error(response)["code"]) == (499, "cancelled")
        assert len(at.mailbox.sent_of(m.Cancel)) == 1


async def test_what_still_runs_when_the_handler_fails_is_cancelled(stage):
    async def forget(exchange):
        await exchange.start(exchange.request(parts=(Part("text", "x"),)))
        raise RuntimeError("after the start")

    async with stage.serving(routes=[changed(handle=forget)]) as at:
        assert (await at.client.post(PATH, json=ASK)).status_code == 500
        assert len(await at.mailbox.wait_for(m.Cancel)) == 1


def changed(**more):
    return Route(**{name: getattr(ROUTE, name) for name in ROUTE.__dataclass_fields__} | more)


async def test_the_time_that_a_client_gives_goes_with_the_request(stage):
    async with stage.serving(gives(), timeout_s=60) as at:
        await at.client.post(PATH, json=ASK, headers={"x-timeout-s": "2.5"})
        assert at.mailbox.sent_of(m.Submit)[0].timeout_s == 2.5
        late = await at.client.post(PATH, json=ASK, headers={"x-timeout-s": "61"})
        assert (late.status_code, error(late)["param"]) == (400, "x-timeout-s")


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "status", "param", "said"),
    [
        ({"model": "nobody"}, 404, "model", "there is no model 'nobody' here"),
        ({"model": "parrot"}, 400, "model", "has no scores; it has audio.speech"),
        ({"title": ""}, 400, "title", "length >= 1"),
        ({"takes": 10}, 400, "takes", "<= 9"),
        ({"manner": "sad"}, 400, "manner", "sad"),
        ({"stepps": 1}, 400, "stepps", "did you mean 'steps'?"),
        ({"titel": "x"}, 400, "titel", "did you mean 'title'?"),
        ({"steps": 0}, 400, "steps", ">= 1"),
        ({"takes": 2, "manner": "fast"}, 400, None, "several takes are slow"),
        ({"pages": ["!"]}, 400, "pages", "base64"),
    ],
)
async def test_what_is_wrong_is_named(stage, more, status, param, said):
    async with stage.serving() as at:
        response = await at.client.post(PATH, json=ASK | more)
        assert (response.status_code, error(response)["param"]) == (status, param)
        assert said in error(response)["message"]
        assert at.mailbox.sent_of(m.Submit) == []


async def test_a_missing_field_is_named(stage):
    async with stage.serving() as at:
        for missing in ("model", "title"):
            response = await at.client.post(PATH, json={k: v for k, v in ASK.items() if k != missing})
            assert (response.status_code, error(response)["param"]) == (400, missing)


async def test_bodies_are_read_up_to_the_limits_of_the_server(stage):
    async with stage.serving(gives(), body_bytes=1000, media_bytes=4000) as at:
        long = await at.client.post(PATH, json=ASK | {"title": "x" * 1000})
        assert long.status_code == 413
        form = {"model": (None, "studio"), "title": (None, "x")}
        fits = await at.client.post(PATH, files=form | {"sheet": ("s", b"x" * 3000)})
        assert fits.status_code == 200
        text = await at.client.post(PATH, files=form | {"title": (None, "x" * 1001)})
        assert (text.status_code, "title: it is longer" in error(text)["message"]) == (413, True)
        assert (await at.client.post(PATH, files=form | {"sheet": ("s", b"x" * 4000)})).status_code == 413
        other = await at.client.post(PATH, content=b"x", headers={"content-type": "text/plain"})
        assert other.status_code == 415


async def test_a_client_that_sends_its_body_too_slowly_is_cut(stage):
    async with stage.serving(receive_timeout_s=0.2) as at:
        with sockets.create_connection((at.server.host, at.server.port)) as slow:
            kind, size = "content-type: application/json", "content-length: 9"
            slow.sendall(f"POST {PATH} HTTP/1.1\r\nhost: x\r\n{kind}\r\n{size}\r\n\r\n{{".encode())
            answer = await asyncio.to_thread(slow.recv, 4096)
        assert b" 408 " in answer.split(b"\r\n")[0]


async def test_a_bug_in_a_handler_is_told_to_the_operator_and_not_to_the_client(stage, caplog):
    async with stage.serving() as at:
        response = await at.client.post(PATH, json=ASK | {"title": "a bug"})
        assert (response.status_code, error(response)["code"]) == (500, "internal_error")
        assert "/secret" not in response.text
        assert "/secret/place.py" in caplog.text


@pytest.mark.parametrize(("accept", "said"), [(SSE, "wants events"), ("image/png", "wants image/png")])
async def test_a_handler_that_gives_another_form_than_its_client_wants_is_a_bug(stage, accept, said, caplog):
    async def wrong(exchange):
        return Scored("x", "y")

    async with stage.serving(routes=[changed(handle=wrong)]) as at:
        assert (await at.client.post(PATH, json=ASK, headers={"accept": accept})).status_code == 500
        assert said in caplog.text


async def test_a_key_is_wanted_where_the_server_wants_one(stage):
    async with stage.serving(gives(), keys=ApiKeys.of(["sesame"])) as at:
        assert (await at.client.post(PATH, json=ASK)).status_code == 401
        bearer = {"authorization": "Bearer sesame"}
        assert (await at.client.post(PATH, json=ASK, headers=bearer)).status_code == 200


# --- what is told of it ---------------------------------------------------------------------------------


async def test_models_are_told_with_their_own_surfaces_and_the_routes_of_these(stage):
    async with stage.serving() as at:
        cards = (await at.client.get("/v1/models")).json()["data"]
        surfaces = {card["id"]: card["surfaces"] for card in cards}
        assert surfaces["studio"] == {"scores": [f"POST {PATH}"]}
        assert "scores" not in surfaces["parrot:toy"]


async def test_openapi_has_the_route_with_fields_options_answers_errors_and_examples(stage):
    async with stage.serving() as at:
        schema = (await at.client.get("/schema/openapi.json")).json()
        assert PATH in (await at.client.get("/schema")).text
    route = schema["paths"][PATH]["post"]
    assert (route["summary"], route["description"], route["tags"]) == (
        "Score something",
        "With *care*.",
        ["scores"],
    )
    body = route["requestBody"]["content"]["application/json"]
    assert body["schema"]["required"] == ["model", "title"]
    assert {"model", "title", "sheet", "steps", "seed"} <= set(body["schema"]["properties"])
    assert body["schema"]["additionalProperties"] is False
    assert body["schema"]["properties"]["takes"]["maximum"] == 9
    form = route["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert {"type": "string", "format": "binary"} in form["properties"]["sheet"]["anyOf"]
    good = route["responses"]["200"]["content"]
    assert set(good) == {"application/json", "image/png", NDJSON, SSE}
    assert {"400", "401", "404", "406", "408", "413", "415", "429", "500", "503", "504"} < set(
        route["responses"]
    )
    for media in (body, good["application/json"], good[NDJSON]):
        validator = jsonschema_rs.Draft202012Validator(media["schema"] | {"components": schema["components"]})
        for example in media["examples"].values():
            assert [wrong.message for wrong in validator.iter_errors(example["value"])] == []
    assert {"x-timeout-s", "x-client-request-id"} <= {each["name"] for each in route["parameters"]}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"path": "v1/x"}, "no path of a route"),
        ({"path": "/v1/{id}"}, "without parameters"),
        ({"summary": ""}, "say in 'summary'"),
        (
            {"fields": type("Bad", (Struct,), {"__annotations__": {"model": str}})},
            "'model' is a field of every",
        ),
        ({"example_event": None}, "with 'events' goes an 'example_event'"),
    ],
)
def test_a_declaration_that_cannot_be_served_is_refused_when_it_is_made(more, said):
    with pytest.raises(DeclarationError, match=said):
        changed(**more)


def test_a_surface_of_ones_own_has_a_name_and_is_no_standard_one():
    for wrong, said in (("scores", "a tuple"), (("No",), "a tuple"), (("audio.speech",), "speech_request")):
        with pytest.raises(DeclarationError, match=said):
            type("Bad", (Model,), {"own_surfaces": wrong})
