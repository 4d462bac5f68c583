"""The gate through which every request comes, and what subclassing Model finds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from walkserve_sdk import (
    Audio,
    BadRequest,
    ChatAsk,
    ChatMessage,
    Component,
    DeclarationError,
    Image,
    ImageAsk,
    Model,
    Node,
    Output,
    Part,
    Request,
    SpeechAsk,
    Tensor,
    Text,
    Track,
    UnsupportedSurface,
    WalkGraph,
    track,
)


class Sayer(Model):
    @dataclass(frozen=True)
    class Options(Model.Options):
        voice: str = "tara"

    inputs = ("text", "image")
    part = Component("some.where:Part")
    speech = Output(Audio(rate=24_000))
    picture = Output(Image())
    say = WalkGraph(
        Node(part, "say", takes="text", gives=("pcm", "pixels"), to={"pcm": speech, "pixels": picture})
    )

    def check(self, request: Request) -> Request:
        voice = request.options.voice.lower()
        if voice == "nobody":
            raise BadRequest("there is no voice 'nobody'", param="voice")
        return replace(request, options=replace(request.options, voice=voice))

    @track
    def saying(self, request: Request, prepared: Any) -> Track:
        yield self.say(text=request.one("text"))
        return None


def refusal(**asked: Any) -> tuple[str, str | None]:
    with pytest.raises(BadRequest) as refused:
        Sayer().request(**asked)
    return str(refused.value), refused.value.param


def test_a_request_is_completed_with_every_output_and_a_seed() -> None:
    request = Sayer().request(parts=[Part("text", "hello")])
    assert request.outputs == ("speech", "picture")
    assert 0 <= request.seed < 2**63
    assert request.given == frozenset()


def test_a_seed_that_was_given_is_the_one_in_force() -> None:
    request = Sayer().request(options={"seed": 7, "voice": "Leo"})
    assert (request.seed, request.options.voice, request.given) == (7, "leo", {"seed", "voice"})


def test_an_output_may_be_named_or_meant() -> None:
    assert Sayer().request(outputs=[Sayer.speech]).outputs == ("speech",)
    request = Sayer().request(outputs=["picture"])
    assert request.wants(Sayer.picture) and not request.wants("speech")


def test_an_unknown_output_is_refused() -> None:
    assert refusal(outputs=["speach"]) == ("there is no output 'speach'; did you mean 'speech'?", "outputs")


def test_a_request_for_nothing_is_refused() -> None:
    assert refusal(outputs=[]) == ("no output is asked for; known: speech, picture", "outputs")


def test_an_unknown_kind_of_part_is_refused() -> None:
    assert refusal(parts=[Part("audio", b"")]) == ("this model takes no audio; it takes text, image", "audio")


def test_an_unknown_option_is_refused() -> None:
    assert refusal(options={"voyce": "leo"}) == ("unknown option 'voyce'; did you mean 'voice'?", "voyce")


def test_the_familys_own_check_has_the_last_word() -> None:
    assert refusal(options={"voice": "Nobody"}) == ("there is no voice 'nobody'", "voice")


def test_a_declaration_knows_its_members_by_name() -> None:
    spec = Sayer.spec
    kinds: list[Mapping[str, Any]] = [spec.components, spec.outputs, spec.graphs, spec.tracks]
    assert [list(kind) for kind in kinds] == [["part"], ["speech", "picture"], ["say"], ["saying"]]
    assert spec.graphs["say"].inputs == {"text"}


def test_a_graph_is_asked_with_exactly_its_inputs() -> None:
    assert Sayer().say(text="a").inputs == {"text": "a"}
    with pytest.raises(DeclarationError, match="say: missing input 'text'"):
        Sayer().say()
    with pytest.raises(DeclarationError, match="say: it takes no input 'txt'; did you mean 'text'\\?"):
        Sayer().say(txt="a")


def test_a_surface_is_had_by_overriding_its_method() -> None:
    class Speaker(Sayer):
        def speech_request(self, ask: SpeechAsk) -> Request:
            return self.request(parts=[Part("text", ask.text)])

    assert Sayer.surfaces() == ()
    assert Speaker.surfaces() == ("audio.speech",)
    assert Speaker().speech_request(SpeechAsk("hi")).one("text") == "hi"
    with pytest.raises(UnsupportedSurface):
        Sayer().speech_request(SpeechAsk("hi"))


def test_options_must_be_a_dataclass() -> None:
    with pytest.raises(DeclarationError) as refused:

        class Forgot(Model):
            class Options(Model.Options):
                voice: str = "tara"

    assert str(refused.value) == "Forgot.Options: it is no dataclass; write @dataclass(frozen=True) above it"


def test_options_must_be_options() -> None:
    with pytest.raises(DeclarationError) as refused:

        class Other(Model):
            @dataclass(frozen=True)
            class Options:  # type: ignore[assignment]
                voice: str = "tara"

    assert (
        str(refused.value) == "Other.Options: it is no class of options; write class Options(Model.Options)"
    )


def test_every_option_has_a_default() -> None:
    with pytest.raises(DeclarationError) as refused:

        class Bare(Model):
            @dataclass(frozen=True, kw_only=True)
            class Options(Model.Options):
                voice: str

    assert str(refused.value) == "Bare.Options: 'voice' has no default; a client may leave it out"


def test_a_subclass_of_a_family_may_add_to_it() -> None:
    class Writer(Sayer):
        words = Output(Text())
        write = WalkGraph(Node(Sayer.part, "write", gives="words", to=words))

        @track
        def writing(self, request: Request, prepared: Any) -> Track:
            yield self.write()
            return None

    assert list(Writer.spec.outputs) == ["speech", "picture", "words"]
    assert list(Sayer.spec.outputs) == ["speech", "picture"]


def test_a_family_has_the_voices_that_its_setup_finds_in_the_checkpoint_and_else_none() -> None:
    class Speaker(Sayer):
        def setup(self) -> None:
            self.voices = ("ann", "bo")

    assert tuple(Speaker().voices) == ("ann", "bo")
    assert tuple(Speaker.voices) == tuple(Sayer().voices) == ()


def test_pieces_that_are_joined_are_not_declared_to_be_many() -> None:
    with pytest.raises(DeclarationError, match="pieces of text are one whole"):
        Output(Text(), many=True)
    assert Output(Image(), many=True).many and not Output(Image()).many


def test_a_parts_name_is_short_text() -> None:
    model = Sayer()
    assert model.request(parts=[Part("text", "hi", name="n" * 100)]).parts[0].name == "n" * 100
    for name in ("n" * 101, 7):
        with pytest.raises(BadRequest, match="text: its name is text of at most 100 characters") as refused:
            model.request(parts=[Part("text", "hi", name=name)])  # type: ignore[arg-type]
        assert refused.value.param == "text"


# --- the standard surfaces of images and of chat ---------------------------------------------------------


def test_a_family_has_the_surfaces_whose_methods_it_overrides():
    class Painter(Model):
        def image_request(self, ask: ImageAsk) -> Request:
            return self.request(parts=ask.parts)

        edit_request = image_request

    assert Painter.surfaces() == ("images.generations", "images.edits")
    with pytest.raises(UnsupportedSurface, match="does not chat; it offers images.generations, images.edits"):
        Painter().chat_request(ChatAsk(()))


def test_the_parts_of_an_edit_are_the_images_and_then_what_is_said_of_them():
    assert ImageAsk("red", images=(b"1", b"2")).parts == (
        Part("image", b"1"),
        Part("image", b"2"),
        Part("text", "red"),
    )


def test_the_parts_of_a_conversation_are_in_order_but_the_system_comes_first():
    a, b, c, d = (Part("text", letter) for letter in "abcd")
    said = (ChatMessage("user", (a, b)), ChatMessage("system", (c,)), ChatMessage("assistant", (d,)))
    assert ChatAsk(said).parts == (c, a, b, d)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("previews", Output(Text())),
        ("previews", Output(Image())),
        ("previews", True),
        ("token_scores", Output(Tensor(), many=True)),
    ],
)
def test_outputs_that_a_name_makes_special_are_of_their_kind(name, wrong):
    with pytest.raises(DeclarationError, match=rf"Wrong.{name}: it is declared here, {name} = Output\("):
        type("Wrong", (Model,), {name: wrong})
