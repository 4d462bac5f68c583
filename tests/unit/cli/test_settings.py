"""Settings: declared once, said in a file, a variable or by a flag; the last one wins and is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import rich_click as click
from click.testing import CliRunner

from walkserve.cli.config_file import read_config
from walkserve.cli.serve import command
from walkserve.cli.settings import FILE, FOLDER, SERVE_SETTINGS, Setting
from walkserve.cli.settle import Settled, Source, settle, unknown_variables
from walkserve.errors import SettingError

BY_NAME = {setting.name: setting for setting in SERVE_SETTINGS}


def sample(setting: Setting, folder: Path) -> tuple[Any, str]:
    """A value that is not the default, and how a variable spells it."""
    file = folder / "file"
    file.touch()
    given = {"device": "cpu", "dtype": "bfloat16", "cors_origins": "https://a.org", "log_level": "debug"}
    given |= {"token_budget": 64}
    if setting.name in given:
        value = given[setting.name]
    elif setting.type is FILE:
        value = str(file)
    elif setting.type is FOLDER:
        value = str(folder / "new")
    elif setting.is_switch:
        value = not setting.default
    elif isinstance(setting.type, click.Choice):
        value = next(word for word in setting.type.choices if word != setting.default)
    elif isinstance(setting.type, click.IntRange):
        value = setting.default + (-1 if setting.type.max is not None else 1)
    elif isinstance(setting.type, click.FloatRange):
        value = (setting.default or 0) + (-0.5 if setting.type.max is not None else 0.5)
    else:
        value = "something"
    return value, str(value).lower() if setting.is_switch else str(value)


def shown(*arguments: str, env: dict[str, str] | None = None) -> dict[str, tuple[Any, str]]:
    """What ``--show-config`` says: setting -> value and origin."""
    clean = {name: None for each in SERVE_SETTINGS for name in each.variables}
    run = CliRunner().invoke(
        command,
        [*arguments, "--show-config", "--json"],
        env=clean | {"WALKSERVE_MODELS": None} | (env or {}),
        catch_exceptions=False,
        standalone_mode=False,
    )
    assert run.exit_code == 0
    return {row["setting"]: (row["value"], row["from"]) for row in json.loads(run.output)["settings"]}


def as_shown(setting: Setting, value: Any) -> Any:
    return [value] if setting.is_many else value


# --- each of them, each way --------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SERVE_SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_said_by_nobody_in_a_file_by_a_variable_or_by_a_flag(setting: Setting, tmp_path: Path):
    value, text = sample(setting, tmp_path)
    config = tmp_path / "server.yaml"
    config.write_text(json.dumps({setting.name: as_shown(setting, value)}))
    flag = [setting.flag] if setting.is_switch else [setting.flag, text]
    in_file, by_variable = ("--config", str(config)), {setting.variable: text}
    default = list(setting.default) if setting.is_many else setting.default

    assert shown()[setting.name] == (default, "default")
    assert shown(*in_file)[setting.name] == (as_shown(setting, value), f"{config}, line 1")
    assert shown(env=by_variable)[setting.name] == (as_shown(setting, value), setting.variable)
    assert shown(*flag)[setting.name] == (as_shown(setting, value), setting.flag)
    assert shown(*in_file, env=by_variable)[setting.name][1] == setting.variable
    assert shown(*in_file, *flag, env=by_variable)[setting.name][1] == setting.flag


def test_a_switch_may_be_turned_off_again(tmp_path: Path):
    (tmp_path / "c.toml").write_text("offline = true\n")
    config = ("--config", str(tmp_path / "c.toml"))
    assert shown(*config)["offline"] == (True, f"{tmp_path}/c.toml, offline")
    assert shown(*config, env={"WALKSERVE_OFFLINE": "no"})["offline"] == (False, "WALKSERVE_OFFLINE")
    assert shown(*config, "--no-offline")["offline"] == (False, "--no-offline")


def test_a_list_is_a_repeated_flag_or_a_variable_with_commas():
    both = ["https://a.org", "http://b.org:81"]
    assert shown("--cors-origin", both[0], "--cors-origin", both[1])["cors_origins"][0] == both
    assert shown(env={"WALKSERVE_CORS_ORIGINS": " , ".join(both)})["cors_origins"][0] == both


def test_the_hubs_own_variable_is_taken_where_ours_is_not_set():
    assert shown(env={"HF_HUB_OFFLINE": "1"})["offline"] == (True, "HF_HUB_OFFLINE")
    assert shown(env={"HF_HUB_OFFLINE": "1", "WALKSERVE_OFFLINE": "0"})["offline"][1] == "WALKSERVE_OFFLINE"
    assert shown(env={"HF_HUB_OFFLINE": ""})["offline"] == (False, "default")


def test_the_file_may_be_named_by_a_variable(tmp_path: Path):
    (tmp_path / "c.yaml").write_text("port: 81\n")
    assert shown(env={"WALKSERVE_CONFIG": str(tmp_path / "c.yaml")})["port"] == (
        81,
        f"{tmp_path}/c.yaml, line 1",
    )


def test_paths_in_a_file_are_from_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/keys").write_text("k\n")
    (tmp_path / "etc/c.toml").write_text(
        'api_key_file = "keys"\njournal = "../journals"\nmodels = ["orpheus:a=./a", "orpheus:b=o/b"]\n'
    )
    monkeypatch.chdir(tmp_path)
    said = shown("--config", "etc/c.toml")
    assert said["api_key_file"][0] == "etc/keys"
    assert said["journal"][0] == "etc/../journals"
    assert said["models[0]"][0] == f"orpheus:a={tmp_path}/etc/a"
    assert said["models[1]"][0] == "orpheus:b=o/b"


# --- models -----------------------------------------------------------------------------------------------

MODELS = """\
port: 81
dtype: float32
models:
- orpheus:toy
- name: orpheus:mine
  checkpoint: ./mine
  dtype: bfloat16
  cache_tokens: 64
"""


def test_models_stand_in_a_file_with_settings_of_their_own(tmp_path: Path):
    config = tmp_path / "c.yaml"
    config.write_text(MODELS)
    said = shown("--config", str(config))
    assert {name: said[name] for name in said if name.startswith("models")} == {
        "models[0]": ("orpheus:toy", f"{config}, line 4"),
        "models[1]": (f"orpheus:mine={tmp_path}/mine", f"{config}, line 5"),
        "models[1].dtype": ("bfloat16", f"{config}, line 7"),
        "models[1].cache_tokens": (64, f"{config}, line 8"),
    }


def test_a_flag_or_a_variable_is_for_all_models_and_wins_over_what_a_file_sets_for_one(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(MODELS)
    said = shown("--config", str(tmp_path / "c.yaml"), "--dtype", "float32")
    assert "models[1].dtype" not in said and "models[1].cache_tokens" in said
    assert said["dtype"] == ("float32", "--dtype")


def test_names_take_the_place_of_those_that_are_named_before(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(MODELS)
    config, variable = ("--config", str(tmp_path / "c.yaml")), {"WALKSERVE_MODELS": "a, b:c"}

    def models(said: dict[str, tuple[Any, str]]) -> list[tuple[Any, str]]:
        return [said[name] for name in said if name.startswith("models")]

    assert models(shown(*config, env=variable)) == [("a", "WALKSERVE_MODELS"), ("b:c", "WALKSERVE_MODELS")]
    assert models(shown(*config, "d", env=variable)) == [("d", "the command line")]
    assert models(shown()) == [(None, "default")]


# --- what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host: a\nprot: 1\n", "c.yaml, line 2: unknown key 'prot'; did you mean 'port'?"),
        ("port: many\n", "c.yaml, line 1: 'port' is a whole number, not 'many'"),
        ("port: true\n", "c.yaml, line 1: 'port' is a whole number, not True"),
        ("port: 99999\n", "c.yaml, line 1: 99999 is not in the range 0<=x<=65535"),
        ("host: 1\n", "c.yaml, line 1: 'host' is a text, not 1"),
        ("offline: 1\n", "c.yaml, line 1: 'offline' is true or false, not 1"),
        ("dtype: float16\n", "c.yaml, line 1: the dtype 'float16' is not served"),
        ("device: gpu\n", "c.yaml, line 1: there is no device 'gpu'"),
        ("receive_timeout_s: [1]\n", "c.yaml, line 1: 'receive_timeout_s' is a number, not a list"),
        ("cors_origins: https://a\n", "c.yaml, line 1: 'cors_origins' is a list, not 'https://a'"),
        ("cors_origins: [1]\n", "c.yaml, line 1: an entry of 'cors_origins' is a text, not 1"),
        ("cors_origins: [a]\n", "c.yaml, line 1: 'a' is no origin"),
        ("api_key_file: gone\n", "gone' does not exist"),
        ("log_level: loud\n", "c.yaml, line 1: 'loud' is not one of 'debug', 'info', 'warning', 'error'"),
        ("models: orpheus\n", "c.yaml, line 1: 'models' is a list of names, or of mappings"),
        (
            "models:\n- 5\n",
            "c.yaml, line 2: 'models' is a list of names, or of mappings with a 'name', not 5",
        ),
        ("models:\n- dtype: float32\n", "c.yaml, line 2: this model lacks the key 'name'"),
        ("models:\n- name: a\n  dtpe: x\n", "c.yaml, line 3: unknown key 'dtpe'; did you mean 'dtype'?"),
        (
            "models:\n- name: a\n  port: 1\n",
            "c.yaml, line 3: unknown key 'port'; known: cache_tokens, checkpoint",
        ),
        ("models:\n- name: a\n  dtype: fp16\n", "c.yaml, line 3: the dtype 'fp16' is not served"),
        ("models:\n- name: a=b\n  checkpoint: c\n", "c.yaml, line 3: 'a=b' has a checkpoint already"),
        ("- port\n", "c.yaml, line 1: a config file maps names of settings to values, not a list"),
        ("port: [\n", "this is no YAML"),
    ],
)
def test_a_files_mistake_is_told_with_its_line(tmp_path: Path, text: str, message: str):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(SettingError) as error:
        read_config(tmp_path / "c.yaml", SERVE_SETTINGS)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{tmp_path}/")


def test_a_mistake_in_toml_is_told_with_its_key(tmp_path: Path):
    (tmp_path / "c.toml").write_text('[[models]]\nname = "a"\ndtype = "half"\n')
    with pytest.raises(SettingError, match=f"^{tmp_path}/c.toml, models.0..dtype: the dtype 'half'"):
        read_config(tmp_path / "c.toml", SERVE_SETTINGS)


def test_an_empty_file_sets_nothing(tmp_path: Path):
    (tmp_path / "c.yaml").write_text("# nothing yet\n")
    assert read_config(tmp_path / "c.yaml", SERVE_SETTINGS).settings == {}


def settled(environ: dict[str, str], **flags: Any) -> dict[str, Settled]:
    return settle(SERVE_SETTINGS, file={}, environ=environ, flags=flags)


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("WALKSERVE_PORT", "many", "WALKSERVE_PORT: 'many' is not a valid"),
        ("WALKSERVE_PORT", "tcp://10.0.0.1:80", "give the pod enableServiceLinks: false"),
        ("WALKSERVE_OFFLINE", "perhaps", "WALKSERVE_OFFLINE: 'perhaps' is not a valid boolean"),
        ("WALKSERVE_DTYPE", "half", "WALKSERVE_DTYPE: the dtype 'half' is not served"),
        ("HF_HUB_OFFLINE", "perhaps", "HF_HUB_OFFLINE: 'perhaps' is not a valid boolean"),
    ],
)
def test_a_variables_mistake_is_told_with_its_name(variable: str, text: str, message: str):
    with pytest.raises(SettingError) as error:
        settled({variable: text})
    assert message in str(error.value)


def test_a_flags_mistake_is_told_with_its_name():
    with pytest.raises(SettingError, match="^--dtype: the dtype 'half'"):
        settled({}, dtype="half")
    assert settled({}, dtype="auto")["dtype"] == Settled("auto", Source.FLAG, "--dtype")


def test_a_variable_that_looks_like_a_setting_and_is_none_is_said():
    environ = {"WALKSERVE_PROT": "1", "WALKSERVE_PORT": "1", "WALKSERVE_CONFIG": "c", "WALKSERVE_MODELS": "a"}
    (line,) = unknown_variables(SERVE_SETTINGS, environ, also=("WALKSERVE_CONFIG",))
    assert line == "the variable WALKSERVE_PROT is no setting; did you mean 'WALKSERVE_PORT'?"


def test_the_table_shows_paths_of_secrets_and_no_secret(tmp_path: Path):
    (tmp_path / "keys").write_text("sesame\n")
    run = CliRunner().invoke(
        command, ["--show-config", "--api-key-file", str(tmp_path / "keys"), "orpheus:toy"]
    )
    assert run.exit_code == 0
    lines = {line.split()[0]: line.split()[1:] for line in run.output.splitlines() if line.strip()}
    assert lines["api_key_file"] == [f"{tmp_path}/keys", "--api-key-file"]
    assert lines["models[0]"] == ["orpheus:toy", "the", "command", "line"]
    assert lines["port"] == ["8000", "default"]
    assert "sesame" not in run.output
