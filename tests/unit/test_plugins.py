"""Plugins: found, listed without being imported, loaded one by one."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from walkserve.errors import SettingError
from walkserve.plugins import ModelListing, find_models, list_models, load_model
from walkserve_sdk import PluginError

GOOD = """
from walkserve_sdk import Audio, Component, Model, Node, Output, WalkGraph, track

class {name}(Model):
    voice = Component("nowhere:Voice")
    sound = Output(Audio(rate=8_000))
    speak = WalkGraph(Node(voice, "say", takes="text", gives="pcm", to=sound))

    @track
    def speaking(self, request, prepared):
        yield self.speak(text=request.one("text"))
"""

BAD_DECLARATION = """
from walkserve_sdk import Component, Model, Node, WalkGraph

class Bad(Model):
    go = WalkGraph(Node(Component("nowhere:Voice"), "say", takes="text"))
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution, as pip would leave it, on a sys.path of its own."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def add(
        distribution: str,
        points: dict[str, str] | str,
        *,
        source: str | None = None,
        descriptor: object = None,
        version: str = "1.0",
        has_metadata: bool = True,
        place: str = "extra_metadata/walkserve.json",
    ) -> None:
        package = distribution.replace("-", "_")
        info = tmp_path / f"{package}-{version}.dist-info"
        info.mkdir()
        if has_metadata:
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
            )
        lines = points if isinstance(points, str) else "".join(f"{k} = {v}\n" for k, v in points.items())
        (info / "entry_points.txt").write_text(f"[walkserve.models]\n{lines}")
        if descriptor is not None:
            (info / place).parent.mkdir(exist_ok=True)
            text = descriptor if isinstance(descriptor, str) else json.dumps(descriptor)
            (info / place).write_text(text)
        if source is not None:
            (tmp_path / package).mkdir()
            (tmp_path / package / "__init__.py").write_text(source)

    yield add
    for name in set(sys.modules) - before:
        del sys.modules[name]


def listed(name: str) -> ModelListing:
    (model,) = [model for model in list_models() if model.name == name]
    return model


def test_a_descriptor_describes_a_model_that_is_never_imported(install: Install) -> None:
    notes = {"summary": "It hums", "variants": {"toy": "small"}, "inputs": ["text"], "outputs": ["sound"]}
    install(
        "walk-plugin-hum",
        {"hum": "walk_plugin_hum:Hum"},
        source="raise SystemExit('imported')",
        descriptor={"api": 1, "models": {"hum": notes}},
    )
    assert listed("hum") == ModelListing(
        name="hum",
        summary="It hums",
        variants={"toy": "small"},
        inputs=("text",),
        outputs=("sound",),
        distribution="walk-plugin-hum",
        version="1.0",
    )
    assert "walk_plugin_hum" not in sys.modules


def test_a_descriptor_may_lie_directly_in_the_dist_info_folder(install: Install) -> None:
    descriptor = {"api": 1, "models": {"hum": {"summary": "It hums"}}}
    install("walk-plugin-hum", {"hum": "hum:Hum"}, descriptor=descriptor, place="walkserve.json")
    assert listed("hum").summary == "It hums"


def test_a_model_without_a_descriptor_is_listed_by_its_name(install: Install) -> None:
    install("walk-plugin-hum", {"hum": "walk_plugin_hum:Hum"}, source="")
    assert listed("hum") == ModelListing(name="hum", distribution="walk-plugin-hum", version="1.0")


def test_models_are_found_in_the_order_of_their_names(install: Install) -> None:
    install("walk-plugin-z", {"yodel": "z:Y", "bark": "z:B"})
    install("walk-plugin-a", {"meow": "a:M"})
    names = [name for name in find_models().names if name in ("yodel", "bark", "meow")]
    assert names == ["bark", "meow", "yodel"]


def test_a_good_model_is_loaded(install: Install) -> None:
    install("walk-plugin-hum", {"hum": "walk_plugin_hum:Hum"}, source=GOOD.format(name="Hum"))
    assert load_model("hum").spec.name == "Hum"


def test_a_distribution_seen_twice_on_the_path_is_one(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("walk-plugin-hum", {"hum": "walk_plugin_hum:Hum"}, source=GOOD.format(name="Hum"))
    link = tmp_path.with_name("link")
    link.symlink_to(tmp_path)
    monkeypatch.syspath_prepend(link)
    assert load_model("hum").spec.name == "Hum"


@pytest.mark.parametrize(
    ("points", "descriptor", "problem"),
    [
        ({"bad": "walk_plugin_bad:Bad"}, "{", "its descriptor walkserve.json cannot be read"),
        ({"bad": "walk_plugin_bad:Bad"}, {"models": {}}, "missing required field `api`"),
        (
            {"bad": "walk_plugin_bad:Bad"},
            {"api": 1, "models": {"bad": {"inputs": 3}}},
            "$.models[...].inputs",
        ),
        (
            {"bad": "walk_plugin_bad:Bad"},
            {"api": 7},
            "written for API level 7, and this walkserve has API level 1",
        ),
        ({"bad": "walk plugin"}, None, "its entry point 'walk plugin' is not 'package.module:Class'"),
        (
            {"bad": "walk_plugin_gone:Bad"},
            None,
            "there is no module 'walk_plugin_gone'; reinstall the plugin",
        ),
        ({"bad": "walk_plugin_bad.gone:Bad"}, None, "there is no module 'walk_plugin_bad.gone'"),
        ({}, {"api": 1, "models": {"bad": {}}}, "describes 'bad', for which it has no entry point"),
    ],
)
def test_a_broken_plugin_is_listed_with_its_problem_and_harms_no_other(
    install: Install, points: dict[str, str], descriptor: object, problem: str
) -> None:
    install("walk-plugin-hum", {"hum": "walk_plugin_hum:Hum"}, source=GOOD.format(name="Hum"))
    install("walk-plugin-bad", points, source=GOOD.format(name="Bad"), descriptor=descriptor)
    assert problem in listed("bad").problem
    assert listed("bad").distribution == "walk-plugin-bad"
    assert listed("hum").problem == ""
    assert load_model("hum").spec.name == "Hum"
    with pytest.raises(PluginError, match="^bad .walk-plugin-bad 1.0.: |^bad .*failed to import"):
        load_model("bad")


def test_entry_points_that_cannot_be_read_are_listed_under_the_distribution(install: Install) -> None:
    install("walk-plugin-bad", "no equals sign\n")
    assert "its entry_points.txt cannot be read" in listed("walk-plugin-bad").problem


def test_a_plugin_that_pip_left_half_removed_harms_no_other(install: Install) -> None:
    install("walk-plugin-hum", {"hum": "walk_plugin_hum:Hum"}, source=GOOD.format(name="Hum"))
    install("walk-plugin-bad", {"bad": "walk_plugin_bad:Bad"}, has_metadata=False)
    assert "there is no module 'walk_plugin_bad'" in listed("bad").problem
    assert load_model("hum").spec.name == "Hum"


def test_two_distributions_that_claim_one_name_are_both_named(install: Install) -> None:
    install("walk-plugin-hum", {"hum": "walk_plugin_hum:Hum"}, source=GOOD.format(name="Hum"))
    install("walk-plugin-buzz", {"hum": "walk_plugin_buzz:Buzz"}, source=GOOD.format(name="Buzz"))
    both = "walk-plugin-buzz 1.0 and walk-plugin-hum 1.0 both claim this name; uninstall all but one"
    assert [model.problem for model in list_models() if model.name == "hum"] == [both, both]
    with pytest.raises(PluginError) as error:
        load_model("hum")
    assert str(error.value) == f"hum: {both}"


def test_a_wrong_name_is_answered_with_near_ones_and_the_list(install: Install) -> None:
    install("walk-plugin-hum", {"humming": "walk_plugin_hum:Hum", "buzz": "walk_plugin_hum:Hum"}, source="")
    with pytest.raises(SettingError) as error:
        load_model("huming")
    message = str(error.value)
    assert message.startswith("there is no model 'huming'; did you mean 'humming'? installed: ")
    assert "buzz, humming" in message
    with pytest.raises(SettingError, match="^there is no model 'qqqq'; installed: .*buzz, humming"):
        load_model("qqqq")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import qwertz",
            "failed to import: ModuleNotFoundError: No module named 'qwertz'; "
            "install what it needs: pip install --upgrade walk-plugin-bad",
        ),
        ("x = 1", "has no attribute 'Bad'; reinstall it: pip install --force-reinstall walk-plugin-bad"),
        ("1 / 0", "failed to import: ZeroDivisionError: division by zero; this is the plugin's mistake"),
        ("raise SystemExit(3)", "failed to import: SystemExit: 3"),
        (
            BAD_DECLARATION,
            "failed to import: walkserve_sdk.errors.DeclarationError: Bad",
        ),
        ("class Bad: pass", "walk_plugin_bad:Bad is no subclass of walkserve_sdk.Model"),
        (
            GOOD.format(name="Bad") + "\n    API_LEVEL = 0\n",
            "written for API level 0, and this walkserve has API level 1; install a newer walk-plugin-bad",
        ),
        (GOOD.format(name="Bad") + "\n    API_LEVEL = 2\n", "install a newer walkserve"),
    ],
)
def test_what_keeps_a_family_from_loading_is_said_with_its_cure(
    install: Install, source: str, message: str
) -> None:
    install("walk-plugin-bad", {"bad": "walk_plugin_bad:Bad"}, source=source)
    with pytest.raises(PluginError) as error:
        load_model("bad")
    assert str(error.value).startswith("bad (walk-plugin-bad 1.0)")
    assert message in str(error.value)
