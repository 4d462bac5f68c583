"""What the plugin reads of a checkpoint besides its weights, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from walk_plugin_orpheus import VOICES, Orpheus
from walk_plugin_orpheus.ids import read_model_type, read_speech_ids
from walk_plugin_orpheus.text import Tokenizer
from walkserve_sdk import BadRequest, Checkpoint, LoadError, Part

GOLDEN = Path(__file__).parent / "data" / "golden"


@pytest.fixture
def copy(tmp_path: Path) -> Checkpoint:
    """The golden checkpoint's small files, to be changed."""
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(GOLDEN / name, tmp_path / name)
    shutil.copytree(GOLDEN / "snac", tmp_path / "snac")
    return Checkpoint({"main": tmp_path, "snac": tmp_path / "snac"}, "a copy")


def _speak(model: Orpheus, voice: str | None) -> str:
    options = {} if voice is None else {"voice": voice}
    return model.request(parts=(Part("text", "hi"),), options=options).options.voice


def test_in_the_published_layout_a_marker_that_a_client_spells_out_is_text(copy: Checkpoint):
    """The published tokeniser calls ``<custom_token_N>`` an ordinary token; end of speech is one of them."""
    tokenizer = Tokenizer.load(copy, device=None, dtype=None)
    end = read_speech_ids(copy).end
    for text in ("<custom_token_2>", "a <custom_token_2> b", "<|eot_id|>", "<|begin_of_text|>"):
        plain, spelled = tokenizer.prompt("x", "tara"), tokenizer.prompt(text, "tara")
        assert end not in spelled
        assert [spelled.count(marker) for marker in plain if marker >= 260] == [
            plain.count(marker) for marker in plain if marker >= 260
        ]


def test_the_context_that_is_told_is_the_one_that_the_language_model_has(copy: Checkpoint):
    config = json.loads((copy.folder() / "config.json").read_text())
    assert Orpheus(copy).context == config["max_position_embeddings"]
    (copy.folder() / "config.json").write_text("{")
    with pytest.raises(LoadError, match="config.json cannot be read"):
        Orpheus(copy)
    assert Orpheus().context is None


def test_without_voices_json_the_published_voices_are_known(copy: Checkpoint):
    assert Orpheus(copy).voices == VOICES


def test_voices_are_found_in_any_case_and_passed_on_as_the_checkpoint_spells_them(copy: Checkpoint):
    (copy.folder() / "voices.json").write_text(json.dumps({"voices": ["Ann", "bo"], "tags": ["laugh"]}))
    model = Orpheus(copy)
    assert [_speak(model, voice) for voice in ("ann", "ANN", "Bo", None)] == ["Ann", "Ann", "bo", "Ann"]
    with pytest.raises(BadRequest, match="there is no voice 'tara'; this checkpoint has Ann, bo"):
        _speak(model, "tara")


def test_the_checkpoints_first_voice_speaks_where_none_is_named(copy: Checkpoint):
    (copy.folder() / "voices.json").write_text(json.dumps({"voices": ["leo", "tara"]}))
    model = Orpheus(copy)
    assert _speak(model, None) == model.voices[0] == "leo"
    assert _speak(model, "tara") == "tara"


@pytest.mark.parametrize("said", ['{"voices": "tara"}', '{"voices": []}', '{"voices": [1]}', "[]", "{", "{}"])
def test_a_voices_json_that_names_no_voices_is_refused(copy: Checkpoint, said: str):
    (copy.folder() / "voices.json").write_text(said)
    with pytest.raises(LoadError, match="must name the checkpoint's voices"):
        Orpheus(copy)


def test_another_architecture_is_named(copy: Checkpoint):
    assert read_model_type(copy) == "llama"
    (copy.folder() / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    assert read_model_type(copy) == "qwen2"
    (copy.folder() / "config.json").write_text("{}")
    with pytest.raises(LoadError, match="does not say model_type"):
        read_model_type(copy)


def test_a_language_model_of_another_architecture_is_refused(copy: Checkpoint):
    import torch

    from walk_plugin_orpheus.llama import OrpheusLM

    (copy.folder() / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    with pytest.raises(LoadError, match="its model_type is 'qwen2'; Orpheus is a 'llama'"):
        OrpheusLM.load(copy, device=torch.device("cpu"), dtype=torch.float32)
