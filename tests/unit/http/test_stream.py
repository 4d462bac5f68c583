"""``WS /v1/stream`` through a real web server: several requests on one socket, frame by frame."""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
import pytest
import websockets
from tests.dot import DOT
from websockets.asyncio.client import connect

from walkserve import messages as m

pytestmark = pytest.mark.anyio
ASK = {"type": "generate", "id": "a", "model": "parrot", "text": "hello", "options": {"seed": 7}}


@pytest.fixture
def stage(stage):
    """With a model that takes and makes everything."""
    stage.serving = partial(stage.serving, more={"studio": stage.Studio()})
    return stage


def array(values, dtype="float32"):
    made = np.array(values, dtype)
    return m.Array(dtype, made.shape, made.tobytes())


def items(tag, first, *values, output="speech"):
    return m.Emitted(output, [tag] * len(values), [array(value) for value in values])


def ended(tag, number, reason="stop", output="speech"):
    return m.RequestEnded(tag, reason, 7, {output: number}, {"output_tokens": 3}, {})


class Talk:
    """The client's side: what it says, and what it hears, with the numbers of an array in its event."""

    def __init__(self, socket):
        self._socket = socket

    async def say(self, **frame):
        await self._socket.send(json.dumps(frame))

    async def send(self, raw):
        await self._socket.send(raw)

    async def hear(self):
        event = json.loads(await asyncio.wait_for(self._socket.recv(), 5))
        if "bytes" in event:
            data = await asyncio.wait_for(self._socket.recv(), 5)
            assert len(data) == event["bytes"]
            event["numbers"] = np.frombuffer(data, event["dtype"]).reshape(event["shape"]).tolist()
        return event

    async def hear_types(self, number):
        return [(each["type"], each.get("id")) for each in [await self.hear() for _ in range(number)]]

    async def hears_nothing(self):
        """A cancel is always answered, so what comes before the answer is all there is."""
        await self.say(type="cancel", id="nobody's")
        assert await self.hear() == {"type": "cancelled", "id": "nobody's"}


@asynccontextmanager
async def talking(at, **options):
    address = at.server.url.replace("http", "ws") + "/v1/stream"
    async with connect(address, max_size=None, **options) as socket:
        talk = Talk(socket)
        talk.socket = socket
        yield talk


# --- one request --------------------------------------------------------------------------------------


async def test_a_request_is_told_as_over_http_with_its_numbers_in_a_binary_frame(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        started = await talk.hear()
        assert started.pop("request_id").startswith("req-")
        assert started == {
            "type": "started",
            "id": "a",
            "model": "parrot:toy",
            "seed": 7,
            "outputs": {"speech": {"kind": "audio", "rate": 8000, "channels": 1}},
        }
        at.mailbox.say(items(submit.tag, 0, [0.5, 1.0], []))
        first, second = await talk.hear(), await talk.hear()
        assert first == {
            "type": "output",
            "id": "a",
            "output": "speech",
            "kind": "audio",
            "index": 0,
            "rate": 8000,
            "dtype": "float32",
            "shape": [2],
            "bytes": 8,
            "numbers": [0.5, 1.0],
        }
        assert (second["index"], second["bytes"], second["numbers"]) == (1, 0, [])
        at.mailbox.say(ended(submit.tag, 2))
        assert await talk.hear() == {
            "type": "done",
            "id": "a",
            "finish_reason": "stop",
            "usage": {"output_tokens": 3},
            "counts": {},
            "emitted": {"speech": 2},
        }
        await talk.hears_nothing()
        assert at.caller.open_calls == 0
        assert at.mailbox.sent_of(m.Cancel) == []


async def test_text_needs_no_binary_frame(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**{**ASK, "model": "studio", "outputs": ["caption"]})
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(m.Emitted("caption", [submit.tag], ["hé"]), ended(submit.tag, 1, output="caption"))
        assert (await talk.hear())["type"] == "started"
        piece = {"type": "output", "id": "a", "output": "caption", "kind": "text", "index": 0, "text": "hé"}
        assert await talk.hear() == piece
        assert (await talk.hear())["type"] == "done"


async def test_the_servers_name_for_a_request_is_in_started(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        request_id = (await talk.hear())["request_id"]
        assert (await at.client.get(f"/v1/requests/{request_id}")).json()["state"] == "running"


async def test_media_come_in_binary_frames_that_are_announced(stage):
    async with stage.serving() as at, talking(at) as talk:
        inputs = [
            {"type": "image", "bytes": len(DOT), "name": "goal"},
            {"type": "text", "text": "between"},
            {"type": "audio", "bytes": 0},
        ]
        await talk.say(type="generate", id="a", model="studio", inputs=inputs)
        await talk.send(DOT)
        assert at.mailbox.sent_of(m.Submit) == []
        await talk.send(b"")
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert submit.parts == (
            m.SentPart("image", DOT, "goal"),
            m.SentPart("text", b"between"),
            m.SentPart("audio", b""),
        )


# --- several ------------------------------------------------------------------------------------------


async def test_requests_run_side_by_side_each_under_its_own_name(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        await talk.say(**{**ASK, "id": "b", "options": {"seed": 8}})
        first, second = await at.mailbox.wait_for(m.Submit, 2)
        assert await talk.hear_types(2) == [("started", "a"), ("started", "b")]
        at.mailbox.say(items(second.tag, 0, [2.0]), items(first.tag, 0, [1.0]))
        heard = [await talk.hear(), await talk.hear()]
        assert {(each["id"], each["numbers"][0], each["index"]) for each in heard} == {
            ("a", 1.0, 0),
            ("b", 2.0, 0),
        }
        at.mailbox.say(ended(second.tag, 1))
        assert await talk.hear_types(1) == [("done", "b")]
        at.mailbox.say(ended(first.tag, 1, "length"))
        assert (await talk.hear())["finish_reason"] == "length"


async def test_a_name_is_free_again_when_its_request_is_over(stage):
    async with stage.serving() as at, talking(at) as talk:
        for number in range(1, 4):
            await talk.say(**ASK)
            submit = (await at.mailbox.wait_for(m.Submit, number))[-1]
            at.mailbox.say(ended(submit.tag, 0))
            assert await talk.hear_types(2) == [("started", "a"), ("done", "a")]


async def test_a_name_that_is_in_use_is_refused_for_that_frame_only(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert await talk.hear_types(1) == [("started", "a")]
        await talk.say(type="generate", id="a", model="studio", inputs=[{"type": "image", "bytes": 2}])
        await talk.send(b"xx")  # announced, and thrown away
        refused = await talk.hear()
        assert "id" not in refused
        assert (refused["type"], refused["frame"], refused["error"]["param"]) == ("error", 2, "id")
        assert "'a' is open" in refused["error"]["message"]
        at.mailbox.say(items(submit.tag, 0, [1.0]), ended(submit.tag, 1))
        assert await talk.hear_types(2) == [("output", "a"), ("done", "a")]
        assert len(at.mailbox.sent_of(m.Submit)) == 1


# --- cancelling ---------------------------------------------------------------------------------------


async def test_cancelling_one_leaves_the_others_and_nothing_of_it_comes_after(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        await talk.say(**{**ASK, "id": "b"})
        first, second = await at.mailbox.wait_for(m.Submit, 2)
        assert await talk.hear_types(2) == [("started", "a"), ("started", "b")]
        await talk.say(type="cancel", id="a")
        assert await talk.hear() == {"type": "cancelled", "id": "a"}
        assert at.mailbox.sent_of(m.Cancel) == [m.Cancel("http", first.tag)]
        at.mailbox.say(items(first.tag, 0, [1.0]), items(second.tag, 0, [2.0]), ended(second.tag, 1))
        assert await talk.hear_types(2) == [("output", "b"), ("done", "b")]
        await talk.hears_nothing()


async def test_a_name_used_again_after_a_cancel_gets_nothing_of_before(stage):
    async with stage.serving() as at, talking(at) as talk:
        for round in range(3):
            await talk.say(**ASK)
            old = (await at.mailbox.wait_for(m.Submit, 2 * round + 1))[-1]
            at.mailbox.say(items(old.tag, 0, [1.0]))
            await talk.say(type="cancel", id="a")
            await talk.say(**ASK)
            new = (await at.mailbox.wait_for(m.Submit, 2 * round + 2))[-1]
            at.mailbox.say(items(old.tag, 1, [1.0]), items(new.tag, 0, [2.0]), ended(new.tag, 1))
            heard = []
            while not heard or heard[-1]["type"] != "done":
                heard.append(await talk.hear())
            after = heard[[each["type"] for each in heard].index("cancelled") + 1 :]
            assert [each["type"] for each in after] == ["started", "output", "done"]
            assert after[1]["numbers"] == [2.0]


async def test_what_waits_for_a_slow_reader_is_not_sent_after_a_cancel(stage):
    async with stage.serving() as at, talking(at, max_queue=1) as talk:
        await talk.say(**ASK)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        for first in range(400):  # more than sockets hold: the writer waits in the middle
            at.mailbox.say(items(submit.tag, first, [float(first)] * 20_000))
        await asyncio.sleep(0.3)
        await talk.say(type="cancel", id="a")
        await talk.say(**ASK)
        heard = [await talk.hear()]
        while heard[-1]["type"] != "cancelled":
            heard.append(await talk.hear())
        assert len(heard) < 400
        assert [each["index"] for each in heard[1:-1]] == list(range(len(heard) - 2))  # whole ones, in order
        assert (await talk.hear())["type"] == "started"


async def test_a_cancel_of_what_is_over_is_answered_and_does_no_harm(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(ended(submit.tag, 0))
        assert await talk.hear_types(2) == [("started", "a"), ("done", "a")]
        await talk.say(type="cancel", id="a")
        assert await talk.hear() == {"type": "cancelled", "id": "a"}
        assert at.mailbox.sent_of(m.Cancel) == []


# --- text in pieces -------------------------------------------------------------------------------------


async def test_text_in_pieces_is_one_request_when_it_ends(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**{**ASK, "text": "hel", "text_open": True})
        for piece in ("lo ", "", "wörld"):
            await talk.say(type="text", id="a", text=piece)
        await talk.hears_nothing()
        assert at.mailbox.sent_of(m.Submit) == []
        await talk.say(type="end", id="a")
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert submit.parts == (m.SentPart("text", "hello wörld".encode()),)


async def test_text_in_pieces_is_the_last_of_the_inputs(stage):
    async with stage.serving() as at, talking(at) as talk:
        inputs = [{"type": "text", "text": "say:"}, {"type": "image", "bytes": len(DOT)}]
        await talk.say(type="generate", id="a", model="studio", inputs=inputs, text_open=True)
        await talk.send(DOT)
        await talk.say(type="text", id="a", text="hi")
        await talk.say(type="end", id="a")
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert [(part.kind, part.data) for part in submit.parts] == [
            ("text", b"say:"),
            ("image", DOT),
            ("text", b"hi"),
        ]


async def test_split_text_is_spoken_sentence_by_sentence_as_it_comes(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**{**ASK, "options": {}, "text": "One is", "text_open": True, "split": "sentence"})
        await talk.say(type="text", id="a", text=" here. Two")
        (first,) = await at.mailbox.wait_for(m.Submit)
        assert first.parts == (m.SentPart("text", b"One is here."),)
        assert (await talk.hear())["seed"] == first.seed
        await talk.say(type="text", id="a", text=" follows. And")
        await talk.hears_nothing()
        at.mailbox.say(items(first.tag, 0, [1.0]))
        _, second = await at.mailbox.wait_for(m.Submit, 2)  # while the first still sounds
        assert second.parts == (m.SentPart("text", b"Two follows."),)
        assert second.seed == first.seed
        await talk.say(type="text", id="a", text=" three")
        await talk.say(type="end", id="a")
        at.mailbox.say(items(second.tag, 0, [2.0]), ended(second.tag, 1, "length"), ended(first.tag, 1))
        *_, third = await at.mailbox.wait_for(m.Submit, 3)
        assert third.parts == (m.SentPart("text", b"And three"),)
        at.mailbox.say(items(third.tag, 0, [3.0]), ended(third.tag, 1))
        heard = [await talk.hear() for _ in range(4)]
        assert [(each["type"], each.get("index"), each.get("numbers")) for each in heard] == [
            ("output", 0, [1.0]),
            ("output", 1, [2.0]),
            ("output", 2, [3.0]),
            ("done", None, None),
        ]
        assert heard[-1]["finish_reason"] == "length"
        assert heard[-1]["usage"] == {"output_tokens": 9}
        assert heard[-1]["emitted"] == {"speech": 3}


async def test_a_request_runs_as_long_as_its_client_may_still_send_text(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**{**ASK, "text": "One is here. Two", "text_open": True, "split": "sentence"})
        (first,) = await at.mailbox.wait_for(m.Submit)
        id = (await talk.hear())["request_id"]
        at.mailbox.say(items(first.tag, 0, [1.0]), ended(first.tag, 1))
        assert (await talk.hear())["type"] == "output"

        async def state() -> str:
            return (await at.client.get(f"/v1/requests/{id}")).json()["state"]

        assert (at.caller.open_calls, await state()) == (0, "running")
        await talk.say(type="end", id="a")
        _, second = await at.mailbox.wait_for(m.Submit, 2)
        at.mailbox.say(ended(second.tag, 0))
        assert await talk.hear_types(1) == [("done", "a")]
        assert await state() == "done"


async def test_cancelling_split_text_cancels_what_runs_and_what_was_ahead(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**{**ASK, "text": "One. Two. Three.", "split": "sentence"})
        (first,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(items(first.tag, 0, [1.0]))
        _, second = await at.mailbox.wait_for(m.Submit, 2)
        await talk.say(type="cancel", id="a")
        cancelled = await at.mailbox.wait_for(m.Cancel, 2)
        assert {each.tag for each in cancelled} == {first.tag, second.tag}
        assert len(at.mailbox.sent_of(m.Submit)) == 2


async def test_a_sentence_that_fails_ends_the_whole(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**{**ASK, "text": "One. Two. Three.", "split": "sentence"})
        (first,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(
            items(first.tag, 0, [1.0]), m.RequestFailed(first.tag, m.Fault("lost", 503, "unavailable"))
        )
        assert await talk.hear_types(3) == [("started", "a"), ("output", "a"), ("error", "a")]
        await talk.hears_nothing()
        assert at.caller.open_calls == 0


# --- what is refused ------------------------------------------------------------------------------------

STUDIO = {"type": "generate", "id": "x", "model": "studio"}
BAD_FRAMES = [
    # what is sent, the id it is told for, param, a word of the message
    ("{", None, None, "no valid JSON"),
    ("[]", None, None, "not a JSON object"),
    (b"stray", None, None, "no 'generate' has announced"),
    ({}, None, "type", "known: generate"),
    ({"type": "genrate", "id": "x"}, None, "type", "did you mean 'generate'?"),
    ({"type": ["text"]}, None, "type", "known:"),
    ({"type": "generate", "model": "parrot", "text": "hi"}, None, "id", "missing"),
    ({**STUDIO, "id": 3}, None, "id", "expected `str`"),
    ({**STUDIO, "id": ""}, None, "id", "length"),
    ({**STUDIO, "id": "x" * 101}, None, "id", "length"),
    ({**STUDIO, "model": "nobody"}, "x", "model", "there is no model 'nobody'"),
    ({**STUDIO, "tekst": "hi"}, "x", "tekst", "did you mean 'text'?"),
    ({**STUDIO, "text_opn": True}, "x", "text_opn", "did you mean 'text_open'?"),
    ({**STUDIO, "text_open": 1}, "x", "text_open", "expected `bool"),
    ({**STUDIO, "text": "hi", "options": {"steps": 0}}, "x", "options.steps", ">= 1"),
    ({**STUDIO, "text": "hi", "outputs": ["cation"]}, "x", "outputs", "did you mean 'caption'?"),
    ({**STUDIO, "split": "sentence"}, "x", "split", "exactly one text, 0 were given"),
    ({**STUDIO, "inputs": [{"type": "image", "data": "aGk="}]}, "x", "inputs[0].data", "unknown field"),
    ({**STUDIO, "inputs": [{"type": "image", "bytes": -1}]}, "x", "inputs[0].bytes", ">= 0"),
    ({**STUDIO, "inputs": [{"type": "image", "bytes": 2000}]}, "x", "inputs", "takes 1,000 bytes"),
    ({**STUDIO, "text": "x" * 700}, None, None, "larger than 500 bytes"),
    ({"type": "text", "id": "x", "text": "hi"}, None, "id", "no request 'x' is open"),
    ({"type": "text", "id": "a", "text": "hi"}, None, "id", "is complete"),
    ({"type": "end", "id": "a"}, None, "id", "is complete"),
    ({"type": "end", "id": "x", "text": "hi"}, None, "text", "unknown field"),
    ({"type": "cancel"}, None, "id", "missing"),
]


async def test_a_bad_frame_is_told_with_its_place_and_harms_nothing_else(stage):
    async with stage.serving(body_bytes=500, media_bytes=1000) as at, talking(at) as talk:
        await talk.say(**ASK)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert await talk.hear_types(1) == [("started", "a")]
        for number, (frame, label, param, word) in enumerate(BAD_FRAMES, 2):
            await talk.send(json.dumps(frame) if isinstance(frame, dict) else frame)
            told = await talk.hear()
            assert (told["type"], told.get("id"), told["frame"]) == ("error", label, number), frame
            assert told["error"]["type"] == "invalid_request_error", frame
            assert told["error"]["param"] == param, frame
            assert word in told["error"]["message"], frame
        await talk.say(**{**STUDIO, "text": "hi"})  # the refused ones' name is free
        await at.mailbox.wait_for(m.Submit, 2)
        at.mailbox.say(items(submit.tag, 0, [1.0]), ended(submit.tag, 1))
        assert await talk.hear_types(3) == [("started", "x"), ("output", "a"), ("done", "a")]


async def test_media_that_are_not_as_announced_fail_their_request_alone(stage):
    async with stage.serving() as at, talking(at) as talk:
        two = {"inputs": [{"type": "image", "bytes": 2}, {"type": "audio", "bytes": 3}]}
        await talk.say(**STUDIO, **two)
        await talk.send(b"xyz")
        told = await talk.hear()
        assert (told["id"], told["error"]["param"]) == ("x", "inputs[0].bytes")
        await talk.send(b"xyz")  # the other one still comes, and goes nowhere
        await talk.say(**STUDIO, **two)
        await talk.send(b"xy")
        await talk.say(type="cancel", id="y")  # in place of the second
        told = await talk.hear()
        assert (told["id"], told["error"]["param"]) == ("x", "inputs[1]")
        assert await talk.hear() == {"type": "cancelled", "id": "y"}
        assert at.mailbox.sent_of(m.Submit) == []


async def test_what_one_socket_may_hold_is_bounded(stage):
    async with stage.serving(socket_requests=2, body_bytes=300, media_bytes=1000) as at, talking(at) as talk:
        opened = {**STUDIO, "text_open": True}
        await talk.say(**opened)
        await talk.say(**{**opened, "id": "y"})
        await talk.say(**{**opened, "id": "z"})
        told = await talk.hear()
        assert (told["id"], told["error"]["code"]) == ("z", "too_many_requests")
        await talk.say(type="text", id="x", text="x" * 200)
        await talk.say(type="text", id="x", text="x" * 200)
        told = await talk.hear()
        assert (told["id"], told["error"]["code"]) == ("x", "body_too_large")
        media = {"inputs": [{"type": "image", "bytes": 600}], "text_open": True}
        await talk.say(**STUDIO, **media)
        await talk.send(b"x" * 600)
        await talk.say(type="cancel", id="y")
        assert await talk.hear() == {"type": "cancelled", "id": "y"}
        await talk.say(**{**STUDIO, **media, "id": "y"})
        told = await talk.hear()
        assert (told["id"], told["error"]["param"]) == ("y", "inputs")
        assert "600 wait" in told["error"]["message"]


async def test_a_frame_beyond_all_bounds_closes_the_socket(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        with pytest.raises(websockets.ConnectionClosed):
            await talk.send(b"x" * (64 * 1024 * 1024 + 1))
            while True:
                await talk.hear()
        assert talk.socket.close_code == 1009
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]


async def test_a_bug_of_a_family_ends_its_request_without_its_text(stage, monkeypatch):
    def check(self, request):
        raise RuntimeError("in /secret/place.py")

    async with stage.serving() as at, talking(at) as talk:
        monkeypatch.setattr(stage.Parrot, "check", check)
        await talk.say(**ASK)
        told = await talk.hear()
        assert (told["id"], told["error"]["code"]) == ("a", "internal_error")
        assert "secret" not in str(told)


async def test_a_failure_is_the_last_event_of_its_request(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(
            m.RequestFailed(submit.tag, m.Fault("too long", 400, "invalid_request_error", "c", "p"))
        )
        assert await talk.hear_types(1) == [("started", "a")]
        problem = {"message": "too long", "type": "invalid_request_error", "code": "c", "param": "p"}
        assert await talk.hear() == {"type": "error", "id": "a", "error": problem}
        at.caller.conductor_died()
        await talk.say(**ASK)
        told = await talk.hear()
        assert (told["type"], told["error"]["type"]) == ("error", "unavailable")


# --- leaving --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closes", "drops"])
async def test_the_end_of_a_socket_cancels_all_its_requests(stage, how):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        await talk.say(**{**ASK, "id": "b"})
        await talk.say(**{**ASK, "id": "c", "text_open": True})
        submits = await at.mailbox.wait_for(m.Submit, 2)
        at.mailbox.say(items(submits[0].tag, 0, [1.0]))
        if how == "closes":
            await talk.socket.close()
        else:
            talk.socket.transport.abort()
        cancelled = await at.mailbox.wait_for(m.Cancel, 2)
        assert {each.tag for each in cancelled} == {each.tag for each in submits}
        assert at.caller.open_calls == 0


async def test_a_request_that_is_read_too_slowly_is_cut_and_its_socket_is_not(stage):
    async with stage.serving(buffer_bytes=1 << 20) as at, talking(at, max_queue=1) as talk:
        await talk.say(**ASK)
        await talk.say(**{**ASK, "id": "b"})
        slow, other = await at.mailbox.wait_for(m.Submit, 2)
        for first in range(400):
            at.mailbox.say(items(slow.tag, first, [0.5] * 20_000))
            await asyncio.sleep(0)
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", slow.tag)]
        at.mailbox.say(items(other.tag, 0, [1.0]), ended(other.tag, 1))
        heard = []
        while ("done", "b") not in [(each["type"], each["id"]) for each in heard]:
            heard.append(await talk.hear())
        of_slow = [each for each in heard if each["id"] == "a"]
        if of_slow[-1]["type"] != "error":
            of_slow.append(await talk.hear())
        assert of_slow[-1]["error"]["code"] == "too_slow"


async def test_an_idle_socket_does_not_hold_up_a_drain(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.hears_nothing()
        at.server.drain()
        with pytest.raises(websockets.ConnectionClosed):
            await talk.hear()
        assert talk.socket.close_code == 1012


async def test_a_drain_lets_requests_end_and_refuses_new_ones(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        await talk.say(**{**ASK, "id": "b", "text_open": True})
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert await talk.hear_types(1) == [("started", "a")]
        at.server.drain()
        told = await talk.hear()  # its text would never end
        assert (told["id"], told["error"]["code"]) == ("b", "unavailable")
        await talk.say(**{**ASK, "id": "c"})
        told = await talk.hear()
        assert (told["id"], told["error"]["code"]) == ("c", "unavailable")
        at.mailbox.say(items(submit.tag, 0, [1.0]), ended(submit.tag, 1))
        assert await talk.hear_types(2) == [("output", "a"), ("done", "a")]
        with pytest.raises(websockets.ConnectionClosed):
            await talk.hear()
        assert talk.socket.close_code == 1012


async def test_a_stop_ends_sockets_and_cancels_what_runs(stage):
    async with stage.serving() as at, talking(at) as talk:
        await talk.say(**ASK)
        (submit,) = await at.mailbox.wait_for(m.Submit)
        assert await talk.hear_types(1) == [("started", "a")]
        at.server.stop()
        with pytest.raises(websockets.ConnectionClosed):
            await talk.hear()
        assert talk.socket.close_code == 1012
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]


# --- the handshake --------------------------------------------------------------------------------------


async def test_a_handshake_that_is_refused_is_an_ordinary_error(stage):
    async with stage.serving() as at:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with connect(at.server.url.replace("http", "ws") + "/v1/steam"):
                pass
        response = refused.value.response
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-request-id"].startswith("req-")
        assert json.loads(response.body)["error"]["code"] == "not_found"
        upgrade = {"connection": "upgrade", "upgrade": "websocket"}
        for headers in ({}, upgrade):
            response = await at.client.get("/v1/stream", headers=headers)
            assert 400 <= response.status_code < 500
            assert response.json()["error"]["type"] == "invalid_request_error"


async def test_the_handshake_has_a_request_id(stage):
    async with stage.serving() as at, talking(at) as talk:
        assert talk.socket.response.headers["x-request-id"].startswith("req-")
