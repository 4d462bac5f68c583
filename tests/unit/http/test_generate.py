"""``POST /v1/generate`` through a real web server: every kind of input in, every kind of output out."""

import asyncio
import base64
import io
import json
import wave
from functools import partial

import jsonschema_rs  # of schemathesis
import numpy as np
import pytest
from msgspec import json as msgspec_json
from tests.dot import DOT

from walkserve import messages as m
from walkserve_sdk import events as e

pytestmark = pytest.mark.anyio
GENERATE = "/v1/generate"
ASK = {"model": "parrot", "text": "hello", "options": {"seed": 7}}
ALL = {"model": "studio", "text": "go", "options": {"seed": 7}}
NDJSON, SSE = "application/x-ndjson", "text/event-stream"


@pytest.fixture
def stage(stage):
    """With a model that takes and makes everything."""
    stage.serving = partial(stage.serving, more={"studio": stage.Studio()})
    return stage


def array(values, dtype="float32"):
    made = np.array(values, dtype)
    return m.Array(dtype, made.shape, made.tobytes())


def gives(*items, reason="stop", usage=None, counts=None):
    """A conductor that has every request give these at once: (output, items...)."""

    def on_submit(mailbox, submit):
        mailbox.say(m.Admitted(submit.tag))
        emitted = {}
        for output, *values in items:
            mailbox.say(m.Emitted(output, [submit.tag] * len(values), values))
            emitted[output] = emitted.get(output, 0) + len(values)
        mailbox.say(m.RequestEnded(submit.tag, reason, 7, emitted, usage or {}, counts or {}))

    return on_submit


def refuses(status=400, **more):
    def on_submit(mailbox, submit):
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("no", status, **more)))

    return on_submit


def lines(response):
    assert response.headers["content-type"] == NDJSON
    return [json.loads(line) for line in response.text.splitlines()]


def numbers(event):
    data = base64.b64decode(event["data"])
    return np.frombuffer(data, event["dtype"]).reshape(event["shape"]).tolist()


EVERYTHING = gives(
    ("caption", "Grüße", " 🙂"),
    ("song", array([[0.5, -0.5]])),
    ("picture", array([[[1, 2, 3]]], "uint8")),
    ("film", array([[[[9, 8, 7]]]], "uint8")),
    ("energy", array([0.25, 0.5], "float64"), 3, [1.5, 2], True),
    usage={"input_tokens": 2},
    counts={"dropped": 1},
)

# --- events -------------------------------------------------------------------------------------------


async def test_a_request_is_told_as_started_its_pieces_and_done(stage):
    spoken = gives(("speech", array([0.0, 0.5]), array([1.0])), usage={"output_tokens": 21})
    async with stage.serving(spoken) as at:
        response = await at.client.post(GENERATE, json=ASK)
        assert response.status_code == 200
        assert response.headers["x-seed"] == "7"
        started, *pieces, done = lines(response)
        assert started == {
            "type": "started",
            "request_id": response.headers["x-request-id"],
            "model": "parrot:toy",
            "seed": 7,
            "outputs": {"speech": {"kind": "audio", "rate": 8000, "channels": 1}},
        }
        assert [(each["type"], each["index"], each["shape"], each["rate"]) for each in pieces] == [
            ("output", 0, [2], 8000),
            ("output", 1, [1], 8000),
        ]
        assert [numbers(each) for each in pieces] == [[0.0, 0.5], [1.0]]
        assert done == {
            "type": "done",
            "finish_reason": "stop",
            "usage": {"output_tokens": 21},
            "counts": {},
            "emitted": {"speech": 2},
        }
        assert at.caller.open_calls == 0
        assert at.mailbox.sent_of(m.Cancel) == []


async def test_every_kind_of_output_comes_with_its_kind_dtype_and_shape(stage):
    async with stage.serving(EVERYTHING) as at:
        started, *pieces, done = lines(await at.client.post(GENERATE, json=ALL))
        assert started["outputs"] == {
            "caption": {"kind": "text"},
            "song": {"kind": "audio", "rate": 8000, "channels": 2},
            "picture": {"kind": "image"},
            "film": {"kind": "video", "fps": 12.5},
            "energy": {"kind": "tensor", "many": True},
        }
        told = [(each["output"], each["kind"], each["index"]) for each in pieces]
        assert told == [
            ("caption", "text", 0),
            ("caption", "text", 1),
            ("song", "audio", 0),
            ("picture", "image", 0),
            ("film", "video", 0),
            *(("energy", "tensor", index) for index in range(4)),
        ]
        assert "".join(each["text"] for each in pieces[:2]) == "Grüße 🙂"
        song, picture, film, *energies = pieces[2:]
        assert (song["dtype"], song["rate"], numbers(song)) == ("float32", 8000, [[0.5, -0.5]])
        assert (picture["dtype"], numbers(picture)) == ("uint8", [[[1, 2, 3]]])
        assert (film["fps"], numbers(film)) == (12.5, [[[[9, 8, 7]]]])
        assert [(each["dtype"], numbers(each)) for each in energies] == [
            ("float64", [0.25, 0.5]),
            ("float16", 3.0),  # plain numbers have the dtype that the family has declared
            ("float16", [1.5, 2.0]),
            ("float16", 1.0),
        ]
        assert done["counts"] == {"dropped": 1}
        assert done["emitted"] == {"caption": 2, "song": 1, "picture": 1, "film": 1, "energy": 4}


async def test_what_the_server_sends_is_what_the_sdk_reads(stage):
    async with stage.serving(EVERYTHING) as at:
        response = await at.client.post(GENERATE, json=ALL)
        read = [msgspec_json.decode(line, type=e.ToCaller) for line in response.content.splitlines()]
        assert isinstance(read[0], e.Started) and isinstance(read[-1], e.Done)
        assert all(isinstance(each, e.Piece) for each in read[1:-1])
        assert b"\n".join(map(msgspec_json.encode, read)) + b"\n" == response.content


async def test_server_sent_events_are_the_same_events(stage):
    async with stage.serving(EVERYTHING) as at:
        plain = await at.client.post(GENERATE, json=ALL, headers={"accept": NDJSON})
        framed = await at.client.post(GENERATE, json=ALL, headers={"accept": SSE})
        assert framed.headers["content-type"] == SSE
        assert framed.text.endswith("}\n\n")
        blocks = framed.text.removesuffix("\n\n").split("\n\n")
        assert all(block.startswith("data: ") for block in blocks)
        events = [json.loads(block.removeprefix("data: ")) for block in blocks]
        assert events[1:] == lines(plain)[1:]


async def test_only_the_outputs_that_are_asked_for_are_made(stage):
    async with stage.serving(gives(("caption", "yes"))) as at:
        started, piece, _ = lines(await at.client.post(GENERATE, json={**ALL, "outputs": ["caption"]}))
        assert list(started["outputs"]) == [piece["output"]] == ["caption"]
        (submit,) = at.mailbox.sent_of(m.Submit)
        assert submit.outputs == ("caption",)


async def test_a_request_may_give_nothing_at_all(stage):
    async with stage.serving(gives(reason="length")) as at:
        events = lines(await at.client.post(GENERATE, json=ASK))
        assert [each["type"] for each in events] == ["started", "done"]
        assert events[1]["finish_reason"] == "length"
        assert events[1]["emitted"] == {"speech": 0}


async def test_pieces_leave_as_they_come_and_what_came_meanwhile_in_one_write(stage):
    async with stage.serving() as at:
        sending = at.client.build_request("POST", GENERATE, json=ASK)
        opening = asyncio.create_task(at.client.send(sending, stream=True))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(m.Emitted("speech", [submit.tag], [array([0.5])]))
        response = await opening  # the end is not known yet
        writes = response.aiter_raw()
        first = await anext(writes)
        assert [json.loads(line)["type"] for line in first.splitlines()] == ["started", "output"]
        at.mailbox.say(
            m.Emitted("speech", [submit.tag, submit.tag], [array([0.5]), array([0.5])]),
            m.Emitted("speech", [submit.tag], [array([0.5])]),
            m.RequestEnded(submit.tag, "stop", 7, {"speech": 4}, {}, {}),
        )
        rest = b"".join([write async for write in writes])
        assert [json.loads(line)["type"] for line in rest.splitlines()] == ["output"] * 3 + ["done"]


# --- raw bytes ----------------------------------------------------------------------------------------


async def raw(at, accept, output, **ask):
    body = {**ALL, "outputs": [output], **ask}
    response = await at.client.post(GENERATE, json=body, headers={"accept": accept})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].split(";")[0] == accept
    assert response.headers["content-length"] == str(len(response.content))
    assert response.headers["x-finish-reason"] == "stop"
    assert response.headers["x-usage-input-tokens"] == "2"
    return response


async def test_one_output_can_be_had_as_bytes(stage):
    async with stage.serving(EVERYTHING) as at:
        assert (await raw(at, "text/plain", "caption")).text == "Grüße 🙂"
        wav = await raw(at, "audio/wav", "song")
        with wave.open(io.BytesIO(wav.content)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (8000, 2, 1)
        pcm = await raw(at, "audio/pcm", "song")
        assert pcm.headers["content-type"] == "audio/pcm;rate=8000;channels=2"
        assert np.frombuffer(pcm.content, "<i2").tolist() == [16384, -16384]
        npy = await raw(at, "application/x-npy", "picture")
        assert np.load(io.BytesIO(npy.content)).tolist() == [[[1, 2, 3]]]
        bare = await raw(at, "application/octet-stream", "film")
        assert (bare.headers["x-dtype"], bare.headers["x-shape"]) == ("uint8", "1,1,1,3")
        assert bare.content == bytes([9, 8, 7])
        assert np.load(io.BytesIO((await raw(at, "application/x-npy", "song")).content)).shape == (1, 2)


ACCEPTED = [
    ("", NDJSON),
    ("*/*", NDJSON),
    ("application/*", NDJSON),
    ("text/html, */*;q=0.1", NDJSON),
    ("text/event-stream", SSE),
    ("application/x-ndjson;q=0.5, text/event-stream", SSE),
    ("audio/*", "audio/wav"),
    ("video/mp4, audio/wav;q=0.9, */*;q=0.1", "audio/wav"),
    ("application/x-ndjson;q=0, */*", SSE),
]


async def test_the_accept_header_chooses_the_form(stage):
    async with stage.serving(gives(("speech", array([0.5])))) as at:
        for accept, media_type in ACCEPTED:
            response = await at.client.post(GENERATE, json=ASK, headers={"accept": accept})
            assert response.headers["content-type"] == media_type, accept


NOT_ACCEPTED = [
    # accept, what is asked, a word of the message
    ("text/html", ASK, "there is application/x-ndjson, text/event-stream, text/plain"),
    ("application/json", ASK, "can be had as application/x-ndjson"),
    ("application/xml", ASK, "not offered"),
    ("application/x-ndjson;q=0", ASK, "not offered"),
    ("audio/wav", {**ALL, "outputs": ["caption"]}, "text/plain"),
    ("text/plain", ASK, "speech (audio)"),
    ("audio/wav", ALL, "name one in 'outputs'"),
]


async def test_a_form_that_cannot_be_had_is_a_406_before_anything_runs(stage):
    async with stage.serving(EVERYTHING) as at:
        for accept, ask, word in NOT_ACCEPTED:
            response = await at.client.post(GENERATE, json=ask, headers={"accept": accept})
            assert response.status_code == 406, accept
            assert response.headers["content-type"] == "application/json"
            error = response.json()["error"]
            assert (error["param"], error["code"]) == ("accept", "not_acceptable"), accept
            assert word in error["message"], accept
        assert at.mailbox.sent_of(m.Submit) == []


async def test_several_arrays_do_not_fit_into_one(stage):
    async with stage.serving(EVERYTHING) as at:
        body = {**ALL, "outputs": ["energy"]}
        response = await at.client.post(GENERATE, json=body, headers={"accept": "application/x-npy"})
        assert response.status_code == 406
        assert "4 pieces" in response.json()["error"]["message"]


# --- inputs -------------------------------------------------------------------------------------------

PARTS = [
    m.SentPart("text", b"look:"),
    m.SentPart("image", DOT),
    m.SentPart("text", "ähnlich".encode()),
    m.SentPart("audio", b"RIFF\r\n--"),
    m.SentPart("video", DOT),
    m.SentPart("tensor", bytes(range(256)), "states"),
    m.SentPart("image", DOT, "goal"),
    m.SentPart("text", b"named", "caption [1]"),
]


async def test_inputs_of_every_kind_reach_the_runtime_in_their_order(stage):
    async with stage.serving(gives()) as at:
        inputs = [
            {"type": part.kind, "text": part.data.decode(), "name": part.name}
            if part.kind == "text"
            else {"type": part.kind, "data": base64.b64encode(part.data).decode(), "name": part.name}
            for part in PARTS
        ]
        response = await at.client.post(GENERATE, json={"model": "studio", "inputs": inputs})
        assert response.status_code == 200
        assert list(at.mailbox.sent_of(m.Submit)[0].parts) == PARTS


async def test_a_form_says_the_same_with_files_as_they_are(stage):
    async with stage.serving(gives()) as at:
        form = [("model", (None, "studio")), ("options", (None, '{"steps": 2, "seed": 9}'))]
        form += [
            (
                f"{part.kind}[{part.name}]" if part.name else part.kind,
                (None, part.data.decode()) if part.kind == "text" else ("a.bin", part.data),
            )
            for part in PARTS
        ]
        form += [("outputs", (None, "song")), ("outputs", (None, "film"))]
        response = await at.client.post(GENERATE, files=form)
        assert response.status_code == 200, response.text
        (submit,) = at.mailbox.sent_of(m.Submit)
        assert list(submit.parts) == PARTS
        assert submit.outputs == ("song", "film")
        assert (submit.options.steps, submit.seed) == (2, 9)


BAD = [
    # what is sent, status, param, a word of the message
    ({"text": "hi"}, 400, "model", "missing"),
    ({**ASK, "model": "nobody"}, 404, "model", "there is no model 'nobody'"),
    ({**ASK, "txt": "hi"}, 400, "txt", "did you mean 'text'?"),
    ({**ASK, "max_tokens": 3}, 400, "max_tokens", "put it into 'options'"),
    ({**ASK, "audio": "aGk="}, 400, "audio", "put it into 'inputs'"),
    ({**ASK, "inputs": []}, 400, "text", "short for one text among the inputs"),
    ({**ASK, "text": 3}, 400, "text", "expected `str"),
    ({**ASK, "outputs": "speech"}, 400, "outputs", "expected `array"),
    ({**ASK, "outputs": []}, 400, "outputs", "no output is asked for"),
    ({**ASK, "outputs": ["speach"]}, 400, "outputs", "did you mean 'speech'?"),
    ({**ASK, "options": {"max_tokens": 0}}, 400, "options.max_tokens", ">= 1"),
    ({**ASK, "options": {"vioce": "x"}}, 400, "options.vioce", "did you mean 'voice'?"),
    ({**ASK, "options": {"voice": "nobody"}}, 400, "options.voice", "polly, jack"),
    ({**ASK, "options": {"seed": 2**63}}, 400, "options.seed", ""),
    ({**ASK, "options": []}, 400, "options", "expected `object"),
    ({**ASK, "split": "word"}, 400, "split", "word"),
    ({"model": "parrot", "inputs": [{"type": "image", "data": "aGk="}]}, 400, "image", "takes no image"),
    ({"model": "studio", "inputs": ["hi"]}, 400, "inputs[0]", "an object with a 'type'"),
    ({"model": "studio", "inputs": [{"text": "hi"}]}, 400, "inputs[0].type", "missing"),
    ({"model": "studio", "inputs": [{"type": "imge"}]}, 400, "inputs[0].type", "did you mean 'image'?"),
    ({"model": "studio", "inputs": [{"type": ["text"]}]}, 400, "inputs[0].type", "known: text"),
    ({"model": "studio", "inputs": [{"type": "text"}]}, 400, "inputs[0].text", "missing"),
    ({"model": "studio", "inputs": [{"type": "text", "data": "aGk="}]}, 400, "inputs[0].data", "unknown"),
    ({"model": "studio", "inputs": [{"type": "image", "data": "%%%"}]}, 400, "inputs[0].data", "base64"),
    ({"model": "studio", "inputs": [{"type": "image", "data": 7}]}, 400, "inputs[0].data", "expected"),
]


async def test_what_cannot_be_served_is_refused_with_the_field_at_fault(stage):
    async with stage.serving() as at:
        for sent, status, param, word in BAD:
            response = await at.client.post(GENERATE, json=sent)
            assert response.status_code == status, sent
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error", sent
            assert error["param"] == param, sent
            assert word in error["message"], sent
        assert at.mailbox.sent_of(m.Submit) == []


BAD_FORMS = [
    ([("model", (None, "studio")), ("picture", ("a", b"x"))], 400, "picture", "unknown field"),
    ([("model", (None, "studio")), ("image[goal", ("a", b"x"))], 400, "image[goal", "as in image[goal]"),
    ([("model", (None, "studio")), ("outputs[a]", (None, "x"))], 400, "outputs[a]", "unknown field"),
    ([("model", (None, "studio")), ("imag", ("a", b"x"))], 400, "imag", "did you mean 'image'?"),
    ([("model", (None, "studio")), ("model", (None, "parrot"))], 400, "model", "twice"),
    ([("model", (None, "studio")), ("options", (None, "{"))], 400, "options", "no valid JSON"),
    ([("model", (None, "studio")), ("options", (None, "[]"))], 400, "options", "not a JSON object"),
    ([("model", (None, "studio")), ("text", (None, b"\xff"))], 400, "text", "not UTF-8"),
    ([("text", (None, "hi"))], 400, "model", "missing"),
    ([("model", (None, "studio")), ("text", (None, "x" * 2000))], 413, None, "longer than 1,000 bytes"),
    ([("model", (None, "studio")), ("image", (None, "x" * 8000))], 413, None, "larger than 5,000 bytes"),
    ([("model", (None, "studio"))] + [("text", (None, ""))] * 90, 413, None, "larger than 5,000 bytes"),
]


async def test_a_form_that_cannot_be_served_is_refused(stage):
    async with stage.serving(body_bytes=1000, media_bytes=5000) as at:
        for form, status, param, word in BAD_FORMS:
            response = await at.client.post(GENERATE, files=form)
            assert response.status_code == status, form
            assert response.json()["error"]["param"] == param, form
            assert word in response.json()["error"]["message"], form
        assert at.mailbox.sent_of(m.Submit) == []


FORM = "multipart/form-data"
BAD_BODIES = [
    # content type, body, status, a word of the message
    (f"{FORM}; boundary=b", b"", 400, "no valid form"),
    (f"{FORM}; boundary=b", b"--b\r\nwhat", 400, "no valid form"),
    (f"{FORM}; boundary=b", b"--b\r\nContent-Disposition: x\r\n\r\n\r\n--b--", 400, "no valid form"),
    (FORM, b"--b--", 400, "no valid form"),
    (f"{FORM}; boundary=b", b"--b--\r\n", 400, "'model' is missing"),
    ("application/json", b"{", 400, "no valid JSON"),
    ("application/json", b"[]", 400, "not a JSON object"),
    ("text/plain", b"hi", 415, "application/json, or multipart/form-data"),
    ("application/x-www-form-urlencoded", b"model=studio", 415, FORM),
]


async def test_a_body_of_another_kind_is_refused(stage):
    async with stage.serving() as at:
        for content_type, body, status, word in BAD_BODIES:
            response = await at.client.post(GENERATE, content=body, headers={"content-type": content_type})
            assert response.status_code == status, (content_type, body)
            assert word in response.json()["error"]["message"], (content_type, body)


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_form_that_is_too_large_is_refused_before_all_of_it_is_read(stage, is_announced):
    async with stage.serving(media_bytes=100_000) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        length = "content-length: 1000000000" if is_announced else "transfer-encoding: chunked"
        head = "POST /v1/generate HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
        writer.write(f"{head}{length}\r\n\r\n".encode())
        if not is_announced:
            part = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\n' + b"x" * 120_000
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        status = await asyncio.wait_for(reader.readline(), 5)
        assert status.split()[1] == b"413"
        writer.close()


async def test_a_form_may_be_larger_than_json_may(stage):
    async with stage.serving(gives(), body_bytes=1000) as at:
        form = [("model", (None, "studio")), ("audio", ("a", b"x" * 3_000_000))]
        assert (await at.client.post(GENERATE, files=form)).status_code == 200
        assert len(at.mailbox.sent_of(m.Submit)[0].parts[0].data) == 3_000_000
        body = {"model": "studio", "text": "x" * 2000}
        assert (await at.client.post(GENERATE, json=body)).status_code == 413


# --- failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", [NDJSON, SSE, "audio/wav"])
async def test_a_failure_before_the_first_piece_has_its_own_status(stage, accept):
    async with stage.serving(refuses(429, type="rate", code="full", param="text")) as at:
        response = await at.client.post(GENERATE, json=ASK, headers={"accept": accept})
        assert response.status_code == 429
        assert response.json() == {
            "error": {"message": "no", "type": "rate", "code": "full", "param": "text"}
        }


@pytest.mark.parametrize("accept", [NDJSON, SSE])
async def test_a_failure_in_mid_stream_is_the_last_event(stage, accept):
    def on_submit(mailbox, submit):
        mailbox.say(m.Emitted("speech", [submit.tag], [array([0.5])]))
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("lost a worker", 503, "unavailable", "worker_lost")))

    async with stage.serving(on_submit) as at:
        response = await at.client.post(GENERATE, json=ASK, headers={"accept": accept})
        assert response.status_code == 200
        told = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line]
        assert [each["type"] for each in told] == ["started", "output", "error"]
        problem = {"message": "lost a worker", "type": "unavailable", "param": None, "code": "worker_lost"}
        assert told[-1]["error"] == problem


async def test_raw_bytes_have_a_status_of_their_own_for_every_failure(stage):
    def on_submit(mailbox, submit):
        mailbox.say(m.Emitted("speech", [submit.tag], [array([0.5])]))
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("lost a worker", 503, "unavailable", "worker_lost")))

    async with stage.serving(on_submit) as at:
        response = await at.client.post(GENERATE, json=ASK, headers={"accept": "audio/wav"})
        assert response.status_code == 503


@pytest.mark.parametrize(
    ("output", "item"),
    [("caption", 7), ("caption", array([1.0])), ("song", "la"), ("energy", None), ("energy", [1, "a"])],
)
async def test_an_output_that_is_not_as_declared_is_our_fault(stage, output, item):
    async with stage.serving(gives(("picture", array([[[1, 2, 3]]], "uint8")), (output, item))) as at:
        response = await at.client.post(GENERATE, json=ALL)
        told = lines(response) if response.status_code == 200 else [response.json()]
        assert told[-1]["error"]["code"] == "internal_error"
        assert (await at.client.get("/health")).status_code == 200


async def test_a_bug_of_a_family_is_a_500_without_its_text(stage, monkeypatch):
    def check(self, request):
        raise RuntimeError("in /secret/place.py")

    async with stage.serving() as at:
        monkeypatch.setattr(stage.Parrot, "check", check)
        response = await at.client.post(GENERATE, json=ASK)
        assert response.status_code == 500
        assert "secret" not in response.text


# --- leaving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", [NDJSON, "audio/wav"])
async def test_a_client_that_leaves_cancels_its_request(stage, accept):
    async with stage.serving() as at:
        asking = asyncio.create_task(at.client.post(GENERATE, json=ASK, headers={"accept": accept}))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(m.Emitted("speech", [submit.tag], [array([0.5])]))
        asking.cancel()
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]
        assert at.caller.open_calls == 0


async def test_a_client_that_does_not_read_is_cut(stage):
    async with stage.serving(buffer_bytes=1 << 20) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port, limit=1024)
        body = json.dumps(ASK).encode()
        head = "POST /v1/generate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        loud = array([0.5] * 50_000)
        for _ in range(200):
            at.mailbox.say(m.Emitted("speech", [submit.tag], [loud]))
            await asyncio.sleep(0)
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]
        got = b""
        while piece := await asyncio.wait_for(reader.read(1 << 16), 5):
            got += piece
        assert not got.endswith(b"0\r\n\r\n")  # and so it knows that there is more
        writer.close()


async def test_the_request_can_be_asked_about_by_its_id(stage):
    async with stage.serving(gives(("speech", array([0.5])))) as at:
        started = lines(await at.client.post(GENERATE, json=ASK))[0]
        told = (await at.client.get(f"/v1/requests/{started['request_id']}")).json()
        assert (told["state"], told["seed"], told["model"]) == ("done", 7, "parrot:toy")


async def test_openapi_describes_the_events_that_are_sent(stage):
    async with stage.serving(EVERYTHING) as at:
        openapi = (await at.client.get("/schema/openapi.json")).json()
        described = openapi["paths"]["/v1/generate"]["post"]
        schema = described["responses"]["200"]["content"][NDJSON]["schema"]["contentSchema"]
        validator = jsonschema_rs.Draft202012Validator(schema)
        for event in lines(await at.client.post(GENERATE, json=ALL)):
            validator.validate(event)
        assert not validator.is_valid({"type": "done"})
        body = described["requestBody"]["content"]["application/json"]
        for example in body["examples"].values():
            jsonschema_rs.Draft202012Validator(body["schema"]).validate(example["value"])


async def test_hanging_up_before_the_body_is_complete_leaves_nothing(stage):
    async with stage.serving() as at:
        _, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        head = "POST /v1/generate HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
        part = '--b\r\nContent-Disposition: form-data; name="image"\r\n\r\nxx'
        writer.write(f"{head}content-length: 100000\r\n\r\n{part}".encode())
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        assert (await at.client.get("/health")).status_code == 200
        assert at.mailbox.sent_of(m.Submit) == []


async def test_a_long_text_is_spoken_sentence_by_sentence_as_one_answer(stage):
    async with stage.serving(gives(("speech", array([0.5])), usage={"output_tokens": 3})) as at:
        ask = {"model": "parrot", "text": "One is here. Two follows. " * 2, "split": "sentence"}
        started, *pieces, done = lines(await at.client.post(GENERATE, json=ask))
        submits = at.mailbox.sent_of(m.Submit)
        assert [submit.parts[0].data for submit in submits] == [b"One is here.", b"Two follows."] * 2
        assert {submit.seed for submit in submits} == {started["seed"]}
        assert [each["index"] for each in pieces] == [0, 1, 2, 3]
        assert (done["usage"], done["emitted"]) == ({"output_tokens": 12}, {"speech": 4})
        nothing = await at.client.post(GENERATE, json={**ask, "model": "studio", "text": None})
        assert nothing.json()["error"]["param"] == "split"
