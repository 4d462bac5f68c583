"""How long a request may take, and what its client calls it, on every route and in every form of answer."""

import asyncio
import json

import httpx
import pytest
from websockets.asyncio.client import connect

from walkserve import messages as m
from walkserve_sdk.client import AsyncClient, Client
from walkserve_sdk.errors import DeadlineExceeded

pytestmark = pytest.mark.anyio
SPEECH, GENERATE = "/v1/audio/speech", "/v1/generate"
SAY = {"model": "parrot", "input": "hello"}
ASK = {"model": "parrot", "text": "hello"}
ROUTES = [(SPEECH, SAY), (GENERATE, ASK)]
LATE = m.Fault("the request did not end within 2 s", 504, "timeout", "deadline_exceeded")


def answer(stage, *, reason="stop"):
    def on_submit(mailbox, submit):
        mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.5)), stage.ended(submit.tag, 1, reason))

    return on_submit


def expires(mailbox, submit):
    mailbox.say(m.RequestFailed(submit.tag, LATE))


def expires_midway(stage):
    def on_submit(mailbox, submit):
        mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.5)))
        asyncio.get_running_loop().call_later(0.05, mailbox.say, m.RequestFailed(submit.tag, LATE))

    return on_submit


def submitted(at):
    (submit,) = at.mailbox.sent_of(m.Submit)
    return submit


# --- deadlines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("route", "ask"), ROUTES)
async def test_the_header_says_how_long_a_request_may_take(stage, route, ask):
    async with stage.serving(answer(stage)) as at:
        await at.client.post(route, json=ask, headers={"x-timeout-s": "2.5"})
        assert (submitted(at).timeout_s, submitted(at).passed_s) == (2.5, 0)


@pytest.mark.parametrize(("route", "ask"), ROUTES)
async def test_without_a_word_it_may_take_what_the_server_says_or_any_time(stage, route, ask):
    for timeout_s in (None, 9.0):
        async with stage.serving(answer(stage), timeout_s=timeout_s) as at:
            await at.client.post(route, json=ask)
            assert submitted(at).timeout_s == timeout_s


@pytest.mark.parametrize(
    ("header", "field", "holds"), [("2", 3, 2), ("3", 2, 2), (None, 3.5, 3.5), ("4", None, 4)]
)
async def test_of_the_header_and_the_field_the_shorter_holds(stage, header, field, holds):
    async with stage.serving(answer(stage), timeout_s=9) as at:
        headers = {} if header is None else {"x-timeout-s": header}
        assert (await at.client.post(GENERATE, json={**ASK, "timeout_s": field}, headers=headers)).is_success
        assert submitted(at).timeout_s == holds


async def test_a_form_says_it_as_well(stage):
    async with stage.serving(answer(stage)) as at:
        form = {name: (None, value) for name, value in {**ASK, "timeout_s": "2.5"}.items()}
        assert (await at.client.post(GENERATE, files=form)).is_success
        assert submitted(at).timeout_s == 2.5
        wrong = await at.client.post(GENERATE, files={**form, "timeout_s": (None, "soon")})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "timeout_s")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e999", "soon", "", "1 2", "1_0", "true"])
@pytest.mark.parametrize(("route", "ask"), ROUTES)
async def test_a_header_that_is_no_time_is_refused(stage, route, ask, seconds):
    async with stage.serving() as at:
        reply = await at.client.post(route, json=ask, headers={"x-timeout-s": seconds})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "x-timeout-s")
        assert at.mailbox.sent_of(m.Submit) == []


@pytest.mark.parametrize("seconds", ["0", "-0.5", '"5"', "true", "1e999", "[1]"])
async def test_a_field_that_is_no_time_is_refused(stage, seconds):
    async with stage.serving() as at:
        body = f'{{"model": "parrot", "text": "a", "timeout_s": {seconds}}}'
        reply = await at.client.post(GENERATE, content=body, headers={"content-type": "application/json"})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "timeout_s")


async def test_more_than_the_server_allows_is_refused_with_both_numbers(stage):
    async with stage.serving(timeout_s=5) as at:
        for route, ask in ROUTES:
            refused = (await at.client.post(route, json=ask, headers={"x-timeout-s": "7.5"})).json()["error"]
            told = "x-timeout-s: 7.5 s is more than a request may take here, which is 5 s"
            assert (refused["message"], refused["param"]) == (told, "x-timeout-s")
        refused = (await at.client.post(GENERATE, json={**ASK, "timeout_s": 7})).json()["error"]
        assert refused["message"].startswith("timeout_s: 7 s is more") and refused["param"] == "timeout_s"


@pytest.mark.parametrize(
    ("route", "ask"), [*ROUTES, (SPEECH, {**SAY, "stream": True}), (SPEECH, {**SAY, "stream_format": "sse"})]
)
async def test_what_is_over_before_its_first_piece_is_a_504(stage, route, ask):
    async with stage.serving(expires) as at:
        reply = await at.client.post(route, json=ask)
        problem = {"message": LATE.message, "type": "timeout", "param": None, "code": "deadline_exceeded"}
        assert (reply.status_code, reply.json()) == (504, {"error": problem})
        told = (await at.client.get(f"/v1/requests/{reply.headers['x-request-id']}")).json()
        assert (told["state"], told["error"]["code"]) == ("failed", "deadline_exceeded")


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
async def test_in_mid_stream_it_is_an_event(stage, accept):
    async with stage.serving(expires_midway(stage)) as at:
        reply = await at.client.post(GENERATE, json=ASK, headers={"accept": accept})
        last = json.loads(reply.text.strip().splitlines()[-1].removeprefix("data: "))
        assert (reply.status_code, last["type"], last["error"]["code"]) == (200, "error", LATE.code)


async def test_a_raw_stream_is_cut(stage):
    async with stage.serving(expires_midway(stage)) as at:
        with pytest.raises(httpx.RemoteProtocolError):
            await at.client.post(SPEECH, json={**SAY, "stream": True})


@pytest.mark.parametrize(
    ("route", "ask"),
    [
        (SPEECH, {"model": "parrot", "input": "One is here. Two follows.", "split": "sentence"}),
        (GENERATE, {"model": "parrot", "text": "One is here. Two follows.", "split": "sentence"}),
    ],
)
async def test_all_calls_of_a_split_text_have_one_time_together(stage, route, ask):
    def slowly(mailbox, submit):
        asyncio.get_running_loop().call_later(0.05, answer(stage), mailbox, submit)

    async with stage.serving(slowly) as at:
        assert (await at.client.post(route, json=ask, headers={"x-timeout-s": "30"})).is_success
        first, second = at.mailbox.sent_of(m.Submit)
        assert (first.timeout_s, second.timeout_s, first.passed_s) == (30, 30, 0)
        assert 0.04 < second.passed_s < 5


# --- on a WebSocket -----------------------------------------------------------------------------------


async def test_a_request_of_a_socket_may_say_it_and_is_told_in_an_event(stage):
    async with (
        stage.serving(expires, timeout_s=5) as at,
        connect(f"{at.server.url.replace('http', 'ws')}/v1/stream") as socket,
    ):
        for label, seconds in (("a", 2), ("b", None), ("c", 7), ("d", 0)):
            await socket.send(json.dumps({**ASK, "type": "generate", "id": label, "timeout_s": seconds}))
        heard = {}
        while len(heard) < 4:
            event = json.loads(await asyncio.wait_for(socket.recv(), 5))
            if event["type"] == "error":
                heard[event["id"]] = event["error"]
        assert [submit.timeout_s for submit in at.mailbox.sent_of(m.Submit)] == [2, 5]
        assert heard["a"]["code"] == heard["b"]["code"] == "deadline_exceeded"
        assert heard["c"]["message"].startswith("timeout_s: 7 s is more")
        assert heard["c"]["param"] == heard["d"]["param"] == "timeout_s"


async def test_text_that_does_not_come_in_time_ends_its_request(stage):
    async with (
        stage.serving(answer(stage)) as at,
        connect(f"{at.server.url.replace('http', 'ws')}/v1/stream") as socket,
    ):
        ask = {"text": "One is here. And two", "text_open": True, "split": "sentence", "timeout_s": 0.2}
        await socket.send(json.dumps({**ASK, **ask, "type": "generate", "id": "a"}))
        heard = []
        while not heard or heard[-1]["type"] != "error":
            frame = await asyncio.wait_for(socket.recv(), 5)
            heard += [json.loads(frame)] if isinstance(frame, str) else []
        assert [each["type"] for each in heard] == ["started", "output", "error"]
        assert heard[-1]["error"]["message"] == "the request did not end within 0.2 s"
        told = (await at.client.get(f"/v1/requests/{heard[0]['request_id']}")).json()
        assert (told["state"], told["client_request_id"]) == ("failed", "a")
        await socket.send(json.dumps({"type": "text", "id": "a", "text": "."}))
        assert "no request 'a' is open" in json.loads(await socket.recv())["error"]["message"]


async def test_two_sockets_may_use_one_id_and_never_meet(stage):
    async with stage.serving(answer(stage)) as at:
        url = f"{at.server.url.replace('http', 'ws')}/v1/stream"
        async with connect(url) as one, connect(url) as other:
            for socket in (one, other):
                await socket.send(json.dumps({**ASK, "type": "generate", "id": "a"}))
            ids = {
                json.loads(await asyncio.wait_for(socket.recv(), 5))["request_id"] for socket in (one, other)
            }
            assert len(ids) == 2


# --- the Python client --------------------------------------------------------------------------------


async def test_the_python_client_asks_for_it_and_raises_what_it_is(stage):
    async with stage.serving(expires) as at:

        def ask(**more):
            with Client(at.server.url) as client:
                return client.generate("parrot", text="hello", timeout_s=2, **more)

        for more in ({}, {"inputs": None}):
            with pytest.raises(DeadlineExceeded, match="did not end within 2 s"):
                await asyncio.to_thread(ask, **more)
        async with AsyncClient(at.server.url).connect() as session:
            with pytest.raises(DeadlineExceeded, match="did not end within 2 s"):
                await session.generate("parrot", text="hello", timeout_s=2.5).result()
        assert [submit.timeout_s for submit in at.mailbox.sent_of(m.Submit)] == [2, 2, 2.5]


async def test_the_python_client_asks_for_it_in_a_form_too(stage):
    async with stage.serving(expires, more={"studio": stage.Studio()}) as at:

        def ask():
            with Client(at.server.url) as client:
                client.generate("studio", text="look", audio=b"xx", timeout_s=2.5)

        with pytest.raises(DeadlineExceeded):
            await asyncio.to_thread(ask)
        assert submitted(at).timeout_s == 2.5


# --- a client's own id --------------------------------------------------------------------------------


async def test_a_clients_own_id_is_sent_back_told_and_never_looked_up(stage):
    async with stage.serving(answer(stage)) as at:
        replies = [
            await at.client.post(route, json=ask, headers={"x-client-request-id": "order 17"})
            for route, ask in ROUTES
        ]
        ids = [reply.headers["x-request-id"] for reply in replies]
        assert len(set(ids)) == 2 and all(id.startswith("req-") for id in ids)
        for reply, id in zip(replies, ids, strict=True):
            assert reply.headers["x-client-request-id"] == "order 17"
            assert (await at.client.get(f"/v1/requests/{id}")).json()["client_request_id"] == "order 17"
        assert (await at.client.get("/v1/requests/order 17")).status_code == 404
        assert {submit.label for submit in at.mailbox.sent_of(m.Submit)} == set(ids)


async def test_it_is_sent_back_with_errors_and_by_every_route(stage):
    async with stage.serving(more={"studio": stage.Studio()}) as at:
        for method, path in (
            ("GET", "/v1/models"),
            ("GET", "/nowhere"),
            ("POST", SPEECH),
            ("GET", "/health"),
        ):
            reply = await at.client.request(method, path, headers={"x-client-request-id": "mine"})
            assert reply.headers["x-client-request-id"] == "mine"
        assert "x-client-request-id" not in (await at.client.get("/health")).headers


@pytest.mark.parametrize("id", [b"", b"x" * 513, "é".encode(), "é".encode("latin-1"), b"a\tb"])
async def test_an_id_that_no_log_should_hold_is_refused(stage, id):
    async with stage.serving() as at:
        reply = await at.client.post(SPEECH, json=SAY, headers=[(b"x-client-request-id", id)])
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "x-client-request-id")
        assert at.mailbox.sent_of(m.Submit) == []


async def test_an_id_is_given_once_and_may_have_512_characters(stage):
    async with stage.serving() as at:
        twice = [("x-client-request-id", "a"), ("x-client-request-id", "b")]
        assert (await at.client.get("/health", headers=twice)).status_code == 400
        longest = {"x-client-request-id": "~" * 512}
        assert (await at.client.get("/health", headers=longest)).headers["x-client-request-id"] == "~" * 512
