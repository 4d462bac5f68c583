"""A thinker and a talker in the toy runtime: streams from one to the other, and who stops whom."""

from dataclasses import dataclass
from typing import Any

from walkserve_sdk import (
    Audio,
    Component,
    Fixed,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Part,
    Request,
    Stream,
    Text,
    Track,
    WalkGraph,
    track,
)
from walkserve_sdk.testing import ToyCall, ToyRuntime


class Omni(Model):
    @dataclass(frozen=True)
    class Options(Model.Options):
        stop: str = ""
        most: int = 100

    tokenizer = Component("some.where:Tokenizer", device="cpu", state=True)
    thinker = Component("some.where:Thinker", kv=PagedKV())
    talker = Component("some.where:Talker", kv=PagedKV())
    codec = Component("some.where:Codec", state=True)

    tokens = Stream()
    hiddens = Stream(limit=4)
    codes = Stream(Fixed(2, most=8))
    words = Output(Text())
    speech = Output(Audio(rate=24_000))

    think = WalkGraph(
        Loop(
            Node(
                thinker,
                "next",
                takes="token",
                gives=("token", "hidden"),
                to={"token": tokens, "hidden": hiddens},
            ),
            carry="token",
            times="most",
        )
    )
    detokenize = WalkGraph(Loop(Node(tokenizer, "decode", takes=tokens, gives="text", to=words)))
    talk = WalkGraph(
        Loop(
            Node(talker, "next", takes=(hiddens, "code"), gives="code"),
            Loop(Node(talker, "residual", takes="code", gives="code", to=codes), carry="code", times=2),
            carry="code",
        )
    )
    vocode = WalkGraph(Loop(Node(codec, "decode", takes=codes, gives="pcm", to=speech)))

    @track(writes=(tokens, hiddens))
    def thinking(self, request: Request, prepared: Outcome) -> Track:
        thought = yield self.think(token=0, most=request.options.most)
        return thought.finish_reason

    @track
    def writing(self, request: Request, prepared: Outcome) -> Track:
        yield self.detokenize()
        return None

    @track(writes=codes)
    def talking(self, request: Request, prepared: Outcome) -> Track:
        if not request.wants(self.speech):
            return None
        yield self.talk(code=0)
        return None

    @track
    def sounding(self, request: Request, prepared: Outcome) -> Track:
        if request.wants(self.speech):
            yield self.vocode()
        return None


TEXT = "so it goes."


class Thinker:
    def next(self, call: ToyCall) -> dict[str, Any] | None:
        if call["token"] == len(TEXT):
            call.stop("stop")
            return None
        return {"token": call["token"] + 1, "hidden": f"h{call['token']}"}


class Tokenizer:
    """Holds back the text of an odd token, as if it were half a character."""

    def decode(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        text = (call.state or "") + "".join(TEXT[token - 1] for token in call.helping.new)
        stop = call.options.stop
        if stop and stop in text:
            call.stop("stop_string", upstream=True)
        is_whole = len(text) % 2 == 0 or call.helping.last
        call.state = "" if is_whole and not stop else text
        return {"text": text if is_whole else None}


class Talker:
    def next(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        return {"code": call["code"] + 10 * len(call.helping.new)}

    def residual(self, call: ToyCall) -> dict[str, Any]:
        return {"code": call["code"] + 1}


class Codec:
    def decode(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        return {"pcm": len(call.helping.new)}


def ask(*outputs: str, **options: Any):
    omni = Omni()
    fakes = {"thinker": Thinker(), "tokenizer": Tokenizer(), "talker": Talker(), "codec": Codec()}
    request = omni.request(parts=[Part("text", "?")], outputs=outputs or None, options=options)
    return ToyRuntime(omni, fakes).run(request)


def test_text_and_speech_come_out_whole() -> None:
    result = ask()
    assert "".join(result.outputs["words"]) == TEXT
    assert sum(result.outputs["speech"]) == 2 * result.streams["hiddens"].helpings
    assert result.finish_reason == "stop"


def test_tracks_take_turns() -> None:
    first = [step.did for step in ask().steps if "." in step.did][:6]
    assert first == [
        "thinker.next",
        "tokenizer.decode",
        "talker.next",
        "thinker.next",
        "tokenizer.decode",
        "talker.residual",
    ]


def test_a_text_only_request_is_not_held_up_by_the_talkers_stream() -> None:
    result = ask("words")
    assert "".join(result.outputs["words"]) == TEXT
    assert result.did("talking") == []
    hiddens = result.streams["hiddens"]
    assert (hiddens.written, hiddens.taken, hiddens.discarded) == (len(TEXT), 0, len(TEXT))


def test_a_stop_string_stops_the_writer_upstream() -> None:
    result = ask(stop="it")
    assert result.finish_reason == "stop_string"
    assert len(result.calls("thinker.next")) < len(TEXT)
    assert sum(result.outputs["speech"]) == 2 * result.streams["hiddens"].helpings


def test_a_length_limit_is_the_thinkers_while_the_talker_says_all_of_it() -> None:
    result = ask(most=3)
    assert result.finish_reason == "length"
    assert result.outputs["words"] == ["so", " "]
    assert result.streams["hiddens"].taken == 3


def test_no_turns_at_all_pass_the_carry_through_and_end_every_stream() -> None:
    result = ask(most=0)
    assert result.finish_reason == "length"
    assert result.outputs["words"] == [""]
    assert len(result.calls("talker.next")) == 1
    assert result.calls("talker.next")[0]["hiddens"].last


def test_the_limit_of_a_stream_holds_its_writer_back() -> None:
    result = ask()
    held = most = 0
    for step in result.steps:
        if step.did == "thinker.next":
            held += 1
        if step.did == "talker.next":
            held -= len(step.detail["hiddens"].new)
        most = max(most, held)
    assert most == 4
