"""The toy's tokeniser: bytes and markers, the same for every library that reads it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as TokenizerFile
from transformers import AutoTokenizer

import walk_plugin_orpheus.toy
from walk_plugin_orpheus.ids import read_speech_ids
from walk_plugin_orpheus.text import Tokenizer
from walk_plugin_orpheus.toy.tokenizer_files import write_tokenizer
from walkserve_sdk import Checkpoint

TOY = Path(walk_plugin_orpheus.toy.__file__).parent
CHECKPOINT = Checkpoint({"main": TOY, "snac": TOY / "snac"}, label="toy")
FILE = TokenizerFile.from_file(str(TOY / "tokenizer.json"))


@pytest.fixture(scope="module")
def served() -> Tokenizer:
    return Tokenizer.load(CHECKPOINT, device=None, dtype=None)


@given(st.text())
def test_a_text_is_its_bytes_and_comes_back(text: str):
    literal = TokenizerFile.from_file(str(TOY / "tokenizer.json"))
    literal.encode_special_tokens = True
    ids = literal.encode(text).ids
    assert ids == list(text.encode())
    assert literal.decode(ids) == text


def test_transformers_reads_the_same_ids():
    tokenizer = AutoTokenizer.from_pretrained(TOY)
    text = "Grüße, 你好 🙂\n  call 5 5 1"
    assert tokenizer(text)["input_ids"] == list(text.encode())
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer) == 768
    assert tokenizer.bos_token_id is None


def test_the_markers_have_the_published_order():
    ids = {name: FILE.token_to_id(name) for name in ("<|eot_id|>", "<custom_token_0>", "<custom_token_508>")}
    assert ids == {"<|eot_id|>": 256, "<custom_token_0>": 259, "<custom_token_508>": 767}
    assert FILE.get_vocab_size() == 768
    assert FILE.token_to_id("<|begin_of_text|>") is None


def test_seven_slots_of_codes_fill_the_vocabulary_beginning_at_the_tenth_custom_token():
    ids = read_speech_ids(CHECKPOINT)
    assert (ids.end, ids.first, ids.codebook_size) == (261, 269, 64)
    assert ids.first + 7 * ids.codebook_size <= FILE.get_vocab_size()


def test_a_prompt_is_voice_and_text_between_markers(served: Tokenizer):
    assert served.prompt("call 5 5 1", "tara") == [262, *b"tara: call 5 5 1", 256, 263, 264, 260]


def test_a_marker_that_a_client_spells_out_stays_text(served: Tokenizer):
    assert served.prompt("<custom_token_2>", "leo") == [262, *b"leo: <custom_token_2>", 256, 263, 264, 260]


def test_the_shipped_files_are_those_the_training_writes(tmp_path: Path):
    write_tokenizer(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "voices.json"):
        assert json.loads((tmp_path / name).read_text()) == json.loads((TOY / name).read_text())
