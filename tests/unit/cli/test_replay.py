"""``walkserve replay``: a request as a story, and where its plan parts from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.conductor.served import Served
from walkserve.conductor.state import ConductorState
from walkserve.journal.entries import Origin
from walkserve.journal.folder import JournalFolder, usable_folder

ADDRESS = "hum.rank0.1"
POOLS = {"voice": m.PoolInfo(40, 8, 64)}
IMAGE = b"\x07 a secret image"

SHOWN = """
from walkserve_sdk import Component, Model, Node, Output, Text, WalkGraph, track

class Hum(Model):
    inputs = ("text", "image")
    eye = Component("nowhere:Eye")
    words = Output(Text())
    see = WalkGraph(Node(eye, "see", takes=("image", "wide"), gives="said", to=words))

    @track
    def telling(self, request, prepared):
        yield self.see(image=request.one("image"), wide=request.one("image")[0])
"""


def write_journal(
    folder: Path, source: str, *parts: m.SentPart, version: str = "2.0", ends: bool = True
) -> Path:
    """The journal of one request to the family that this source declares."""
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "hum", "exec", dont_inherit=True), found)
    served = Served("hum", found["Hum"](), {name: "hum.rank0" for name in found["Hum"].spec.components})
    journals = JournalFolder(usable_folder(folder), {"hum": Origin("hum", "walk-plugin-hum", version, "hum")})
    state = ConductorState({"hum": served}, journals)
    state.hear(m.WorkerReady("hum.rank0", ADDRESS, 1, {}, POOLS))
    (track,) = served.model.spec.tracks
    (output,) = served.model.spec.outputs
    parts = parts or (m.SentPart("text", b"a tune"),)
    options = served.model.Options()
    state.hear(m.Submit("http", 1, "hum", parts, (output,), options, 3, label="req-1f"))
    if ends:
        state.hear(m.WalkEnded(0, track, 0, "stop", 4, 4, {}, {}, {output: 2}, {}))
    journals.flush()
    (path,) = folder.iterdir()
    return path


@pytest.fixture
def hum(shelf, good, tmp_path):
    """A family on the shelf, and a journal of it."""
    shelf.add("hum", good("Hum"))
    return write_journal(tmp_path / "journals", good("Hum"))


def change(shelf, old: str, new: str) -> None:
    plugin = shelf.folder / "walk_plugin_hum" / "__init__.py"
    source = plugin.read_text()
    assert old in source
    plugin.write_text(source.replace(old, new))


# --- a story --------------------------------------------------------------------------------------------


def test_a_request_is_told_line_by_line_and_its_plan_agrees(shelf, hum):
    run = shelf.run("replay", hum)
    assert (run.code, run.errors, run.heavy) == (0, "", [])
    rows = [line.split() for line in run.out.splitlines()]
    assert rows[0] == ["req-1f", "hum", "walk-plugin-hum", "2.0"]
    assert any(row[:3] == ["parts", "text", "'a"] for row in rows)
    told = [" ".join(row[2:]) for row in rows if row and row[0].isdigit()]
    assert told == [
        "the request accepted",
        "the request needs no cache",
        "the request admitted",
        "speaking, Walk 0 speak(text='a tune')",
        "speaking, Walk 0 ended by stop, 4 turns",
        "speaking, at its end returns",
        "the request ended: stop, 2 pieces of sound, 0 input tokens, 4 output tokens",
    ]
    assert run.out.endswith("The plan agrees with the journal: 7 lines, 1 Walk.\n")


def test_a_plan_that_was_changed_parts_at_its_place(shelf, hum):
    change(shelf, 'self.speak(text=request.one("text"))', 'self.speak(text=request.one("text") + "!")')
    run = shelf.run("replay", hum)
    assert (run.code, run.errors) == (1, "")
    assert run.out.splitlines()[-3:] == [
        f"They part at line 4 of {hum}.",
        "speaking, Walk 0: the journal has speak(text='a tune'), this plan asks for speak(text='a tune!')",
        "  text is 'a tune' in the journal and 'a tune!' in this plan",
    ]


def test_a_plan_that_raises_is_shown_with_the_line_of_its_own_file(shelf, hum):
    change(shelf, "yield self.speak", "1 / 0; yield self.speak")
    run = shelf.run("replay", hum)
    assert run.code == 1
    assert "walk_plugin_hum/__init__.py" in run.out
    assert "ZeroDivisionError: division by zero" in run.out
    assert "this plan failed: the plan of hum raised ZeroDivisionError" in run.out


def test_a_journal_that_ends_in_the_middle_is_replayed_up_to_there(shelf, good, tmp_path):
    shelf.add("hum", good("Hum"))
    path = write_journal(tmp_path / "journals", good("Hum"), ends=False)
    with path.open("a") as file:
        file.write('{"entry":"walk_en')
    run = shelf.run("replay", path)
    assert run.code == 0
    assert run.out.endswith(
        "The plan agrees with the journal as far as that goes (line 5 is torn off in the middle): 4 lines.\n"
    )


def test_for_programs_it_is_json(shelf, hum):
    report = shelf.json("replay", hum)
    assert (report["agrees"], report["cut"], report["parting"], report["notes"]) == (True, "", None, [])
    assert [each["line"] for each in report["entries"]] == [1, 2, 3, 4, 5, 6, 7]
    change(shelf, 'self.speak(text=request.one("text"))', 'self.speak(text="")')
    run = shelf.run("replay", hum, "--json")
    assert run.code == 1
    assert json.loads(run.out)["parting"] == {
        "line": 4,
        "place": "speaking, Walk 0",
        "journal": "speak(text='a tune')",
        "plan": "speak(text='')",
        "differences": ["text is 'a tune' in the journal and '' in this plan"],
    }


# --- what it is walked by -------------------------------------------------------------------------------


def test_another_version_of_the_plugin_is_said(shelf, good, tmp_path):
    shelf.add("hum", good("Hum"))
    path = write_journal(tmp_path / "journals", good("Hum"), version="1.9")
    run = shelf.run("replay", path)
    assert run.code == 0
    assert "the journal was written with walk-plugin-hum 1.9; this is walk-plugin-hum 2.0\n" in run.out


def test_another_model_may_walk_it(shelf, hum, good):
    shelf.add("moan", good("Moan"))
    assert shelf.run("replay", hum, "--model", "moan").code == 0
    refused = shelf.run("replay", hum, "--model", "nobody")
    assert refused.code == 2
    assert "there is no model 'nobody'" in refused.errors


def test_a_family_that_is_not_installed_cannot_walk_it(shelf, good, tmp_path):
    path = write_journal(tmp_path / "journals", good("Hum"))
    run = shelf.run("replay", path)
    assert (run.code, run.out) == (2, "")
    assert "there is no model 'hum'" in run.errors
    assert "(the journal is of hum, by walk-plugin-hum 2.0; --model names another)" in run.errors


def test_where_the_checkpoint_is_not_here_the_plan_is_walked_without_it_and_that_is_said(
    shelf, good, tmp_path
):
    away = good("Hum").replace("class Hum(Model):", "class Hum(Model):\n    variants = {'own': 'gone'}")
    shelf.add("hum", away)
    path = write_journal(tmp_path / "journals", good("Hum"))
    path.write_text(path.read_text().replace('"checkpoint":"hum"', '"checkpoint":"/no/where"'))
    run = shelf.run("replay", path)
    assert run.code == 0
    assert "walked without a checkpoint, which a plan may ask for limits or voices: hum=/no/where" in run.out
    assert "--model hum=FOLDER says where it is" in run.out


def test_a_plan_that_looks_into_media_takes_the_file(shelf, tmp_path):
    shelf.add("hum", SHOWN)
    path = write_journal(tmp_path / "journals", SHOWN, m.SentPart("image", IMAGE))
    assert "secret" not in path.read_text()
    run = shelf.run("replay", path)
    assert run.code == 1
    assert "a part of 16 bytes is not here" in run.out
    (tmp_path / "image").write_bytes(IMAGE)
    (tmp_path / "other").write_bytes(b"other")
    run = shelf.run("replay", path, "--media", tmp_path / "image", "--media", tmp_path / "other")
    assert run.code == 0
    assert "is not here" not in run.out
    assert "--media: the journal has no part with the SHA-256 d9298a10d1b07358" in run.out


# --- what is no journal ---------------------------------------------------------------------------------


def test_a_file_that_is_no_journal_is_refused_in_one_line(shelf, tmp_path):
    (tmp_path / "other.json").write_text("hello\n")
    run = shelf.run("replay", tmp_path / "other.json")
    assert (run.code, run.out, run.heavy) == (2, "", [])
    (line,) = run.errors.splitlines()
    assert line.startswith(f"walkserve: {tmp_path / 'other.json'}, line 1: this begins no journal: ")
    assert shelf.run("replay", tmp_path / "nowhere").code == 2
