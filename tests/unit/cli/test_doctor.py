"""``walkserve doctor``: what is broken is told with place and cure, and harms no other check."""

import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from walkserve.cli import checkup
from walkserve.cli.checkup import Finding, is_bad
from walkserve.transport.rundir import folders_of_servers


def plugin(shelf, name: str) -> dict:
    (found,) = [f for f in findings(shelf) if f["area"] == "Plugins" and f["name"] == name]
    return found


def findings(shelf) -> list[dict]:
    program = (
        "import msgspec; from walkserve.cli.checkup import plugins; "
        "print(msgspec.json.encode(list(plugins())).decode())"
    )
    paths = os.pathsep.join([str(shelf.folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_all_is_well_where_nothing_is_broken(shelf, good):
    shelf.add("hum", good("Hum"))
    run = shelf.run("doctor")
    assert run.code == 0, run.out
    assert "All is well." in run.out
    for word in (
        "Software",
        "Plugins",
        "Machine",
        "Files",
        "torch",
        "libsndfile",
        "hub cache",
        "shared memory",
    ):
        assert word in run.out
    assert "walk-plugin-hum 2.0, walk_plugin_hum:Hum" in run.out
    assert run.heavy == [] or run.heavy == ["zmq"]


def test_a_broken_plugin_is_told_with_the_line_of_its_own_file_and_makes_the_exit_code_1(shelf, good):
    shelf.add("hum", good("Hum"))
    shelf.add("bad", "import os\n\n\ndef _ready():\n    return 1 / 0\n\n\n_ready()\n")
    run = shelf.run("doctor", "--json")
    assert run.code == 1
    told = json.loads(run.out)
    assert told["well"] is False
    by_name = {f["name"]: f for f in told["findings"] if f["area"] == "Plugins"}
    assert by_name["hum"]["state"] == by_name["orpheus"]["state"] == "well"
    bad = by_name["bad"]
    assert bad["state"] == "broken"
    assert bad["says"].startswith(
        "walk-plugin-bad 2.0, walk_plugin_bad:Bad: failed to import: ZeroDivisionError"
    )
    file = shelf.folder / "walk_plugin_bad" / "__init__.py"
    assert bad["trace"] == [
        f"{file}, line 8: _ready()",
        f"{file}, line 5: return 1 / 0",
        "ZeroDivisionError: division by zero",
    ]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("class Bad(:\n", ", line 1: class Bad(:"),
        ("import qwertz_that_is_nowhere\n", ", line 1: import qwertz_that_is_nowhere"),
        ("raise SystemExit(3)\n", ", line 1: raise SystemExit(3)"),
        (
            "from walkserve_sdk import Component, Model, Node, WalkGraph\n"
            "class Bad(Model):\n"
            "    go = WalkGraph(Node(Component('a:B'), 'say', takes='text'))\n",
            ", line 2: class Bad(Model):",
        ),
    ],
)
def test_whatever_a_plugin_raises_its_own_line_is_shown(shelf, source, line):
    shelf.add("bad", source)
    assert any(line in each and "walk_plugin_bad" in each for each in plugin(shelf, "bad")["trace"])


def test_two_distributions_of_one_name_are_both_named(shelf, good):
    shelf.add("hum", good("Hum"))
    shelf.add("buzz", good("Buzz"), model="hum")
    found = plugin(shelf, "hum")
    assert found["state"] == "broken"
    assert found["says"] == (
        "walk-plugin-buzz 2.0 and walk-plugin-hum 2.0 both claim this name; uninstall all but one"
    )


@pytest.mark.parametrize(
    ("source", "descriptor"),
    [("{good}\n    API_LEVEL = 7\n", None), ("{good}", {"api": 7, "models": {"hum": {}}})],
)
def test_another_api_level_is_told_with_both_levels_and_the_plugins_version(shelf, good, source, descriptor):
    shelf.add("hum", source.replace("{good}", good("Hum")), descriptor=descriptor)
    found = plugin(shelf, "hum")
    assert found["state"] == "broken"
    assert "walk-plugin-hum 2.0" in found["says"]
    assert "written for API level 7, and this walkserve has API level 1" in found["says"]
    assert "install a newer walkserve" in found["says"]


def test_what_a_plugin_needs_and_has_not_is_told(shelf, good):
    shelf.add("hum", good("Hum"), requires=("qwertz-that-is-nowhere>=2", "msgspec>=999", "rich>=1"))
    says = plugin(shelf, "hum")["says"]
    assert "qwertz-that-is-nowhere: it is not installed: pip install 'qwertz-that-is-nowhere>=2'" in says
    assert "which is not >=999" in says
    assert "rich" not in says


def test_a_declaration_that_imports_torch_is_a_warning(shelf, good, tmp_path):
    fake = shelf.folder / "torch"
    fake.mkdir()
    (fake / "__init__.py").write_text("")
    shelf.add("hum", f"import torch\n{good('Hum')}")
    found = plugin(shelf, "hum")
    assert found["state"] == "warning"
    assert "its declaration imports torch" in found["says"]


def test_a_family_that_this_version_does_not_run_is_a_warning(shelf, good):
    shelf.add(
        "hum",
        good("Hum")
        .replace("    sound = ", "    ear = Component('nowhere:Ear', device='cpu')\n    sound = ")
        .replace("WalkGraph(Node", "WalkGraph(Node(ear, 'hear'), Node"),
    )
    found = plugin(shelf, "hum")
    assert found["state"] == "warning", found
    assert "not served yet" in found["says"] and "give each its own graph" in found["says"]


def test_no_plugin_at_all_is_a_warning(monkeypatch):
    monkeypatch.setattr(checkup, "find_models", lambda: type("None_", (), {"claims": {}}))
    (found,) = checkup.plugins()
    assert (found.state, found.says) == ("warning", "no model is installed: install its plugin with pip")


def test_a_torch_that_cannot_be_imported_is_broken_and_its_last_lines_are_shown(monkeypatch):
    monkeypatch.setattr(checkup, "_TORCH", "raise ImportError('libcudart.so is missing')")
    (found,) = checkup.torch_and_devices()
    assert found.state == "broken"
    assert "ImportError: libcudart.so is missing; reinstall torch" in found.says
    monkeypatch.setattr(checkup, "_TORCH", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    (found,) = checkup.torch_and_devices()
    assert (found.state, found.says) == (
        "broken",
        "it cannot be imported: its process ended with -11; reinstall torch",
    )


def test_a_torch_that_never_comes_back_is_given_up(monkeypatch):
    monkeypatch.setattr(checkup, "_TORCH", "import time; time.sleep(60)")
    monkeypatch.setattr(checkup, "TORCH_WITHIN_S", 0.3)
    (found,) = checkup.torch_and_devices()
    assert found.state == "broken"


def test_devices_are_named_and_a_gpu_that_torch_cannot_see_is_a_warning(monkeypatch):
    said = {"version": "2.13", "cuda": "13.0", "threads": 4, "devices": [{"name": "H200", "bytes": 2**37}]}
    monkeypatch.setattr(checkup, "_TORCH", f"print({json.dumps(json.dumps(said))})")
    torch, device = checkup.torch_and_devices()
    assert torch.says == "2.13, built for CUDA 13.0, 4 threads"
    assert (device.name, device.says) == ("cuda:0", "H200, 128.0 GiB")
    said["devices"] = []
    monkeypatch.setattr(checkup, "_TORCH", f"print({json.dumps(json.dumps(said))})")
    _, device = checkup.torch_and_devices()
    assert (device.state, device.says.startswith("no GPU, though torch could use one")) == ("warning", True)


def test_what_dead_servers_left_is_told_and_left_where_it_is(tmp_path):
    dead, alive, other = (tmp_path / name for name in ("walkserve-1-dead", "walkserve-2-alive", "something"))
    for folder in (dead, alive, other):
        folder.mkdir()
        (folder / "lock").write_bytes(b"")
        (folder / "arena").write_bytes(bytes(2048))
    held = os.open(alive / "lock", os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert folders_of_servers(tmp_path) == {dead: False, alive: True}
        found = {each.name: each for each in checkup.shared_memory(tmp_path)}
    finally:
        os.close(held)
    assert found["leftovers"].state == "warning"
    assert f"1 dead server left 2.0 KiB in {dead}" in found["leftovers"].says
    assert found["servers"].says == "1 server of this user runs here"
    assert (dead / "arena").exists()


def test_a_run_folder_that_is_being_made_is_no_leftover(tmp_path):
    (tmp_path / "walkserve-3-young").mkdir()
    assert list(folders_of_servers(tmp_path).values()) == [True]
    old = time.time() - 3600
    os.utime(tmp_path / "walkserve-3-young", (old, old))
    assert list(folders_of_servers(tmp_path).values()) == [False]


def test_little_shared_memory_is_a_warning_with_its_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(checkup, "ENOUGH_SHARED", 2**62)
    found = next(iter(checkup.shared_memory(tmp_path)))
    assert found.state == "warning"
    assert "--shm-size" in found.says


def test_a_hub_cache_that_cannot_be_written_is_a_warning(monkeypatch):
    monkeypatch.setattr(checkup.os, "access", lambda path, mode: False)
    found = checkup.hub_cache()
    assert found.state == "warning"
    assert "may not be written; set HF_HOME" in found.says


def test_formats_that_libsndfile_lacks_are_named(monkeypatch):
    import soundfile

    assert checkup.sound_formats().says.endswith("writes wav, flac, mp3, opus")
    monkeypatch.setattr(soundfile, "check_format", lambda kind, coding: kind != "MP3")
    found = checkup.sound_formats()
    assert found.state == "warning"
    assert "and not mp3" in found.says


def test_a_requirement_that_is_missing_or_too_old_is_broken(monkeypatch):
    from packaging.requirements import Requirement

    needs = [Requirement("msgspec>=999"), Requirement("qwertz-that-is-nowhere"), Requirement("rich>=1")]
    monkeypatch.setattr(checkup, "_needs", lambda name: needs)
    found = {each.name: each for each in checkup.software()}
    assert found["msgspec"].state == found["qwertz-that-is-nowhere"].state == "broken"
    assert "pip install 'msgspec>=999'" in found["msgspec"].says
    assert found["packages"].says.startswith("rich ")


def test_warnings_are_bad_only_where_one_is_strict():
    well, warning, broken = (Finding("a", "b", state, "") for state in ("well", "warning", "broken"))
    assert not is_bad([well, warning], strict=False)
    assert is_bad([well, warning], strict=True)
    assert is_bad([well, broken], strict=False)
    assert not is_bad([well], strict=True)


NOTES = """
from msgspec import Struct
from walkserve_sdk.hooks import hookimpl
from walkserve_sdk.serving import Route

class Body(Struct):
    text: str

async def handle(exchange): ...

@hookimpl
def walkserve_extend_app():
    return [Route(path="{path}", surface="notes", handle=handle, fields=Body, answer=Body, summary="Note it",
                  example={{"text": "x"}}, example_answer={{"text": "x"}})]
"""


def test_extensions_are_told_with_their_routes_and_what_is_wrong_with_them(shelf):
    def add(name, source):
        shelf.add(name, source, target=f"walk_plugin_{name}", group="walkserve")

    add("notes", NOTES.format(path="/v1/notes"))
    add("more", NOTES.format(path="/v1/notes"))
    add("bad", "\n\nraise KeyError('x')\n")
    add("typo", NOTES.format(path="/v1/typo").replace("def walkserve_extend_app", "def walkserve_extends"))
    told = json.loads(shelf.run("doctor", "--json").out)
    found = {each["name"]: each for each in told["findings"] if each["area"] == "Extensions"}
    assert found["notes"]["state"] == "well"
    assert found["notes"]["says"] == "walk-plugin-notes 2.0, walk_plugin_notes: POST /v1/notes"
    assert found["bad"]["says"].startswith("walk-plugin-bad 2.0, walk_plugin_bad: failed to import: KeyError")
    assert ", line 3: raise KeyError('x')" in found["bad"]["trace"][0]
    assert (found["bad"]["state"], found["typo"]["state"]) == ("broken", "broken")
    assert "unknown hook 'walkserve_extends'" in found["typo"]["says"]
    assert "walk-plugin-more 2.0 adds POST /v1/notes" in found["routes"]["says"]
    assert "walk_plugin_notes" not in shelf.run("list-models").out


@pytest.mark.parametrize(
    ("described", "own", "said"),
    [
        (["notes"], (), "its walkserve.json says surfaces notes, and it has none"),
        ([], ("notes",), "no extension of walk-plugin-hum has a route for notes"),
    ],
)
def test_surfaces_that_are_not_as_they_are_said_to_be_are_a_warning(shelf, good, described, own, said):
    source = good("Hum").replace("(Model):\n", f"(Model):\n    own_surfaces = {own!r}\n")
    shelf.add("hum", source, descriptor={"api": 1, "models": {"hum": {"surfaces": described}}})
    found = plugin(shelf, "hum")
    assert found["state"] == "warning" and found["says"].endswith(said)
