"""The command line, as a user meets it: in processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from walkserve_sdk import Part

HEAVY = ("torch", "transformers", "litestar", "huggingface_hub", "zmq", "walk_plugin_orpheus")

# says afterwards what was imported, and takes a server's place where one would start
PROGRAM = f"""
import sys, types
supervisor = types.ModuleType("walkserve.supervisor")
def serve(models, **where):
    import msgspec
    print(msgspec.json.encode({{"models": models, **where}}, enc_hook=str).decode())
    return 7
supervisor.serve = serve
sys.modules["walkserve.supervisor"] = supervisor
from walkserve.cli import main
code = main()
print("heavy:", *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""


def walkserve(
    *arguments: str | Path, path: Path | None = None, env: dict[str, str] | None = None
) -> SimpleNamespace:
    """Run the command line. ``path`` goes before everything else on sys.path."""
    paths = [str(path)] if path is not None else []
    environment = {
        key: value for key, value in os.environ.items() if key not in ("HF_HUB_OFFLINE", "COLUMNS")
    }
    environment["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment | (env or {}),
        timeout=60,
        input="from stdin",
    )
    *errors, heavy = done.stderr.splitlines() or [""]
    return SimpleNamespace(
        code=done.returncode, out=done.stdout, errors="\n".join(errors), heavy=heavy.split()[1:]
    )


def refused(run: SimpleNamespace) -> str:
    """The one line that says why, of a usage that cannot be."""
    assert run.code == 2, run.errors
    assert run.out == ""
    assert len(run.errors.splitlines()) == 1, run.errors
    assert run.errors.startswith("walkserve: ")
    return str(run.errors.removeprefix("walkserve: "))


def add_plugin(folder: Path, name: str, target: str, descriptor: str | None = None) -> None:
    info = folder / f"walk_plugin_{name}-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: walk-plugin-{name}\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(f"[walkserve.models]\n{name} = {target}\n")
    if descriptor is not None:
        (info / "extra_metadata").mkdir()
        (info / "extra_metadata" / "walkserve.json").write_text(descriptor)


MUTE = """
from walkserve_sdk import Component, Model, Node, Output, Text, WalkGraph, track

class Mute(Model):
    pen = Component("nowhere:Pen")
    words = Output(Text())
    draw = WalkGraph(Node(pen, "draw", takes="text", gives="out", to=words))

    @track
    def drawing(self, request, prepared):
        yield self.draw(text=request.one("text"))
"""


@pytest.fixture
def mute(tmp_path: Path) -> Path:
    """A folder for sys.path with a family that has no weights and no voice."""
    folder = tmp_path / "mute"
    folder.mkdir()
    (folder / "mute_family.py").write_text(MUTE)
    add_plugin(folder, "mute", "mute_family:Mute")
    return folder


# --- help and the list -----------------------------------------------------------------------------------


def test_help_names_the_commands_and_imports_nothing_heavy() -> None:
    run = walkserve("--help")
    assert run.code == 0
    assert all(
        command in run.out for command in ("describe", "doctor", "generate", "graph", "list-models", "serve")
    )
    assert run.heavy == []


@pytest.mark.parametrize(
    "command", ["describe", "doctor", "generate", "graph", "list-models", "replay", "serve"]
)
def test_each_command_has_its_own_help(command: str) -> None:
    run = walkserve(command, "--help")
    assert run.code == 0
    assert f"walkserve {command}" in run.out
    assert run.heavy == []


def test_models_are_listed_as_json_without_importing_them() -> None:
    run = walkserve("list-models", "--json")
    assert run.code == 0
    (orpheus,) = [model for model in json.loads(run.out)["models"] if model["name"] == "orpheus"]
    assert orpheus["distribution"] == "walk-plugin-orpheus"
    assert list(orpheus["variants"]) == ["toy"]
    assert (orpheus["inputs"], orpheus["outputs"], orpheus["problem"]) == (["text"], ["speech"], "")
    assert run.heavy == []


def test_a_broken_plugin_is_listed_and_harms_no_other(tmp_path: Path) -> None:
    add_plugin(tmp_path, "bad", "walk_plugin_bad:Bad", descriptor="{")
    add_plugin(tmp_path, "gone", "walk_plugin_gone:Gone")
    models = {
        m["name"]: m for m in json.loads(walkserve("list-models", "--json", path=tmp_path).out)["models"]
    }
    assert "its descriptor walkserve.json cannot be read" in models["bad"]["problem"]
    assert "there is no module 'walk_plugin_gone'" in models["gone"]["problem"]
    assert models["orpheus"]["problem"] == ""
    table = walkserve("list-models", path=tmp_path).out
    assert "Broken" in table and "its descriptor walkserve.json cannot be read" in table
    assert "text → speech" in table
    assert "walk-plugin-orpheus 0.1.0" in table


# --- what cannot be asked --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sevre", "No such command 'sevre'"),
        (
            "serve",
            "no model is named; name one, as in walkserve serve orpheus:toy, or list some in a --config",
        ),
        ("generate", "Missing argument 'NAME[:VARIANT][=CHECKPOINT]' (see walkserve generate --help)"),
        ("serve orpheus:toy --json", "--json belongs to --show-config"),
        ("serve orpheus:toy --cors-origin example.org", "--cors-origin: 'example.org' is no origin"),
        ("serve orpheus:toy --cors-origin http://a/b", "--cors-origin: 'http://a/b' is no origin"),
        ("serve orpheus:toy --api-key-file nowhere", "File 'nowhere' does not exist"),
        ("serve orpheus:toy --max-open-requests 0", "0 is not in the range x>=1"),
        ("serve orpheus:toy --log-format xml", "'xml' is not one of 'text', 'json'"),
        ("serve orpheus --prot 1", "No such option"),
        ("serve orpheus --port 99999", "Invalid value for '--port': 99999 is not in the range 0<=x<=65535"),
        ("serve orphus", "there is no model 'orphus'; did you mean 'orpheus'? installed: "),
        ("serve orpheus:tiny", "orpheus has no variant 'tiny'"),
        ("serve orpheus:", "no variant follows the ':'"),
        ("serve canopylabs/orpheus", "a checkpoint comes after the family's name"),
        ("serve orpheus:toy orpheus:toy", "'orpheus:toy' is named twice"),
        ("serve orpheus:toy orpheus-toy", "would give their workers the same names"),
        ("serve orpheus:toy orpheus --revision v1", "the revision 'v1' is given for 2 models"),
        ("serve orpheus:toy --dtype float16", "the dtype 'float16' is not served: its range is too small"),
        ("serve orpheus:toy --dtype bf16", "there is no dtype 'bf16'; there is auto, float32, bfloat16"),
        ("serve orpheus:toy --device gpu", "there is no device 'gpu'; there is auto, cpu, cuda"),
        ("serve orpheus:toy --cache-tokens 0", "0 is not in the range x>=1"),
        ("serve orpheus:toy --overcommit 0.9", "0.9 is not in the range x>=1"),
        ("serve orpheus:toy --token-budget none", "'none' is neither auto nor a whole number of at least 1"),
        ("serve orpheus:toy --hub-token-file nowhere", "File 'nowhere' does not exist"),
        (
            "generate orpheus --text a --out a.aac",
            "no format ends in '.aac'; there is .wav, .pcm, .flac, .mp3, ",
        ),
        ("generate orpheus --text a --out nowhere/a.wav", "there is no folder nowhere"),
        ("generate orpheus --text a --out a.wav --option voice", "'voice' is not NAME=VALUE"),
        ("generate orpheus --text a --out a.wav --option a=1 --option a=2", "a is given twice"),
        ("generate orpheus --text a --out a.wav --option seed=1 --seed 1", "seed is given twice"),
        ("generate orpheus --text a --out a.wav --option text=b", "text is no option of a model"),
        ("generate orphus --text a --out a.wav", "there is no model 'orphus'"),
        ("generate orpheus --out a.wav", "nothing goes in; give it --text, --image, --audio, "),
        ("generate orpheus --tensor x=nowhere.npy --out a.wav", "there is no file nowhere.npy"),
        ("generate orpheus:toy --tensor README.md --out a.wav", "this model takes no tensor; it takes text"),
        (
            "generate orpheus --text a --out a.npy",
            "gives speech (audio); a.npy holds one tensor or image or video",
        ),
        ("generate orpheus --text a --out a.wav --output x", "orpheus has no output 'x'; known: speech"),
        ("generate orpheus --text= --out a.wav", "--text: it is empty; there is nothing to say"),
        ("generate orpheus:toy --text a --out a.wav --option voice=zoe", "there is no voice 'zoe'"),
        ("generate orpheus:toy --text a --out a.wav --option pitch=1", "unknown option 'pitch'"),
        (
            "generate orpheus:toy --text a --out a.wav --option top_p=2",
            "top_p: expected `float` <= 1.0, got 2",
        ),
        (
            "generate orpheus:toy --text a --out a.wav --revision v1",
            "a folder has no revisions; leave out the revision 'v1'",
        ),
        ("generate orpheus:toy --text a --out a.wav --hub-token-file nowhere", "'nowhere' does not exist"),
        (f"serve orpheus:{'m' * 60}=x", "characters, and may have 67; serve it under a shorter one"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(arguments: str, message: str) -> None:
    run = walkserve(*arguments.split())
    assert message in refused(run)
    assert "torch" not in run.heavy


def test_a_family_without_a_voice_generates_no_sound(mute: Path) -> None:
    run = walkserve("generate", "mute", "--text", "a", "--out", "a.wav", path=mute)
    assert refused(run) == "mute gives words (text); a.wav holds one audio output"


def test_a_line_of_a_placement_file_is_named(mute: Path) -> None:
    (mute / "p.yaml").write_text("models:\n  mute:\n  - {components: [pne], ranks: [0]}\n")
    run = walkserve("serve", "mute", "--placement", mute / "p.yaml", path=mute)
    assert refused(run) == f"{mute}/p.yaml, line 3: mute has no component 'pne'; did you mean 'pen'?"


def test_a_token_file_holds_a_token(mute: Path) -> None:
    (mute / "token").write_text("\n")
    run = walkserve("serve", "mute", "--hub-token-file", mute / "token", path=mute)
    assert "must hold a token and nothing else" in refused(run)


UNRUN = """
from walkserve_sdk import Audio, Component, Model, Node, Output, WalkGraph, track

class Unrun(Model):
    ink = Component("nowhere:Ink", device="cpu")
    pen = Component("nowhere:Pen")
    sound = Output(Audio(rate=8_000))
    draw = WalkGraph({parts})

    @track
    def drawing(self, request, prepared):
        yield self.draw(text="")
"""
DRAWS = 'Node(pen, "draw", takes="text", gives="out", to=sound)'


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            f'Node(ink, "mix"), {DRAWS}',
            "Unrun.draw: it calls 'ink' on the CPU and 'pen' on a device; this version runs all components "
            "of one graph on one rank: give each its own graph",
        ),
    ],
)
@pytest.mark.parametrize("command", ["serve unrun", "generate unrun --text a --out a.wav"])
def test_a_declaration_that_this_version_does_not_run_is_one_line_before_anything_starts(
    tmp_path: Path, parts: str, message: str, command: str
) -> None:
    (tmp_path / "unrun.py").write_text(UNRUN.format(parts=parts))
    add_plugin(tmp_path, "unrun", "unrun:Unrun")
    run = walkserve(*command.split(), path=tmp_path)
    assert (run.code, run.out) == (1, "")
    assert run.errors == f"walkserve: {message}"
    assert "torch" not in run.heavy


# --- what goes wrong -------------------------------------------------------------------------------------


def test_a_checkpoint_that_is_not_there_ends_with_one_line_and_code_1(tmp_path: Path) -> None:
    run = walkserve("serve", f"orpheus={tmp_path}")
    assert (run.code, run.out) == (1, "")
    assert run.errors == (
        f"walkserve: orpheus: the folder {tmp_path} is no checkpoint of this family: it holds none of "
        "*.json, *.safetensors, snac/config.json, snac/pytorch_model.bin"
    )


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    run = walkserve("serve", f"orpheus={tmp_path}", "--log-level", "debug")
    assert run.code == 1
    assert "Traceback (most recent call last):" in run.errors
    assert run.errors.splitlines()[-1].startswith("walkserve: orpheus: the folder")


def test_a_broken_plugin_is_named_when_it_is_served(tmp_path: Path) -> None:
    add_plugin(tmp_path, "gone", "walk_plugin_gone:Gone")
    run = walkserve("serve", "gone", path=tmp_path)
    assert run.code == 1
    assert run.errors == (
        "walkserve: gone (walk-plugin-gone 2.0) failed to import: ModuleNotFoundError: No module named "
        "'walk_plugin_gone'; reinstall it: pip install --force-reinstall walk-plugin-gone"
    )


def test_offline_is_also_taken_from_the_environment(tmp_path: Path) -> None:
    run = walkserve("serve", "orpheus", env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert run.code == 1
    assert "canopylabs/orpheus-3b-0.1-ft: offline, so only the local cache was searched" in run.errors


# --- plugins ---------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(mute: Path) -> Path:
    """The good family, and beside it one that is gone, one that raises, and one of another API level."""
    add_plugin(mute, "gone", "walk_plugin_gone:Gone")
    (mute / "raises.py").write_text("1 / 0\n")
    add_plugin(mute, "raises", "raises:Raises")
    (mute / "newer.py").write_text(MUTE.replace("Mute", "Newer") + "    API_LEVEL = 2\n")
    add_plugin(mute, "newer", "newer:Newer", descriptor='{"api": 2}')
    return mute


def test_a_good_model_is_served_next_to_broken_plugins_which_are_said(crowd: Path) -> None:
    run = walkserve("serve", "mute", path=crowd)
    assert run.code == 7, run.errors
    assert [model["name"] for model in json.loads(run.out)["models"]] == ["mute"]
    gone, newer = run.errors.splitlines()
    assert "a plugin is broken: gone (walk-plugin-gone 2.0): its entry point is" in gone
    assert "a plugin is broken: newer (walk-plugin-newer 2.0): it is written for API level 2" in newer


def test_strictly_no_server_starts_next_to_a_broken_plugin_and_all_of_them_are_named(crowd: Path) -> None:
    run = walkserve("serve", "mute", "--strict", path=crowd)
    assert (run.code, run.out) == (1, "")
    (line,) = run.errors.splitlines()
    assert "gone (walk-plugin-gone 2.0): its entry point is 'walk_plugin_gone:Gone'" in line
    assert "raises (walk-plugin-raises 2.0) failed to import: ZeroDivisionError" in line
    assert (
        "newer (walk-plugin-newer 2.0): it is written for API level 2, and this walkserve has API level 1"
        in line
    )
    assert line.endswith("(--strict)")
    assert "torch" not in run.heavy


def test_strictly_good_plugins_are_served(mute: Path) -> None:
    assert walkserve("serve", "mute", "--strict", path=mute).code == 7


def test_only_the_plugins_that_are_allowed_count(crowd: Path) -> None:
    run = walkserve("serve", "mute", "--strict", "--plugin", "walk-plugin-mute", path=crowd)
    assert (run.code, run.errors) == (7, "")
    run = walkserve("serve", "mute", env={"WALKSERVE_PLUGINS": "walk-plugin-orpheus"}, path=crowd)
    assert "the model 'mute' is of walk-plugin-mute, which is not among the plugins" in refused(run)


def test_a_plugin_that_is_allowed_and_not_installed_is_an_error_with_near_names(mute: Path) -> None:
    told = refused(walkserve("serve", "mute", "--plugin", "walk-plugin-mut", path=mute))
    message, _, installed = told.partition(" installed: ")
    assert message == "there is no plugin 'walk-plugin-mut'; did you mean 'walk-plugin-mute'?"
    assert "walk-plugin-mute" in installed.split(", ")
    (mute / "c.yaml").write_text("models: [mute]\nplugins: [mute]\n")
    run = walkserve("serve", "--config", mute / "c.yaml", path=mute)
    assert refused(run) == "'mute' is a model, not a plugin; write the plugin it is of: walk-plugin-mute"


def test_two_plugins_that_claim_one_model_are_both_named_and_the_allowed_one_is_served(mute: Path) -> None:
    twin = mute / "walk_plugin_twin-1.0.dist-info"
    twin.mkdir()
    (twin / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-twin\nVersion: 1.0\n")
    (twin / "entry_points.txt").write_text("[walkserve.models]\nmute = twin:Mute\n")
    run = walkserve("serve", "mute", path=mute)
    assert run.code == 1
    assert run.errors == (
        "walkserve: mute: walk-plugin-mute 2.0 and walk-plugin-twin 1.0 both claim this name; "
        "uninstall all but one"
    )
    run = walkserve("serve", "mute", "--plugin", "walk_plugin_mute", path=mute)
    assert run.code == 7, run.errors
    assert json.loads(run.out)["models"][0]["plugin"] == "walk-plugin-mute"


@pytest.mark.parametrize(("level", "cure"), [(0, "a newer walk-plugin-newer"), (2, "a newer walkserve")])
def test_a_plugin_for_another_api_level_is_refused_with_both_levels(
    mute: Path, level: int, cure: str
) -> None:
    (mute / "newer.py").write_text(MUTE.replace("Mute", "Newer") + f"    API_LEVEL = {level}\n")
    add_plugin(mute, "newer", "newer:Newer")
    run = walkserve("serve", "newer", path=mute)
    assert run.code == 1
    assert run.errors == (
        f"walkserve: newer (walk-plugin-newer 2.0): it is written for API level {level}, and this walkserve "
        f"has API level 1; install {cure}, so that the two levels are the same"
    )


# --- what reaches the server -----------------------------------------------------------------------------


def test_options_reach_the_server_and_its_exit_code_the_shell(mute: Path) -> None:
    (mute / "p.yaml").write_text("models:\n  mute:\n  - {components: [pen], ranks: [2]}\n")
    (mute / "files").mkdir()
    run = walkserve(
        *("serve", f"mute:mine={mute}/files", "--host", "0.0.0.0", "--port", "0", "--device", "cpu"),
        *("--dtype", "bfloat16", "--deterministic", "--cache-tokens", "64", "--token-budget", "96"),
        *("--log-level", "warning", "--placement", mute / "p.yaml", "--profile"),
        *("--journal", mute / "journals"),
        *("--overcommit", "2"),
        path=mute,
    )
    assert run.code == 7, run.errors
    asked = json.loads(run.out)
    assert (asked["host"], asked["port"], asked["log_level"]) == ("0.0.0.0", 0, "warning")
    assert asked["log_format"] == "text"
    (model,) = asked["models"]
    assert model | {"max_rows": 0} == {
        "name": "mute:mine",
        "family": "mute",
        "plugin": "walk-plugin-mute",
        "label": f"{mute}/files",
        "folders": {"main": f"{mute}/files"},
        "device_ranks": [2],
        "ranks": {"pen": "mute-mine.rank2"},
        "device": "cpu",
        "dtype": "bfloat16",
        "deterministic": True,
        "cache_tokens": 64,
        "overcommit": 2.0,
        "profile": True,
        "journal": f"{mute}/journals",
        "token_budget": 96,
        "max_rows": 0,
    }
    assert "torch" not in run.heavy
    assert (mute / "journals").is_dir()


def test_a_folder_for_journals_that_cannot_be_is_refused_before_anything_starts(mute: Path) -> None:
    (mute / "file").write_text("")
    run = walkserve("serve", f"mute={mute}", "--journal", mute / "file" / "below", path=mute)
    assert "no journal can be written to" in refused(run)


def test_settings_of_the_web_server_reach_it_and_keys_only_as_digests(mute: Path) -> None:
    (mute / "keys").write_text("sesame\n")
    (mute / "keys").chmod(0o644)
    (mute / "c.toml").write_text('models = ["mute"]\napi_key_file = "keys"\nmax_body_bytes = 99\n')
    env = {"WALKSERVE_MAX_OPEN_REQUESTS": "3", "WALKSERVE_RECEIVE_TIMEOUT_S": "2.5", "WALKSERVE_TIMEOUT": "9"}
    run = walkserve("serve", "--config", mute / "c.toml", "--cors-origin", "*", path=mute, env=env)
    assert run.code == 7, run.errors
    http = json.loads(run.out)["http"]
    assert (http["body_bytes"], http["max_open_requests"], http["receive_timeout_s"]) == (99, 3, 2.5)
    assert http["timeout_s"] == 9
    assert (http["cors_origins"], len(http["keys"]["digests"])) == (["*"], 1)
    assert "sesame" not in run.out + run.errors
    assert "every user of this machine may read these API keys" in run.errors


def test_the_log_level_of_a_file_shows_where_an_error_came_from(mute: Path) -> None:
    (mute / "c.yaml").write_text(f"models: ['mute={mute}/nowhere']\nlog_level: debug\n")
    run = walkserve("serve", "--config", mute / "c.yaml", path=mute)
    assert run.code == 1
    assert "Traceback (most recent call last):" in run.errors


def test_an_error_is_an_object_where_logs_are_objects(mute: Path) -> None:
    run = walkserve("serve", f"mute={mute}/nowhere", "--log-format", "json", path=mute)
    assert run.code == 1
    (line,) = run.errors.splitlines()
    assert "there is no such folder" in json.loads(line)["message"]


def test_generate_takes_variables_too(mute: Path) -> None:
    arguments = ("generate", "orpheus:toy", "--text", "a", "--out", "a.wav")
    run = walkserve(*arguments, env={"WALKSERVE_DTYPE": "half"})
    assert refused(run).startswith("WALKSERVE_DTYPE: the dtype 'half' is not served")


def test_several_models_are_served_together(mute: Path) -> None:
    run = walkserve("serve", "mute", f"mute:b={mute}", path=mute)
    assert [model["name"] for model in json.loads(run.out)["models"]] == ["mute", "mute:b"]


# --- generate, with an engine in the engine's place ------------------------------------------------------


class FakeEngine:
    """Says what it was asked, and gives half a second of silence."""

    asked: dict[str, Any]

    def __init__(self, name: str, **how: Any) -> None:
        FakeEngine.asked = {"name": name, **how}

    def __enter__(self) -> "FakeEngine":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def generate(self, **what: Any) -> SimpleNamespace:
        import numpy

        FakeEngine.asked |= what
        usage = {"input_tokens": 12, "output_tokens": 84}
        audio = SimpleNamespace(samples=numpy.zeros(12_000, numpy.float32), rate=24_000)
        return SimpleNamespace(speech=audio, finish_reason="stop", usage=usage, seed=5)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[FakeEngine]:
    import walkserve as package

    monkeypatch.setattr(package, "Engine", FakeEngine, raising=False)
    return FakeEngine


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".mp3", ".opus", ".ogg", ".WAV"])
def test_generate_writes_what_the_engine_gives(
    engine: type[FakeEngine], tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import soundfile

    from walkserve.cli import main

    out = tmp_path / f"a{suffix}"
    options = ['voice="tara"', "temperature=0.4", "constrain=true"]
    arguments = [part for option in options for part in ("--option", option)]
    asked = ["orpheus:toy", "--text", "hello", "--out", str(out), *arguments, "--seed", "5"]
    how = ["--device", "cpu", "--dtype", "float32", "--deterministic", "--cache-tokens", "64"]
    code = main(["generate", *asked, *how])
    printed = capsys.readouterr().out
    assert code == 0
    assert engine.asked == {
        **{"name": "orpheus:toy", "device": "cpu", "dtype": "float32", "deterministic": True},
        **{"cache_tokens": 64, "token_budget": "auto", "revision": None, "offline": True, "token": None},
        "plugins": (),
        **{"parts": (Part("text", "hello"),), "outputs": ("speech",), "seed": 5},
        **{"voice": "tara", "temperature": 0.4, "constrain": True},
    }
    samples, rate = soundfile.read(out)
    assert (len(samples), rate) == (12_000, 24_000)
    assert "0.50 s of audio" in printed
    assert "real-time factor" in printed
    assert "finish reason: stop, seed: 5, tokens: 12 in, 84 out" in printed


def test_an_options_value_is_json_where_it_is_json() -> None:
    from walkserve.cli.generate import read_value

    texts = ["0.4", "true", '"1"', "[1, 2]", "a=b", "tara"]
    assert [read_value(text) for text in texts] == [0.4, True, "1", [1, 2], "a=b", "tara"]


def test_generate_reads_a_text_from_stdin(
    engine: type[FakeEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    from walkserve.cli import main

    monkeypatch.setattr(sys, "stdin", io.StringIO("from stdin"))
    assert main(["generate", "orpheus:toy", "--text", "-", "--out", str(tmp_path / "a.wav")]) == 0
    assert engine.asked["parts"] == (Part("text", "from stdin"),)


# --- profile --------------------------------------------------------------------------------------------


@pytest.fixture
def answering() -> Any:
    """A server that answers everything with one body; what it was asked is kept."""
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    started = []

    def start(status: int, body: bytes) -> SimpleNamespace:
        asked: list[tuple[str, str | None]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers["authorization"]))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever)
        thread.start()
        started.append((server, thread))
        return SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", asked=asked)

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_profile_is_asked_for_by_id_with_the_key_and_without_anything_heavy(
    answering: Any, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("open sesame\n")
    server = answering(404, b'{"error": {"message": "no request is remembered", "type": "x"}}')
    run = walkserve("profile", "req-1/../2", "--url", server.url, "--api-key-file", tmp_path / "key")
    assert (run.code, run.heavy) == (1, [])
    assert run.errors == f"walkserve: {server.url} answers 404: no request is remembered"
    assert server.asked == [("/v1/requests/req-1%2F..%2F2", "Bearer open sesame")]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b'{"id": "req-1", "model": "m", "state": "done", "profile": null}', "serve with --profile"),
        (200, b"<html>", "this is no answer of walkserve"),
        (502, b"bad gateway", "answers 502: bad gateway"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(
    answering: Any, status: int, body: bytes, said: str
) -> None:
    run = walkserve("profile", "req-1", "--url", answering(status, body).url)
    assert (run.code, run.out) == (1, "") and len(run.errors.splitlines()) == 1
    assert said in run.errors


def test_a_profile_of_a_server_that_is_not_there(unused_port: int) -> None:
    run = walkserve("profile", "req-1", "--url", f"http://127.0.0.1:{unused_port}")
    assert run.code == 1 and "cannot be reached" in run.errors
    assert "is no URL of a server" in refused(walkserve("profile", "req-1", "--url", "localhost:8000"))


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# --- generate, with tensors ------------------------------------------------------------------------------


def test_generate_writes_tensors_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy
    from tests.dot import DOT
    from tests.families import surveyor

    from walkserve.cli import main
    from walkserve_sdk.arrays import read_tensors, to_json

    surveyor.install(tmp_path)
    for path in (tmp_path, surveyor.HERE):
        monkeypatch.syspath_prepend(str(path))
    states, image = tmp_path / "states.npy", tmp_path / "a.png"
    given = numpy.arange(6, dtype=numpy.float64).reshape(2, 3)
    numpy.save(states, given)
    image.write_bytes(DOT)
    files = ["--tensor", f"states={states}", "--image", f"goal={image}"]

    def run(out: str, *more: str) -> bytes:
        assert main(["generate", "surveyor", *files, "--out", str(tmp_path / out), *more]) == 0
        return (tmp_path / out).read_bytes()

    assert read_tensors(run("a.npy", "--output", "copy"))[""].tolist() == given.tolist()
    assert "a.npy: float64 of shape (2, 3) in " in capsys.readouterr().out
    survey = json.loads(run("a.json", "--output", "survey"))
    assert survey["parts"] == [f"image[goal] {len(DOT)}", f"tensor[states] {states.stat().st_size}"]
    assert survey["each"] == [to_json(given)]
    tensors = read_tensors(run("a.safetensors"))
    assert tensors["copy"].tolist() == tensors["steps.0.numbers"].tolist() == given.tolist()
    sys.modules.pop("surveyor", None)


def test_generate_writes_a_picture_as_the_name_of_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy
    from PIL import Image
    from tests.families import trial

    from walkserve.cli import main

    for path in reversed(trial.install(tmp_path / "site", "easel").split(os.pathsep)):
        monkeypatch.syspath_prepend(path)
    dot = tmp_path / "dot.png"
    Image.new("RGB", (3, 3), (200, 10, 10)).save(dot)
    asked = ["--text", "a chair", "--image", str(dot), "--option", "size=[24, 16]", "--seed", "3"]
    pixels = {}
    for name in ("a.png", "a.jpg", "a.WEBP"):
        assert main(["generate", "easel", *asked, "--out", str(tmp_path / name)]) == 0
        with Image.open(tmp_path / name) as image:
            assert image.format == {"a.png": "PNG", "a.jpg": "JPEG", "a.WEBP": "WEBP"}[name]
            pixels[name] = numpy.asarray(image)
    assert "a.png: a picture of 24x16 in " in capsys.readouterr().out
    assert {each.shape for each in pixels.values()} == {(16, 24, 3)}
    shown = ["--option", "partial_images=2", "--output", "previews", "--out", str(tmp_path / "b.png")]
    assert main(["generate", "easel", *asked, *shown]) == 1
    assert "it holds one picture, and 2 came" in " ".join(capsys.readouterr().err.split())


def test_generate_prints_a_text_or_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.families import trial

    from walkserve.cli import main

    for path in reversed(trial.install(tmp_path / "site", "easel").split(os.pathsep)):
        monkeypatch.syspath_prepend(path)
    asked = ["--text", "a chair", "--seed", "3", "--option", "max_tokens=5"]
    assert main(["generate", "easel", *asked]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.split()) == 5  # nothing else, for it may go on into a program
    assert "printed in " in printed.err and "5 out" in printed.err
    assert main(["generate", "easel", *asked, "--out", str(tmp_path / "a.txt")]) == 0
    assert (tmp_path / "a.txt").read_text("utf-8") == printed.out[:-1]
    assert main(["generate", "orpheus:toy", "--text", "dial 1"]) == 2
    assert "give it --out" in " ".join(capsys.readouterr().err.split())
