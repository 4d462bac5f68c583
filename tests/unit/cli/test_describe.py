"""``walkserve describe``: what a model is, whether or not its checkpoint is here."""

import json
import re


def test_a_model_with_its_checkpoint_is_described_from_its_small_files(shelf):
    told = shelf.json("describe", "orpheus:toy")
    assert (told["name"], told["family"], told["plugin"]) == (
        "orpheus:toy",
        "orpheus",
        "walk-plugin-orpheus 0.1.0",
    )
    assert told["summary"] == "Text in, 24 kHz speech out, sounding while the rest is still being written"
    assert told["voices"] == ["tara", "leo"]
    assert told["limits"] == {"context": 1024, "body_bytes": 1024 * 1024}
    assert told["outputs"] == {"speech": {"kind": "audio", "rate": 24000, "channels": 1}}
    assert "POST /v1/audio/speech" in told["surfaces"]["audio.speech"]
    assert told["checkpoint"]["is_here"] is True
    assert set(told["checkpoint"]["parts"]) == {"main", "snac"}
    assert told["components"]["llama"] == {
        "path": "walk_plugin_orpheus.llama:OrpheusLM",
        "runs_on": "device",
        "cache": {"page_size": 16, "branches": ["main"]},
        "has_state": False,
        "rows": None,
    }
    assert told["graphs"]["write"] == {"takes": ["ids", "max_tokens"], "calls": ["llama.next"]}
    assert told["prepares"] == ["encode"]
    assert told["tracks"]["writing"] == {"walks": ["write"], "reads": [], "writes": ["codes"]}
    assert told["streams"]["codes"] == {
        "writer": "writing",
        "reader": "sounding",
        "policy": "multiples of 7, up to 56",
        "limit": 8192,
    }
    assert list(told["variants"]) == ["toy"]


def test_options_are_told_with_type_default_range_and_the_authors_words(shelf, good):
    shelf.add("hum", good("Hum"))
    told = shelf.json("describe", "hum")
    assert told["options"]["tune"] == {
        "description": "Which of the tunes.",
        "enum": ["quick", "slow"],
        "default": "slow",
    }
    assert told["options"]["pace"] == {
        "description": "Told once for both.",
        "type": "number",
        "default": 1.5,
        "exclusiveMinimum": 0,
        "exclusiveMaximum": 4,
    }
    assert told["options"]["pitch"]["description"] == "Told once for both."
    assert told["options"]["alone"] == {"description": "", "type": "boolean", "default": True}
    assert told["options"]["top_p"]["also"] == "sampling.top_p"
    assert told["ranges"]["pace"] == "above 0, below 4"
    assert told["ranges"]["pitch"] == "-5 to 5"
    assert told["ranges"]["tune"] == '"quick" or "slow"'
    assert told["ranges"]["seed"] == "0 to 2⁶³ − 1"
    assert list(told["options"])[-1] == "seed"


def test_a_family_without_a_descriptor_is_summed_up_by_its_docstring(shelf, good):
    shelf.add("hum", good("Hum"))
    told = shelf.json("describe", "hum")
    assert told["summary"] == "It hums. And more"
    assert told["surfaces"] == {}


def test_without_its_checkpoint_the_family_is_described_and_voices_are_unknown(shelf, tmp_path):
    empty = {"HF_HOME": str(tmp_path / "nothing"), "HF_HUB_OFFLINE": "1"}
    told = shelf.json("describe", "orpheus", **empty)
    assert told["voices"] is None
    assert told["limits"]["context"] is None
    assert told["checkpoint"]["is_here"] is False
    assert "only the local cache was searched" in told["checkpoint"]["problem"]
    assert told["checkpoint"]["parts"]["main"]["repo"] == "canopylabs/orpheus-3b-0.1-ft"
    page = shelf.run("describe", "orpheus", **empty)
    assert page.code == 0
    assert "unknown: the checkpoint is not on this machine" in page.out
    assert "repetition_penalty" in page.out


def test_a_folder_that_is_no_checkpoint_is_told_beside_the_family(shelf, tmp_path):
    told = shelf.json("describe", f"orpheus:mine={tmp_path}")
    assert "is no checkpoint of this family" in told["checkpoint"]["problem"]
    assert told["name"] == "orpheus:mine"
    voiceless = tmp_path / "files"
    voiceless.mkdir()
    assert shelf.json("describe", f"orpheus={voiceless}/nowhere")["checkpoint"]["is_here"] is False


def test_the_page_has_every_part_of_the_declaration(shelf):
    page = shelf.run("describe", "orpheus:toy")
    assert page.code == 0
    for word in ("Options", "Components", "Graphs", "Tracks", "Streams", "tara, leo", "1,024 tokens"):
        assert word in page.out
    squeezed = re.sub(r" +", " ", page.out)
    for line in (
        "vocode nothing snac.decode",
        "(before admission) encode",
        "in pages of 16 tokens",
        "2⁶³ − 1",
    ):
        assert line in squeezed, line


def test_a_name_that_cannot_be_is_refused_in_one_line(shelf, good):
    shelf.add("bad", "1 / 0")
    for name, code, why in (
        ("orphus", 2, "there is no model 'orphus'; did you mean 'orpheus'?"),
        ("orpheus:tiny", 2, "orpheus has no variant 'tiny'"),
        ("bad", 1, "bad (walk-plugin-bad 2.0) failed to import: ZeroDivisionError"),
    ):
        run = shelf.run("describe", name)
        assert (run.code, run.out) == (code, "")
        assert why in run.errors
        assert len(run.errors.splitlines()) == 1


def test_describing_imports_nothing_heavy(shelf):
    assert shelf.run("describe", "orpheus:toy").heavy == []
    assert shelf.run("describe", "orpheus:toy", "--json").heavy == []


def test_json_is_json_and_nothing_else(shelf):
    assert json.loads(shelf.run("describe", "orpheus:toy", "--json").out)["name"] == "orpheus:toy"
