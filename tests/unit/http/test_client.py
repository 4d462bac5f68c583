"""The Python client against a real web server; the runtime behind it is a fake."""

import asyncio
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.dot import DOT

from walkserve import messages as m
from walkserve_sdk.client import AsyncClient, Client, Part, Sound
from walkserve_sdk.errors import (
    BadRequest,
    Cancelled,
    ContextLengthExceeded,
    ModelNotFound,
    Unavailable,
    WalkserveError,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def stage(stage):
    """With a model that takes and makes everything."""
    stage.serving = partial(stage.serving, more={"studio": stage.Studio()})
    return stage


def array(values, dtype="float32"):
    made = np.array(values, dtype)
    return m.Array(dtype, made.shape, made.tobytes())


def gives(*items):
    """A conductor that has every request give these at once: (output, items...)."""

    def on_submit(mailbox, submit):
        emitted = {}
        for output, *values in items:
            mailbox.say(m.Emitted(output, [submit.tag] * len(values), values))
            emitted[output] = emitted.get(output, 0) + len(values)
        mailbox.say(m.RequestEnded(submit.tag, "length", 7, emitted, {"input_tokens": 2}, {"dropped": 1}))

    return on_submit


def refuses(status, **more):
    def on_submit(mailbox, submit):
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("no", status, **more)))

    return on_submit


EVERYTHING = gives(
    ("caption", "Grüße", " 🙂"),
    ("song", array([[0.5, -0.5]]), array([[1.0, 0.0]])),
    ("picture", array([[[1, 2, 3]]], "uint8")),
    ("film", array([[[[9, 8, 7]]]], "uint8")),
    ("energy", array([0.25], "float64"), 3),
)


def using(at, act, **options):
    """What ``act`` does with a blocking client, in a thread of its own."""

    def run():
        with Client(at.server.url, **options) as client:
            return act(client)

    return asyncio.to_thread(run)


def check_everything(result):
    assert result.caption == "Grüße 🙂"
    assert isinstance(result.song, Sound)
    assert (result.song.rate, result.song.samples.tolist()) == (8000, [[0.5, -0.5], [1.0, 0.0]])
    result.song.samples[0] = 0  # the caller's own
    picture = result.picture
    assert (picture.dtype, picture.tolist()) == (np.uint8, [[[1, 2, 3]]])
    assert result.film.shape == (1, 1, 1, 3)
    assert [(each.dtype, each.tolist()) for each in result.energy] == [
        (np.float64, [0.25]),
        (np.float16, 3.0),
    ]
    assert (result.finish_reason, result.seed) == ("length", 7)
    assert (result.usage, result.counts) == ({"input_tokens": 2}, {"dropped": 1})


# --- blocking -------------------------------------------------------------------------------------------


async def test_models_are_listed(stage):
    async with stage.serving() as at:
        cards = {card.id: card for card in await using(at, lambda client: client.models())}
        assert cards["studio"].inputs == ("text", "image", "audio", "video", "tensor")
        assert cards["parrot:toy"].outputs["speech"].kind == "audio"


async def test_outputs_are_attributes_of_the_result(stage):
    async with stage.serving(EVERYTHING) as at:
        check_everything(await using(at, lambda client: client.generate("studio", text="go", seed=7)))
        with pytest.raises(AttributeError, match="it had"):
            _ = (await using(at, lambda client: client.generate("studio", text="go"))).speech


async def test_an_output_that_gave_nothing_is_there_all_the_same(stage):
    async with stage.serving(gives()) as at:
        result = await using(at, lambda client: client.generate("studio", text="go"))
        assert (result.caption, result.picture, result.energy) == ("", None, [])
        assert (result.song.rate, result.song.samples.shape) == (8000, (0, 2))


async def test_options_outputs_and_parts_arrive_as_they_were_given(stage, tmp_path):
    file = tmp_path / "a.png"
    Path(file).write_bytes(DOT)
    parts = [Part("audio", b"RIFF", name="first"), Part("text", "ähnlich", name="ü"), Part("audio", b"")]

    def act(client):
        client.generate("studio", text="go", image=file, outputs=["caption"], steps=2, seed=9)
        client.generate("studio", inputs=parts, outputs="film")
        client.generate("studio", inputs=parts[1:2], steps=3)
        with pytest.raises(TypeError, match="give text among the parts"):
            client.generate("studio", text="go", inputs=parts)

    async with stage.serving(gives()) as at:
        await using(at, act)
        first, second, third = at.mailbox.sent_of(m.Submit)
        assert first.parts == (m.SentPart("text", b"go"), m.SentPart("image", DOT))
        assert (first.outputs, first.options.steps, first.seed) == (("caption",), 2, 9)
        assert second.parts == tuple(map(m.SentPart.of, parts))
        assert second.outputs == ("film",)
        assert (third.parts, third.options.steps) == ((m.SentPart.of(parts[1]),), 3)


async def test_pieces_can_be_read_as_they_come(stage):
    first_read = asyncio.Event()
    loop = asyncio.get_running_loop()

    def act(client):
        with client.stream("parrot", text="hello", seed=7) as stream:
            heard = []
            for event in stream:
                heard.append((event.output, event.data.samples.tolist()))
                loop.call_soon_threadsafe(first_read.set)
            return heard, stream.started.seed, stream.done.finish_reason

    async with stage.serving() as at:
        acting = asyncio.create_task(using(at, act))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(m.Emitted("speech", [submit.tag], [array([0.5])]))
        await asyncio.wait_for(first_read.wait(), 5)  # before there is more
        at.mailbox.say(m.Emitted("speech", [submit.tag], [array([1.0])]))
        at.mailbox.say(m.RequestEnded(submit.tag, "stop", 7, {"speech": 2}, {}, {}))
        assert await acting == ([("speech", [0.5]), ("speech", [1.0])], 7, "stop")


async def test_leaving_a_stream_cancels_its_request(stage):
    def act(client):
        with client.stream("parrot", text="hello") as stream:
            next(stream)

    async with stage.serving() as at:
        acting = asyncio.create_task(using(at, act))
        (submit,) = await at.mailbox.wait_for(m.Submit)
        at.mailbox.say(m.Emitted("speech", [submit.tag], [array([0.5])]))
        await acting
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]


async def test_what_is_refused_is_the_error_it_was(stage):
    def act(client):
        with pytest.raises(ModelNotFound) as wrong:
            client.generate("nobody", text="hi")
        assert (wrong.value.status, wrong.value.param) == (404, "model")
        with pytest.raises(BadRequest, match="did you mean 'voice'") as wrong:
            client.generate("parrot", text="hi", vioce="x")
        assert (wrong.value.status, wrong.value.param) == (400, "options.vioce")
        with pytest.raises(BadRequest, match="takes no image"):
            client.generate("parrot", image=b"x")

    async with stage.serving() as at:
        await using(at, act)


@pytest.mark.parametrize(
    ("status", "type", "code", "kind"),
    [
        (400, "invalid_request_error", "context_length_exceeded", ContextLengthExceeded),
        (503, "unavailable", "worker_lost", Unavailable),
        (500, "server_error", "component_failed", WalkserveError),
    ],
)
async def test_what_fails_is_the_error_it_was_before_and_in_mid_stream(stage, status, type, code, kind):
    def on_submit(mailbox, submit):
        if submit.parts[0].data == b"late":
            mailbox.say(m.Emitted("speech", [submit.tag], [array([0.5])]))
        mailbox.say(m.RequestFailed(submit.tag, m.Fault("no", status, type, code)))

    def act(client):
        for text in ("at once", "late"):
            with pytest.raises(kind, match="no") as failed:
                client.generate("parrot", text=text)
            assert (failed.value.status, failed.value.code) == (status, code)

    async with stage.serving(on_submit) as at:
        await using(at, act)


async def test_a_server_that_is_not_there_is_unavailable(stage):
    async with stage.serving() as at:
        url = at.server.url

    def act():
        with Client(url) as client, pytest.raises(Unavailable, match="cannot be reached"):
            client.generate("parrot", text="hi")

    await asyncio.to_thread(act)
    with pytest.raises(Unavailable, match="cannot be reached"):
        async with AsyncClient(url).connect():
            pass


async def test_a_key_is_sent_as_a_bearer(stage):
    client = Client("http://127.0.0.1:1", api_key="secret")
    assert client._http.headers["authorization"] == "Bearer secret"
    client.close()


# --- over a socket ----------------------------------------------------------------------------------------


async def test_a_socket_gives_the_same(stage):
    async with stage.serving(EVERYTHING) as at, AsyncClient(at.server.url).connect() as session:
        check_everything(await session.generate("studio", text="go", seed=7).result())
        request = session.generate("studio", text="go")
        heard = [event.output async for event in request]
        assert heard == ["caption"] * 2 + ["song"] * 2 + ["picture", "film"] + ["energy"] * 2
        assert request.started.model == "studio"
        assert request.done.finish_reason == "length"


async def test_media_go_as_they_are_in_their_order(stage):
    parts = [Part("image", DOT, name="goal"), Part("text", "and", name="why"), Part("audio", b"")]
    async with stage.serving(gives()) as at, AsyncClient(at.server.url).connect() as session:
        both = [session.generate("studio", inputs=parts).result() for _ in range(2)]
        await asyncio.gather(*both)
        for submit in at.mailbox.sent_of(m.Submit):
            assert submit.parts == tuple(map(m.SentPart.of, parts))


async def test_text_goes_in_pieces(stage):
    spoken = gives(("speech", array([0.5])))
    async with stage.serving(spoken) as at, AsyncClient(at.server.url).connect() as session:
        request = session.generate("parrot", text_open=True, split="sentence")
        for piece in ("One is", " here. Two", " follows."):
            await request.send_text(piece)
        await request.end()
        assert (await request.result()).speech.samples.tolist() == [0.5, 0.5]
        texts = [submit.parts[0].data for submit in at.mailbox.sent_of(m.Submit)]
        assert texts == [b"One is here.", b"Two follows."]
        with pytest.raises(BadRequest, match="text of this request is complete"):
            await request.send_text("more")


async def test_one_request_can_be_cancelled(stage):
    async with stage.serving() as at, AsyncClient(at.server.url).connect() as session:
        async with session.generate("parrot", text="one") as one:
            other = session.generate("parrot", text="other")
            await other.begin()
            first, second = await at.mailbox.wait_for(m.Submit, 2)
            at.mailbox.say(m.Emitted("speech", [first.tag], [array([0.5])]))
            assert (await anext(one)).data.samples.tolist() == [0.5]
            await one.cancel()
            for _ in range(2):
                with pytest.raises(Cancelled):
                    await anext(one)
        assert at.mailbox.sent_of(m.Cancel) == [m.Cancel("http", first.tag)]
        at.mailbox.say(m.RequestEnded(second.tag, "stop", 7, {"speech": 0}, {}, {}))
        assert (await other.result()).finish_reason == "stop"


async def test_leaving_a_request_cancels_it(stage):
    async with stage.serving() as at, AsyncClient(at.server.url).connect() as session:
        async with session.generate("parrot", text="hello"):
            (submit,) = await at.mailbox.wait_for(m.Submit)
        assert await at.mailbox.wait_for(m.Cancel) == [m.Cancel("http", submit.tag)]


async def test_a_refusal_over_a_socket_is_the_error_it_was(stage):
    broken = refuses(500, code="component_failed")
    async with stage.serving(broken) as at, AsyncClient(at.server.url).connect() as session:
        with pytest.raises(ModelNotFound, match="nobody"):
            await session.generate("nobody", text="hi").result()
        failed = session.generate("parrot", text="hi")
        for _ in range(2):
            with pytest.raises(WalkserveError, match="no"):
                await anext(failed)


async def test_a_socket_that_is_closed_fails_its_requests(stage):
    async with stage.serving() as at, AsyncClient(at.server.url).connect() as session:
        request = session.generate("parrot", text="hi")
        await request.begin()
        await at.mailbox.wait_for(m.Submit)
        at.server.stop()
        with pytest.raises(Unavailable, match="1012"):
            await request.result()
        with pytest.raises(Unavailable, match="closed"):
            await session.generate("parrot", text="hi").result()
