"""The first family's declaration, walked by the toy runtime with three small fakes."""

from typing import Any

import pytest

from walk_plugin_orpheus import Orpheus
from walkserve_sdk import BadRequest, Part, WalkFailed
from walkserve_sdk.testing import Branch, StreamTotal, ToyCall, ToyRuntime


class Tokenizer:
    def encode(self, call: ToyCall) -> dict[str, Any]:
        return {"ids": [1, 2, 3], "length": 3}


class Llama:
    """Says ``length`` codes and then the end of speech."""

    def __init__(self, length: int) -> None:
        self.length = length

    def next(self, call: ToyCall) -> dict[str, Any]:
        if call.turn == self.length:
            call.stop("stop")
        return {"ids": call.turn if call.turn < self.length else "end of speech"}


class Snac:
    """Gives back the codes it was given, and joins them in its state."""

    def decode(self, call: ToyCall) -> dict[str, Any]:
        assert call.helping is not None
        call.state = (call.state or ()) + tuple(call.helping.new)
        call.count("frames", len(call.helping.new) // 7)
        return {"pcm": list(call.helping.new)}


def speak(length: int, **options: Any):
    orpheus = Orpheus()
    request = orpheus.request(parts=[Part("text", "hello")], options=options)
    return ToyRuntime(orpheus, {"tokenizer": Tokenizer(), "llama": Llama(length), "snac": Snac()}).run(
        request
    )


def test_speech_that_comes_to_its_end_stops() -> None:
    result = speak(70)
    assert result.finish_reason == "stop"
    assert [code for pcm in result.outputs["speech"] for code in pcm] == list(range(70))
    assert result.counts == {"frames": 10}


def test_speech_that_runs_out_of_turns_is_cut_to_length() -> None:
    result = speak(70, max_tokens=20)
    assert result.finish_reason == "length"
    assert [len(pcm) for pcm in result.outputs["speech"]] == [7, 7, 6]


def test_the_end_of_speech_is_never_heard_but_it_was_computed() -> None:
    result = speak(8)
    assert result.outputs["speech"] == [[0, 1, 2, 3, 4, 5, 6], [7]]
    assert len(result.calls("llama.next")) == 9
    assert result.streams["codes"] == StreamTotal(written=8, taken=8, discarded=0, helpings=2)


def test_the_codec_is_called_once_with_the_last_helping_also_when_it_holds_nothing() -> None:
    for length in (0, 7, 8, 14):
        helpings = [taken["codes"] for taken in speak(length).calls("snac.decode")]
        assert [helping.last for helping in helpings] == [False] * (len(helpings) - 1) + [True]


def test_the_codec_gets_whole_frames_while_the_rest_is_being_written() -> None:
    did = [did for did in speak(15).did() if did.endswith(("next", "decode"))]
    assert did == (
        ["llama.next"] * 7 + ["snac.decode"] + ["llama.next"] * 7 + ["snac.decode"]
        + ["llama.next"] * 2 + ["snac.decode"]
    )  # fmt: skip


def test_the_journal_begins_with_what_runs_before_admission() -> None:
    result = speak(1, voice="leo", max_tokens=5)
    assert result.steps[:4] == [
        ("prepare", "encode", {"text": "hello", "voice": "leo"}),
        ("prepare", "tokenizer.encode", {"text": "hello", "voice": "leo"}),
        ("writing", "write", {"ids": [1, 2, 3], "max_tokens": 5}),
        ("writing", "llama.next", {"ids": [1, 2, 3]}),
    ]
    assert result.budget == {"llama": (3, 5)}
    assert result.prepared["length"] == 3


def test_the_cache_holds_what_was_read_and_the_codec_keeps_its_state() -> None:
    branches = speak(4).branches
    assert branches["llama", "main"].length == 3 + 4
    assert branches["snac", "main"].state == (0, 1, 2, 3)
    assert isinstance(branches["snac", "main"], Branch)


def test_a_plan_is_walked_with_nothing_at_all() -> None:
    orpheus = Orpheus()
    request = orpheus.request(parts=[Part("text", "hello")], options={"max_tokens": 2})
    result = ToyRuntime(orpheus).run(request)
    assert result.did("writing") == ["write", "llama.next", "llama.next"]
    assert result.calls("llama.next") == [
        {"ids": "tokenizer.encode(text, voice).ids"},
        {"ids": "llama.next(ids)"},
    ]
    assert result.outputs == {"speech": ["snac.decode(codes)"]}


def test_a_request_without_text_is_refused_before_anything_runs() -> None:
    orpheus = Orpheus()
    with pytest.raises(BadRequest, match="exactly one text is needed, 0 were given"):
        ToyRuntime(orpheus).run(orpheus.request())


def test_a_codec_that_breaks_fails_the_request() -> None:
    class Broken:
        def decode(self, call: ToyCall) -> dict[str, Any]:
            raise ValueError("no such code")

    orpheus = Orpheus()
    runtime = ToyRuntime(orpheus, {"llama": Llama(7), "snac": Broken()})
    with pytest.raises(WalkFailed, match="snac.decode: ValueError: no such code"):
        runtime.run(orpheus.request(parts=[Part("text", "hello")]))
