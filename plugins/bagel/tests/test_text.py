"""Ids of text and text of ids, whole and as it is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walk_plugin_bagel.pen import Pen
from walk_plugin_bagel.text import BEGIN, END, Tokenizer, open_tokenizer, special
from walk_plugin_bagel.writing import MARKERS, Written, finish, go_on
from walkserve.worker.live import Branch
from walkserve_sdk import Checkpoint, LoadError

GOLDEN = Path(__file__).parent / "data" / "golden"
TOKENIZER = open_tokenizer(Checkpoint({"main": GOLDEN}))
PEN = Pen.load(Checkpoint({"main": GOLDEN}), device=None, dtype=None)
IDS = st.lists(st.integers(0, 540), max_size=20)


def test_ids_are_the_references(said, tokenizer):
    assert len(said["tokenizer"]) == 10
    for row in said["tokenizer"]:
        assert tokenizer.ids(row["text"]) == row["ids"]


def test_a_block_stands_between_the_tokens_that_begin_and_end_it(said, tokenizer):
    begin, end = said["special_ids"]["bos_token_id"], said["special_ids"]["eos_token_id"]
    assert tokenizer.block("A red fox") == [begin, *tokenizer.ids("A red fox"), end]
    assert tokenizer.block("") == [begin, end]


def test_special_tokens_are_found_by_name(tokenizer, said):
    file = tokenizer._tokenizer
    assert special(file, "<|vision_start|>") == said["special_ids"]["start_of_image"]
    assert special(file, "<|vision_end|>") == said["special_ids"]["end_of_image"]
    with pytest.raises(LoadError, match="no <|audio_start|>"):
        special(file, "<|audio_start|>")


def test_a_tokeniser_of_something_else_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(LoadError, match="is no tokeniser"):
        Tokenizer.load(Checkpoint({"main": tmp_path}), device=None, dtype=None)
    said = json.loads((GOLDEN / "tokenizer.json").read_text("utf-8"))
    said["model"]["vocab"]["a b"] = said["model"]["vocab"].pop("!")
    (tmp_path / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(LoadError, match="'a b' has ' ', which stands for no byte"):
        Pen.load(Checkpoint({"main": tmp_path}), device=None, dtype=None)
    shutil.copy(GOLDEN / "tokenizer.json", tmp_path / "tokenizer.json")
    assert Tokenizer.load(Checkpoint({"main": tmp_path}), device=None, dtype=None).ids("!")


# --- as it is written ---------------------------------------------------------------------------------


def _text(ids: list[int]) -> str:
    """All of it, markers included."""
    return PEN.bytes(ids).decode("utf-8", "replace")


def _written(pieces: list[bytes]) -> tuple[list[str], str]:
    """What every piece gave, the last one what was held back; and the whole."""
    written, given_out = Written(), []
    for piece in pieces:
        written, out = go_on(written, piece)
        given_out.append(out)
    text, rest = finish(written)
    return [*given_out, rest], text


def _to_the_marker(text: str) -> str:
    return text[: min((at for marker in MARKERS if (at := text.find(marker)) >= 0), default=None)]


@given(IDS)
def test_ids_say_what_the_tokeniser_says_they_do(ids):
    assert _text(ids) == TOKENIZER.decode(ids, skip_special_tokens=False)


@given(IDS)
def test_what_is_given_out_as_it_is_written_is_the_whole_text_up_to_a_marker(ids):
    pieces, text = _written([PEN.bytes([each]) for each in ids])
    assert "".join(pieces) == text == _to_the_marker(_text(ids))


@given(
    st.lists(
        st.sampled_from(["<", "<|", "im", "_", "start", "end", "|>", "|", "x", "ä", "<|im_end|>"]), max_size=9
    ),
    st.data(),
)
def test_a_marker_that_ordinary_bytes_spell_out_ends_a_text_however_it_is_cut(words, data):
    whole = "".join(words).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    given_out, text = _written(pieces)
    assert "".join(given_out) == text == _to_the_marker(whole.decode())


def test_half_a_character_waits_for_the_other_half_and_what_may_be_a_marker_for_its_end():
    assert _written(["né".encode()[:2], "né".encode()[2:], b"x<", b"|im", b"_x"]) == (
        ["n", "é", "x", "", "<|im_x", ""],
        "néx<|im_x",
    )
    assert _written([b"a", "é".encode()[:1]]) == (["a", "", "\ufffd"], "a\ufffd")
    assert _written([b"a<|im_", b"start|>b", b"c"]) == (["a", "", "", ""], "a")
    assert _written([b"a<|"]) == (["a", "<|"], "a<|")


def test_every_token_is_written_by_its_request_and_the_next_text_begins_anew(bench, tokenizer):
    pens = [Branch(None), Branch(None)]
    texts = ("A red fox 🙂", "naïve café")
    pieces = ["", ""]
    ids = [tokenizer.ids(text) for text in texts]
    for turn in range(max(map(len, ids))):
        rows = [
            (pen, {"ids": each[turn], "scores": None})
            for pen, each in zip(pens, ids, strict=True)
            if turn < len(each)
        ]
        at = [index for index, each in enumerate(ids) if turn < len(each)]
        for index, given_out in zip(at, bench.rows("pen.write", rows), strict=True):
            pieces[index] += given_out["piece"] or ""
    for pen, text, piece in zip(pens, texts, pieces, strict=True):
        finished = bench.call("pen.finish", pen)
        assert finished["text"] == text == piece + (finished["rest"] or "")
        assert bench.call("pen.finish", pen) == {"rest": None, "text": ""}


def test_special_tokens_are_text_but_those_that_end_it(tokenizer):
    ids = [*tokenizer.ids("a<|endoftext|>b"), special(tokenizer._tokenizer, END)]
    assert _text(ids) == "a<|endoftext|>b<|im_end|>"
    assert _written([PEN.bytes([each]) for each in ids])[1] == "a<|endoftext|>b"
    assert BEGIN in MARKERS
    assert END in MARKERS
